//! The cheapest check of a rule: TCP flags, and contents at a fixed offset in the first 16 bytes.

use crate::rule::bits::Mode;
use crate::rule::content::Content;
use crate::rule::{Check, Dialect, Rule, Step};

const HEAD: usize = 16;

/// The part of a packet that all gates examine.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u64; 2],
    len: usize,
    tcp_flags: u8,
}

impl Head {
    #[inline]
    pub fn new(payload: &[u8], tcp_flags: u8) -> Self {
        let head = payload.first_chunk::<HEAD>().copied().unwrap_or_else(|| {
            let mut short = [0; HEAD];
            short[..payload.len()].copy_from_slice(payload);
            short
        });
        Self { bytes: words(head), len: payload.len(), tcp_flags }
    }
}

fn words(bytes: [u8; HEAD]) -> [u64; 2] {
    let all = u128::from_le_bytes(bytes);
    [all as u64, (all >> 64) as u64]
}

/// A filter that passes a packet unless the rule cannot match it.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    mask: [u64; 2],
    value: [u64; 2],
    len: usize,
    flags: (u8, u8),
    /// A mask of the bytes that are compared.
    pub bytes: u32,
}

/// Returns the offset at which the whole content must lie, if there is only one.
fn fixed(c: &Content) -> Option<usize> {
    let window = c.window;
    let one = window.len.is_some_and(|n| n.stated() == Some(c.bytes.len() as i64));
    let from = usize::try_from(window.from.stated()?).ok()?;
    (one && !window.relative).then_some(from)
}

/// Returns whether a gate checks this content, so that no other search for it is needed.
pub fn holds(c: &Content) -> bool {
    !c.not && fixed(c).is_some_and(|at| at + c.bytes.len() <= HEAD)
}

impl Gate {
    pub fn new(rule: &Rule, dialect: Dialect) -> Self {
        // In Suricata, only packets with a payload are searched for contents and the like, negated ones too.
        let asks = dialect == Dialect::Suricata && rule.payload_steps().next().is_some();
        let (mut mask, mut value, mut len) = ([0u8; HEAD], [0u8; HEAD], usize::from(asks));
        for step in rule.payload_steps() {
            let Step::Content(c) = step else { continue };
            let Some(at) = fixed(c).filter(|_| holds(c)) else { continue };
            len = len.max(at + c.bytes.len());
            for (i, byte) in (at..).zip(&c.bytes) {
                // In ASCII, the case of a letter is one bit.
                let bits = if c.nocase && byte.is_ascii_alphabetic() { 0xdf } else { 0xff };
                // If two contents contradict each other, the rule's own check finds that neither can match.
                if mask[i] == 0 {
                    (mask[i], value[i]) = (bits, byte & bits);
                }
            }
        }
        let flags = rule.checks.iter().find_map(|check| match check {
            Check::Flags(b) if b.mode == Mode::Exactly => Some((b.of, b.bits & b.of)),
            Check::Flags(b) if b.mode == Mode::All => Some((b.bits & b.of, b.bits & b.of)),
            _ => None,
        });
        let bytes = mask.iter().filter(|m| **m != 0).count() as u32;
        Self { mask: words(mask), value: words(value), len, flags: flags.unwrap_or((0, 0)), bytes }
    }

    #[inline]
    pub fn passes(&self, head: &Head) -> bool {
        let differ =
            (head.bytes[0] & self.mask[0] ^ self.value[0]) | (head.bytes[1] & self.mask[1] ^ self.value[1]);
        differ == 0 && head.len >= self.len && head.tcp_flags & self.flags.0 == self.flags.1
    }
}
