;; Fault 5. `do { d[i] } while (++i < count - 1)` reads d[0] alone if count is 1, but d[i + k] lies after the
;; last descriptor.
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param $batch i32) (result i64)
    (local $d i32) (local $count i32) (local $n i32) (local $at i32) (local $len i32) (local $i i32)
    (local.set $d (i32.load (local.get $batch)))
    (local.set $count (i32.load offset=4 (local.get $batch)))
    (loop $packets
      (local.set $at (i32.add (local.get $d) (i32.shl (i32.add (local.get $n) (i32.const 1)) (i32.const 5))))
      (local.set $len (i32.load offset=20 (local.get $at)))
      (local.set $i (i32.const 0))
      (block $out (loop $l
        (br_if $out (i32.ge_u (local.get $i) (local.get $len)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $l)))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $packets (i32.lt_u (local.get $n) (i32.sub (local.get $count) (i32.const 1)))))
    (i64.const 0)))
