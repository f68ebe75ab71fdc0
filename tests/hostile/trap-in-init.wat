;; Traps before its first packet.
;; stage: run
;; expect: unreachable
(module
  (memory (export "memory") 1)
  (func (export "flame_init") (param i32 i32) (result i64) (unreachable))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
