;; Fault 4, first form. `(p | q) & f` does not imply p, but a fact of p alone is used: q keeps the loop going.
(module
  (func (export "f") (param $q i32) (param i32 i64) (result i64) (local $i i32)
    (loop $l
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.and
        (i32.or (i32.lt_u (local.get $i) (i32.const 100)) (i32.ne (local.get $q) (i32.const 0)))
        (i32.ne (local.get $q) (i32.const 7)))))
    (i64.const 0)))
