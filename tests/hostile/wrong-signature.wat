;; Exports flame_batch with another type.
;; stage: install
;; expect: flame_batch
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i64) (result i32) (i32.const 0))
)
