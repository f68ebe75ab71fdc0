;; Fault 6. A finite bound of a tick, far above any budget: 65,535^5 iterations. A host that runs it without
;; counters because it has a bound waits for years.
(module
  (memory (export "memory") 1)
  (func $f1 (local $i i32)
    (loop $l 
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 65535)))))
  (func $f2 (local $i i32)
    (loop $l (call $f1)
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 65535)))))
  (func $f3 (local $i i32)
    (loop $l (call $f2)
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 65535)))))
  (func $f4 (local $i i32)
    (loop $l (call $f3)
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 65535)))))
  (func (export "flame_batch") (param i32) (result i64) (i64.const 0))
  (func (export "flame_tick") (param i64) (result i64) (local $i i32)
    (loop $l (call $f4)
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 65535))))
    (i64.const 0)))
