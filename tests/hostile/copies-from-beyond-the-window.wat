;; Bulk copy from unmapped addresses.
;; stage: run
;; expect: out of bounds
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (memory.copy (i32.const 0) (i32.const 0xfffffff0) (i32.const 8)) (i64.const 0))
)
