;; Traps in its last call.
;; stage: run
;; expect: unreachable
(module
  (memory (export "memory") 1)
  (func (export "flame_end") (param i64) (result i64) (unreachable))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
