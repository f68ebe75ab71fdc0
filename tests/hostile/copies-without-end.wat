;; Bulk copies cost by the byte: forty in one packet are too many.
;; stage: run
;; expect: used up its budget
(module
  (memory (export "memory") 512)
  (func (export "flame_init") (param i32 i32) (result i64) (loop $l (memory.copy (i32.const 0) (i32.const 16777216) (i32.const 16777216)) (br $l)) (i64.const 0))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
