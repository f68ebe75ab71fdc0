;; Recursion without end: the budget or the stack ends it, whichever is first.
;; stage: run
;; expect: flame_batch
(module
  (memory (export "memory") 1)
  (func $f (param i32) (result i32) (i32.add (i32.const 1) (call $f (local.get 0))))
  (func (export "flame_batch") (param i32) (result i64) (drop (call $f (i32.const 0))) (i64.const 0))
)
