;; Calls an empty table element.
;; stage: run
;; expect: uninitialized
(module
  (memory (export "memory") 1)
  (type $t (func)) (table 1 funcref)
  (func (export "flame_batch") (param i32) (result i64) (call_indirect (type $t) (i32.const 0)) (i64.const 0))
)
