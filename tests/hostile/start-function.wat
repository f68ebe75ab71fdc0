;; A start function, which would run before any limit.
;; stage: install
;; expect: start
(module
  (memory (export "memory") 1)
  (func $s (loop $l (br $l)))
  (start $s)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
