//! The effects of integer operations on intervals: one small function per rule, with its statement.
//!
//! In every statement `x` lies in `a = (low, high)`, `y` in `b`, all unsigned; the result lies in the
//! returned interval. The rules hold for 32 and 64 bits. `tests/rules.rs` checks each for all values of four
//! bits, `prove` proves them by z3.

/// An unsigned interval, ends included.
pub type Interval = (u64, u64);

/// Returns bounds of `x & y`, which is at most either.
pub fn and(a: Interval, b: Interval) -> Interval {
    (0, a.1.min(b.1))
}

/// Returns bounds of `x | y`, which is at least either, and has no bit above the highest of both.
pub fn or(a: Interval, b: Interval) -> Interval {
    (a.0.max(b.0), ones(a.1 | b.1))
}

/// Returns bounds of `x ^ y`, which has no bit above the highest of both.
pub fn xor(a: Interval, b: Interval) -> Interval {
    (0, ones(a.1 | b.1))
}

/// Returns the least `2^n - 1` that is at least `x`.
pub fn ones(x: u64) -> u64 {
    if x == 0 { 0 } else { u64::MAX >> x.leading_zeros() }
}

/// Returns bounds of `x / y` for a `y` above 0; division by 0 traps.
pub fn divide(a: Interval, b: Interval) -> Interval {
    (a.0 / b.1.max(1), a.1 / b.0.max(1))
}

/// Returns bounds of `x % y` for a `y` above 0: below `y` and at most `x`; if `x < y` always, those of `x`.
pub fn remainder(a: Interval, b: Interval) -> Interval {
    if a.1 < b.0 { a } else { (0, a.1.min(b.1.saturating_sub(1))) }
}

/// Returns bounds of `x >> n` for a known `n` below the width.
pub fn shift_right(a: Interval, n: u32) -> Interval {
    (a.0 >> n, a.1 >> n)
}

/// Returns bounds of `x >> y` for any `y`: it is at most `x`.
pub fn shift_right_any(a: Interval) -> Interval {
    (0, a.1)
}

/// Returns bounds of `x * y` if no product of the two intervals exceeds `top`; `None` if one may.
pub fn multiply(a: Interval, b: Interval, top: u64) -> Option<Interval> {
    let high = a.1.checked_mul(b.1)?;
    (high <= top).then_some((a.0 * b.0, high))
}

/// Returns bounds of `clz`, `ctz` and `popcnt`, which count bits.
pub fn count_bits(bits: u8) -> Interval {
    (0, bits.into())
}

/// Returns bounds of `x` sign-extended from `from` bits: it is `x` if its top bit is clear.
pub fn sign_extend(a: Interval, from: u8) -> Option<Interval> {
    (a.1 < 1 << (from - 1)).then_some(a)
}

/// Returns whether every value has a clear top bit, so that signed and unsigned order agree.
pub fn is_nonnegative(a: Interval, bits: u8) -> bool {
    a.1 < 1 << (bits - 1)
}
