;; Marks the same packet twice to get its budget twice.
;; stage: run
;; expect: unreachable
(module
  (import "flame" "packet" (func $p (param i32)))
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (call $p (i32.const 0)) (call $p (i32.const 0)) (i64.const 0))
)
