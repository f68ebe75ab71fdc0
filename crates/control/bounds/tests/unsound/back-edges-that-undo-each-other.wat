;; Fault 1. Each back edge alone would end the loop; one of the two can always be taken, so together they
;; never do.
(module
  (func (export "f") (param i32 i32 i64) (result i64) (local $i i32)
    (loop $head
      (local.set $i (i32.add (local.get $i) (i32.const 0x10000000)))
      (br_if $head (i32.lt_s (local.get $i) (i32.const 0)))
      (br_if $head (i32.lt_u (local.get $i) (i32.const 0x80000000))))
    (i64.const 0)))
