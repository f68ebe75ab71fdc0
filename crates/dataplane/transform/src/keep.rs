//! keep: shows a field as it is.
//!
//! Usage:    --transform FIELD=keep
//!           FIELD is mac, ip or port, or one side of it: mac.src, ip.dst, port.src
//! Expects:  nothing; it needs no key. A field without a transform is kept.
//! Gives:    the true value. Of two transforms of a field in one list, the later applies. Under a policy, a
//!           field that it or a credential transforms stays transformed.
//!           Checksums are recomputed if other fields change, or zero if they cover bytes that are not shown.
//! Example:  flame run flow -r FILE --transform ip=zero,ip.dst=keep
//! Related:  zero, truncate, hash, prefix
