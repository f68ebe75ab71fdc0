;; Fault 2. A callee that diverges, and works for long before it traps.
(module
  (func $panics (param $n i32) (local $i i32)
    (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 20000))))
    (unreachable))
  (func (export "f") (param i32 i32 i64) (result i64)
    (if (i32.eq (local.get 0) (i32.const 1)) (then (call $panics (local.get 0))))
    (i64.const 1)))
