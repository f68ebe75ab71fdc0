;; The function that the host calls never returns.
(module (memory 1)
  (func (export "f") (param $a i32)
    (loop $l (i32.store (i32.const 0) (local.get $a)) (br $l))))
