;; Grows until it is refused, then gives up: the limit answers -1, it does not kill the host.
;; stage: run
;; expect: unreachable
(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (loop $l (br_if $l (i32.ne (memory.grow (i32.const 256)) (i32.const -1)))) (unreachable))
)
