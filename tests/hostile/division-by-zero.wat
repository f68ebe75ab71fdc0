;; A trap that the processor raises.
;; stage: run
;; expect: divide by zero
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (drop (i32.div_u (i32.const 1) (i32.const 0))) (i64.const 0))
)
