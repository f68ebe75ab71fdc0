;; By threes up to a number that is not a multiple of three.
(module (memory 1)
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (loop $l
      (local.set $i (i32.add (local.get $i) (i32.const 3)))
      (br_if $l (i32.ne (local.get $i) (i32.const 100))))))
