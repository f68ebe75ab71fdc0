;; Fault 2. The loop's only exit leads to a trap, which its counter never reaches. It is entered in one case
;; only.
(module
  (func (export "f") (param i32 i32 i64) (result i64) (local $i i32)
    (block $done
      (br_if $done (i32.eqz (local.get 0)))
      (block $out (loop $l
        (br_if $out (i32.eq (local.get $i) (i32.const 3)))
        (local.set $i (i32.add (local.get $i) (i32.const 2)))
        (br $l)))
      (unreachable))
    (i64.const 0)))
