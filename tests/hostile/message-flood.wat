;; Sends 60000 messages in one call.
;; stage: run
;; expect: sent 60000 messages in one call, at most 4096 are allowed
(module
  (memory (export "memory") 10)
  (func (export "flame_message") (param i32 i32) (result i64) (i64.const 0))
  (func (export "flame_batch") (param i32) (result i64) (local $i i32)
    (loop $next
      (i64.store (i32.shl (local.get $i) (i32.const 3)) (i64.const 0x0000ffff00000000))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 60000))))
    (i64.const 0x75300_00000000))
)
