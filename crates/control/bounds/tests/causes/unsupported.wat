;; A table grows by an operand.
(module (memory 1)
  (table $t 1 funcref)
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (drop (table.grow $t (ref.null func) (local.get $a)))))
