;; A loop that only a trap or a counter ends, beside a path that returns.
(module (memory 1)
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (if (local.get $a) (then (return)))
    (loop $l (i32.store (i32.const 0) (local.get $a)) (br $l))))
