//! Internet checksums (RFC 1071) of packets that change, nested.
//!
//! A checksum depends on all the bytes it covers, so it may be shown only if all of them are shown. It is
//! then adjusted to the shown bytes if it was right for the true packet; otherwise it becomes zero: a wrong
//! one can hold a sum of true addresses, such as a sum that offloading leaves to the network card.
//!
//! [`Sums`] is the stack of checksums open at one point of a packet, outermost first, for example the TCP
//! checksum inside VXLAN inside UDP. Changing a checksum also changes the checksums around it.

use crate::cover::{Cover, moved};
use crate::hidden::Hidden;

/// The maximum number of open checksums: the decoder follows five IP headers, each with its own, its
/// payload's, and GRE's.
const MAX_OPEN: usize = 16;

#[derive(Clone, Copy, Default)]
struct Sum {
    cover: Cover,
    /// The sum of the changes in the bytes covered, relative to `start`.
    change: i64,
    /// Whether any of those bytes was replaced.
    is_touched: bool,
}

#[derive(Default)]
pub(crate) struct Sums {
    open: [Sum; MAX_OPEN],
    len: usize,
    /// Whether a wrong checksum stays as long as no byte that it covers is replaced.
    keeps_wrong: bool,
    /// The list in which bytes that change are noted, if anybody asks.
    pub(crate) hidden: Option<Hidden>,
}

impl Sums {
    pub(crate) fn new(keeps_wrong: bool, hidden: Option<Hidden>) -> Self {
        Self { keeps_wrong, hidden, ..Self::default() }
    }

    /// Opens a checksum, before any byte that it covers changes. A checksum that cannot be tracked becomes
    /// zero at once.
    pub(crate) fn open(&mut self, bytes: &mut [u8], cover: Cover) {
        if cover.at + 2 > bytes.len() {
            // Half a checksum reveals as much about the bytes it covers.
            if cover.at < bytes.len() {
                self.replace(bytes, cover.at, &[0]);
            }
            return;
        }
        if self.len == MAX_OPEN {
            self.replace(bytes, cover.at, &[0; 2]);
            return;
        }
        self.open[self.len] = Sum { cover, change: 0, is_touched: false };
        self.len += 1;
    }

    pub(crate) fn depth(&self) -> usize {
        self.len
    }

    /// Replaces bytes and returns the change of their sum, with the first byte as the high byte of its word.
    #[inline]
    pub(crate) fn replace(&mut self, bytes: &mut [u8], at: usize, new: &[u8]) -> i64 {
        if let Some(hidden) = &mut self.hidden {
            hidden.add(at..at + new.len());
        }
        let old = &mut bytes[at..at + new.len()];
        let change = sum(new) - sum(old);
        old.copy_from_slice(new);
        for s in &mut self.open[..self.len] {
            // 256 * 256 = 1 (mod 65535): shifting by a byte is multiplying by 256.
            s.change += if (at - s.cover.start).is_multiple_of(2) { change } else { change * 256 };
            s.is_touched = true;
        }
        change
    }

    /// Closes the innermost checksums until `depth` are open, and writes each. `shown` bytes are shown.
    pub(crate) fn close(&mut self, bytes: &mut [u8], depth: usize, shown: usize) {
        while self.len > depth {
            self.len -= 1;
            let Sum { cover, change, is_touched } = self.open[self.len];
            let old = u16::from_be_bytes([bytes[cover.at], bytes[cover.at + 1]]);
            let all = cover.end.filter(|end| *end <= shown.min(bytes.len()) && *end >= cover.at + 2);
            if let Some(hidden) = self.hidden.as_mut().filter(|_| all.is_none() || is_touched) {
                hidden.add_checksum(cover);
            }
            let new = match all {
                _ if cover.optional && old == 0 => continue,
                None => 0,
                Some(_) if !is_touched && self.keeps_wrong => continue,
                Some(end) => {
                    let was = sum(&bytes[cover.start..end]) + cover.pseudo - change;
                    let right = was.rem_euclid(0xffff) == 0;
                    if right { moved(old, change + cover.change, cover.optional) } else { 0 }
                }
            };
            self.replace(bytes, cover.at, &new.to_be_bytes());
        }
    }
}

/// Returns the sum of the 16-bit words, modulo 65535 (where 65536 is 1, so words of 32 bits may be added).
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> i64 {
    let mut words = bytes.chunks_exact(4);
    let whole: u64 = words.by_ref().map(|w| u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]))).sum();
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    (whole % 0xffff) as i64 + i64::from(u32::from_be_bytes(last))
}
