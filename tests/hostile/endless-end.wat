;; A loop that never ends in the last call.
;; stage: run
;; expect: used up its budget
(module
  (memory (export "memory") 1)
  (func (export "flame_end") (param i64) (result i64) (loop $l (br $l)) (i64.const 0))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
