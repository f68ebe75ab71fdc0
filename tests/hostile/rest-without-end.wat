;; A batch whose rest has no end.
;; stage: run
;; expect: further calls
(module
  (memory (export "memory") 1)
  (func (export "flame_rest") (result i64) (i64.const 0x40000000))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x40000000))
)
