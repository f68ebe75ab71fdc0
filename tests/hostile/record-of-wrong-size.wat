;; A row one byte too long.
;; stage: run
;; expect: t
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\09\00\00\00\00\00\00\00" "123456789")
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x1100000000))
)
