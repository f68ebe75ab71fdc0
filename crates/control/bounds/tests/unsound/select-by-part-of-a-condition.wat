;; Fault 4, first form. `(p | q) & f` does not hold merely because f does: where neither p nor q does, x is
;; chosen, not 10.
(module
  (func (export "f") (param $x i32) (param i32 i64) (result i64) (local $i i32) (local $end i32)
    (if (i32.ne (local.get $x) (i32.const 0)) (then
      (local.set $end (select (i32.const 10) (local.get $x)
        (i32.and (i32.or (i32.eq (local.get $x) (i32.const 5)) (i32.eq (local.get $x) (i32.const 6)))
                 (i32.ne (local.get $x) (i32.const 0)))))
      (loop $l
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $i) (local.get $end))))))
    (i64.const 0)))
