;; Always has more output.
;; stage: run
;; expect: calls together
(module
  (memory (export "memory") 1)
  (func (export "flame_end") (param i64) (result i64) (i64.const 0x80000000))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
