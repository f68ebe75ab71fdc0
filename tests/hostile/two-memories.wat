;; A second memory.
;; stage: install
;; expect: memor
(module
  (memory (export "memory") 1)
  (memory 1)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
