;; Fault 1. One back edge counts up to a border, the other back down from it.
(module
  (func (export "f") (param i32 i32 i64) (result i64) (local $i i32)
    (block $out (loop $head
      (if (i32.lt_u (local.get $i) (i32.const 10))
        (then (local.set $i (i32.add (local.get $i) (i32.const 10))) (br $head)))
      (if (i32.gt_u (local.get $i) (i32.const 9))
        (then (local.set $i (i32.sub (local.get $i) (i32.const 10))) (br $head)))))
    (i64.const 0)))
