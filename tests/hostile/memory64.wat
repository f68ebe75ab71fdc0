;; 64-bit addresses escape the reservation.
;; stage: install
;; expect: 64
(module
  (memory (export "memory") i64 1)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
