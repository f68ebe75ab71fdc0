//! zero: sets every bit of a field to 0.
//!
//! Usage:    --transform FIELD=zero
//!           FIELD is mac, ip or port, or one side of it: mac.src, ip.dst, port.src
//! Expects:  nothing; it needs no key.
//! Gives:    00:00:00:00:00:00, 0.0.0.0, :: or port 0: hosts become indistinguishable.
//!           Checksums are recomputed, or zero if they cover bytes that are not shown.
//! Example:  flame run flow -r FILE --transform mac=zero
//! Related:  truncate, hash, prefix

pub(super) fn apply(value: &mut [u8]) {
    value.fill(0);
}
