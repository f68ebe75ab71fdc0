;; A frame whose kind is no table.
;; stage: run
;; expect: table
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\09\00\00\00" "\00\00\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1000000000))
)
