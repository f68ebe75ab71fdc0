;; A free list is searched in a function that asks for memory.
(module (memory 1)
  (func $allocate (param $size i32) (result i32) (local $at i32)
    (block $found
      (loop $l
        (local.set $at (i32.load (local.get $at)))
        (br_if $found (i32.eqz (local.get $at)))
        (br_if $l (i32.lt_u (i32.load offset=4 (local.get $at)) (local.get $size)))
        (return (local.get $at))))
    (i32.shl (memory.grow (i32.const 1)) (i32.const 16)))
  (func (export "f") (param $a i32) (local $i i32) (local $n i32)
    (drop (call $allocate (local.get $a)))))
