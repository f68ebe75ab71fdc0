;; Threads.
;; stage: install
;; expect: 
(module
  (memory (export "memory") 1 1 shared)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
