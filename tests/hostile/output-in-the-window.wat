;; Asks the host to read packets as records (the bit that would say so means "more").
;; stage: run
;; expect: output of
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x10001000010000))
)
