;; One of the functions with an address has no bound.
(module (memory 1)
  (type $t (func (param i32)))
  (table 2 funcref) (elem (i32.const 0) $short $long)
  (func $short (type $t))
  (func $long (type $t) (loop $l (br_if $l (local.tee 0 (i32.load (local.get 0))))))
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (call_indirect (type $t) (local.get $a) (local.get $a))))
