;; Fault 2. A loop whose only exit is a trap that never occurs, in a branch that ends in one.
(module
  (func (export "f") (param i32 i32 i64) (result i64)
    (if (local.get 0) (then
      (loop $l (br_if $l (i32.or (local.get 0) (i32.const 1))))
      (unreachable)))
    (i64.const 1)))
