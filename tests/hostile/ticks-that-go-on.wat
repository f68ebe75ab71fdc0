;; A tick that always has more output, and spins for a seventh of its budget each time.
;; stage: run
;; expect: used up its budget of 10000000 in 7 calls together
(module
  (memory (export "memory") 1)
  (func (export "flame_tick") (param i64) (result i64) (local $i i32)
    (local.set $i (i32.const 250000))
    (loop $spin
      (br_if $spin (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (i64.const 0x80000000))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
)
