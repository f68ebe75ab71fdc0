;; Points its output beyond its memory.
;; stage: run
;; expect: output of
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0x100000ffff))
)
