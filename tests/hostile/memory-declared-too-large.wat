;; Declares three GiB at once.
;; stage: install
;; expect: memory
(module
  (memory (export "memory") 49152)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
