;; A message although nobody listens.
;; stage: run
;; expect: message
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\01\00\00\00\ff\ff\00\00" "x")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x900000000))
)
