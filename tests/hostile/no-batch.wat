;; Lacks the one required export.
;; stage: install
;; expect: flame_batch
(module
  (memory (export "memory") 1)

)
