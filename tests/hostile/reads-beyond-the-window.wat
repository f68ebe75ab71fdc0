;; Loads after the last mapped page.
;; stage: run
;; expect: out of bounds
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (drop (i32.load (i32.const 0xfffffff0))) (i64.const 0))
)
