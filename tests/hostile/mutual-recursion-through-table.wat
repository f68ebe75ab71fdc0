;; Recursion that a call graph does not show.
;; stage: run
;; expect: flame_batch
(module
  (memory (export "memory") 1)
  (type $t (func (param i32) (result i32)))
  (table 2 funcref) (elem (i32.const 0) $a $b)
  (func $a (type $t) (i32.add (i32.const 1) (call_indirect (type $t) (local.get 0) (i32.const 1))))
  (func $b (type $t) (i32.add (i32.const 1) (call_indirect (type $t) (local.get 0) (i32.const 0))))
  (func (export "flame_batch") (param i32) (result i64) (drop (call_indirect (type $t) (i32.const 0) (i32.const 0))) (i64.const 0))
)
