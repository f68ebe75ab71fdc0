;; A function that diverges cost nothing in the bound, and had all the fuel of the call.
(module (memory (export "memory") 1)
  (func $spins (loop $l (br $l)))
  (func (export "flame_batch") (param i32) (result i64)
    (if (i32.eqz (i32.load offset=8 (local.get 0))) (then (call $spins)))
    (i64.const 0))
  (func (export "f") (param i32 i32 i64) (result i64)
    (if (local.get 0) (then (call $spins)))
    (i64.const 1)))
