//! Numbers in the payload: what `byte_test`, `byte_jump`, `byte_extract` and `byte_math` read and compute.

use super::regex::Caches;
use super::work::Work;
use crate::rule::Dialect;
use crate::rule::bytes::{Compare, Field, From, Jump, Math, Operator};
use crate::rule::number::{MAX_VARS, Num};

/// The state of a search in one packet for the steps of one rule.
pub struct Search<'a> {
    pub payload: &'a [u8],
    pub dialect: Dialect,
    pub vars: &'a mut [u64; MAX_VARS],
    pub caches: &'a mut Caches,
    pub work: &'a mut Work,
}

impl Search<'_> {
    /// Returns a number that the rule states, or the value of a variable.
    pub fn value(&self, n: Num) -> i64 {
        match n {
            Num::Is(n) => n,
            Num::Var(i) => i64::try_from(self.vars[usize::from(i)]).unwrap_or(i64::MAX),
        }
    }

    /// Returns a number that is not negative, of any size.
    pub fn unsigned(&self, n: Num) -> u64 {
        match n {
            Num::Is(n) => n.max(0) as u64,
            Num::Var(i) => self.vars[usize::from(i)],
        }
    }
}

/// Returns the number at a field, and the offset after the bytes that were read.
pub fn read(field: &Field, cursor: usize, search: &Search<'_>) -> Option<(u64, usize)> {
    let base = if field.relative { cursor as i64 } else { 0 };
    let at = usize::try_from(base.checked_add(search.value(field.at))?).ok()?;
    let most = if field.base.is_some() { 23 } else { 8 };
    let len = usize::try_from(search.value(field.len)).ok().filter(|n| *n <= most)?;
    let bytes = search.payload.get(at..at.checked_add(len)?)?;
    let (value, used) = match field.base {
        Some(base) => digits(bytes, base)?,
        None if field.little => (bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)), len),
        None => (bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)), len),
    };
    let value = field.mask.map_or(value, |(mask, shift)| (value & mask) >> shift);
    Some((value, at + used))
}

/// Returns the number that a text stands for, as strtoull of C reads it, and how many bytes were read: after
/// white space and a sign. A number after `-` is subtracted from 2^64.
fn digits(bytes: &[u8], base: u32) -> Option<(u64, usize)> {
    let is_space = |b: &&u8| b.is_ascii_whitespace() || **b == 0x0b;
    let mut at = bytes.iter().take_while(is_space).count();
    let sign = bytes.get(at).filter(|b| matches!(b, b'+' | b'-'));
    at += usize::from(sign.is_some());
    let prefix = |i: usize| matches!(bytes.get(i..i + 2), Some([b'0', b'x' | b'X']));
    let digit = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(base));
    if base == 16 && prefix(at) && digit(at + 2).is_some() {
        at += 2;
    }
    let start = at;
    let mut value = 0u64;
    while let Some(digit) = digit(at) {
        value = value.checked_mul(base.into())?.checked_add(digit.into())?;
        at += 1;
    }
    let value = if sign == Some(&b'-') { value.wrapping_neg() } else { value };
    (at > start).then_some((value, at))
}

pub fn compare(how: Compare, found: u64, value: u64) -> bool {
    match how {
        Compare::Less => found < value,
        Compare::LessEqual => found <= value,
        Compare::Greater => found > value,
        Compare::GreaterEqual => found >= value,
        Compare::Equal => found == value,
        Compare::And => found & value != 0,
        Compare::Xor => found ^ value != 0,
    }
}

/// Returns the new cursor, if it lies in the payload, or in Suricata's dialect at its end. One before the
/// payload becomes its start.
pub fn jump(jump: &Jump, cursor: usize, search: &Search<'_>) -> Option<usize> {
    let (found, end) = read(&jump.field, cursor, search)?;
    let found = found.wrapping_mul(jump.multiplier);
    let found = found.checked_next_multiple_of(jump.align).unwrap_or(found);
    let by = (found as i64).wrapping_add(search.value(jump.post));
    let len = search.payload.len() as i64;
    let from = match jump.from {
        From::Here => end as i64,
        From::Beginning => 0,
        From::End => len,
    };
    let to = from.checked_add(by)?.max(0);
    let last = len - i64::from(search.dialect == Dialect::Snort);
    (to <= last).then_some(to as usize)
}

/// Returns the result of `byte_math`.
pub fn change(math: &Math, found: u64, right: u64) -> Option<u64> {
    let shift = u32::try_from(right).ok();
    let value = match math.operator {
        Operator::Add => found.wrapping_add(right),
        Operator::Subtract => found.wrapping_sub(right),
        Operator::Multiply => found.wrapping_mul(right),
        Operator::Divide => found.checked_div(right)?,
        Operator::Left => shift.and_then(|n| found.checked_shl(n)).unwrap_or(0),
        Operator::Right => shift.and_then(|n| found.checked_shr(n)).unwrap_or(0),
    };
    Some(math.field.mask.map_or(value, |(mask, shift)| (value & mask) >> shift))
}
