;; A data segment aimed at the window.
;; stage: run
;; expect: out of bounds
(module
  (memory (export "memory") 1)
  (data (i32.const 0x80000000) "x")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
