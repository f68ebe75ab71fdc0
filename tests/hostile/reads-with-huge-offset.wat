;; The largest address with the largest offset.
;; stage: run
;; expect: out of bounds
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (drop (i64.load offset=0xffffffff (i32.const -1))) (i64.const 0))
)
