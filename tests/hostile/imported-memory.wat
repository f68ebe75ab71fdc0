;; Wants a memory that others could share.
;; stage: install
;; expect: memory
(module
  (import "env" "memory" (memory 1))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
