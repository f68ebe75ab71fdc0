;; Fault 4, second form. `select x y (x < y & flag)` is y, not the lesser, where the flag is 0.
(module
  (func (export "f") (param $y i32) (param i32 i64) (result i64) (local $i i32) (local $end i32)
    (local.set $end (select (i32.const 16) (local.get $y)
      (i32.and (i32.lt_u (i32.const 16) (local.get $y)) (i32.eqz (i32.and (local.get $y) (i32.const 3))))))
    (loop $l
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (local.get $end))))
    (i64.const 0)))
