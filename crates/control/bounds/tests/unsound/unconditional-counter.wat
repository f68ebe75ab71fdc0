;; Fault 7. It ends like a counted loop whose end is 0, but takes its back edge for any count: a charge in
;; advance covers seven iterations, and then it runs forever.
(module
  (func (export "f") (param i32 i32 i64) (result i64) (local $i i32)
    (local.set $i (i32.const -7))
    (loop $l (result i32)
      (local.tee $i (i32.add (local.get $i) (i32.const 1)))
      (br $l)) (drop) (i64.const 0)))
