;; A table of a hundred million elements.
;; stage: install
;; expect: table
(module
  (memory (export "memory") 1)
  (table 100000000 funcref)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
