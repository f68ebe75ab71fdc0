;; Bulk fill of the window.
;; stage: run
;; expect: out of bounds
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (memory.fill (local.get 0) (i32.const 0) (i32.const 64)) (i64.const 0))
)
