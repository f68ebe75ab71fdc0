;; Fault 3. x + (2^32 - 256) does not wrap, and is extended without its sign; 256 more make it
;; 2^32 + x, not x.
(module
  (func (export "f") (param $x i32) (param i32 i64) (result i64) (local $i i64) (local $end i64)
    (local.set $end (i64.add (i64.const 256)
      (i64.extend_i32_u (i32.add (i32.and (local.get $x) (i32.const 255)) (i32.const -256)))))
    (loop $l
      (local.set $i (i64.add (local.get $i) (i64.const 16)))
      (br_if $l (i64.lt_u (local.get $i) (local.get $end))))
    (i64.const 0)))
