;; A list in memory is followed to its end.
(module (memory 1)
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (loop $l (br_if $l (local.tee $a (i32.load (local.get $a)))))))
