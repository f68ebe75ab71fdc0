;; Never returns the rest of its output.
;; stage: run
;; expect: cut off
(module
  (memory (export "memory") 1)
  (func (export "flame_rest") (result i64) (loop $l (br $l)) (unreachable))
  (func (export "flame_tick") (param i64) (result i64) (i64.const 0x40000000))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
