;; Fault 7, with an end in a local.
(module
  (func (export "f") (param i32 i32 i64) (result i64) (local $i i32) (local $end i32)
    (local.set $end (i32.const 8))
    (loop $l (result i32)
      (i32.ne (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $end))
      (br $l)) (drop) (i64.const 0)))
