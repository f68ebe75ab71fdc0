;; Sends as many messages as it may, and its slow path takes a hundredth of its budget for each.
;; stage: run
;; expect: flame_message: cut off
(module
  (memory (export "memory") 10)
  (func (export "flame_message") (param i32 i32) (result i64) (local $i i32)
    (local.set $i (i32.const 25000))
    (loop $spin
      (br_if $spin (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (i64.const 0))
  (func (export "flame_batch") (param i32) (result i64) (local $i i32)
    (loop $next
      (i64.store (i32.shl (local.get $i) (i32.const 3)) (i64.const 0x0000ffff00000000))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4096))))
    (i64.const 0x8000_00000000))
)
