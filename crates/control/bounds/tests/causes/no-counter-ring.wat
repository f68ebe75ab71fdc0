;; A ring of places is searched: the index is reduced by a mask in each iteration.
(module (memory 1)
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (loop $l
      (local.set $i (i32.and (i32.add (local.get $i) (i32.const 1)) (i32.const 255)))
      (br_if $l (i32.load (i32.shl (local.get $i) (i32.const 2)))))))
