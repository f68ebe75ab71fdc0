;; A copy of a length that is read from memory.
(module (import "flame" "packet" (func $packet (param i32))) (memory (export "memory") 1)
  (func (export "flame_batch") (param $b i32) (result i64)
    (local $i i32) (local $k i32) (local $n i32) (local $count i32)
    (local.set $count (i32.load offset=4 (local.get $b)))
    (loop $packets
      (call $packet (local.get $i))
      (memory.copy (i32.const 0) (i32.const 4096) (i32.load (i32.const 8)))
      (br_if $packets (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $count))))
    (i64.const 0))
  (@custom "flame.manifest" "abi = 1\0aname = \22m\22\0aversion = \221\22\0adescription = \22d\22"))
