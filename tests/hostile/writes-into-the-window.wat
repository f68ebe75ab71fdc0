;; Stores into a packet.
;; stage: run
;; expect: out of bounds
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (i32.store8 (i32.load (i32.add (local.get 0) (i32.const 0))) (i32.const 1)) (i64.const 0))
)
