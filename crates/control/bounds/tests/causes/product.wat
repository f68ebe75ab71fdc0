;; Five nested loops of 2^27 iterations each.
(module (memory 1)
  (func (export "f") (param $a i32) (local $0 i32) (local $1 i32) (local $2 i32) (local $3 i32) (local $4 i32)
    (local.set $4 (i32.const 0)) (loop (local.set $3 (i32.const 0)) (loop (local.set $2 (i32.const 0)) (loop (local.set $1 (i32.const 0)) (loop (local.set $0 (i32.const 0)) (loop (drop (i32.load (local.get $a)))
      (br_if 0 (i32.lt_u (local.tee $0 (i32.add (local.get $0) (i32.const 1))) (i32.const 0x8000000))))
      (br_if 0 (i32.lt_u (local.tee $1 (i32.add (local.get $1) (i32.const 1))) (i32.const 0x8000000))))
      (br_if 0 (i32.lt_u (local.tee $2 (i32.add (local.get $2) (i32.const 1))) (i32.const 0x8000000))))
      (br_if 0 (i32.lt_u (local.tee $3 (i32.add (local.get $3) (i32.const 1))) (i32.const 0x8000000))))
      (br_if 0 (i32.lt_u (local.tee $4 (i32.add (local.get $4) (i32.const 1))) (i32.const 0x8000000))))))
