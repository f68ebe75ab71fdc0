;; A certificate without any claim, so that a loop that has a bound has none.
(module
  (@custom "flame.bounds" "\01\00\00\00")
  (func (export "f") (local $i i32)
    (loop $l
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9))))))
