;; A frame that claims more than the output holds.
;; stage: run
;; expect: frame
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\ff\00\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1000000000))
)
