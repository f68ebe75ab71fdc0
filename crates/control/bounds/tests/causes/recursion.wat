;; Nested headers are parsed by functions that call each other.
(module (memory 1)
  (func $outer (param i32) (if (i32.load8_u (local.get 0)) (then (call $inner (i32.load offset=4 (local.get 0))))))
  (func $inner (param i32) (if (i32.load8_u (local.get 0)) (then (call $outer (i32.load offset=4 (local.get 0))))))
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (call $outer (local.get $a))))
