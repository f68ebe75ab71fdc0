;; Fault 2. Work before a trap costs as much as any other: 60,000 instructions.
(module
  (func (export "f") (param i32 i32 i64) (result i64) (local $i i32)
    (if (i32.eq (local.get 0) (i32.const 1)) (then
      (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 10000))))
      (unreachable)))
    (i64.const 1)))
