;; Wants the file system.
;; stage: install
;; expect: fd_write
(module
  (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
