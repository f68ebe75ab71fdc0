;; The limit is loaded again in each iteration.
(module (memory 1)
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (i32.load (local.get $a)))))))
