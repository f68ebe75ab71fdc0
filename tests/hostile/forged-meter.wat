;; Exports a name that is the host's own.
;; stage: install
;; expect: flame:
(module
  (memory (export "memory") 1)
  (global (export "flame:fuel") (mut i64) (i64.const 0))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
