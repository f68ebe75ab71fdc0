;; Marks a packet that the batch does not hold.
;; stage: run
;; expect: unreachable
(module
  (import "flame" "packet" (func $p (param i32)))
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (call $p (i32.const 100000)) (i64.const 0))
)
