;; A loop that never ends in the fast path.
;; stage: run
;; expect: cut off in the loop at byte
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (loop $l (br $l)) (i64.const 0))
)
