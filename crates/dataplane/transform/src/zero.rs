//! `zero`: every bit becomes 0.

pub(super) fn apply(value: &mut [u8]) {
    value.fill(0);
}
