;; Traps on its first packet.
;; stage: run
;; expect: unreachable
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (unreachable))
)
