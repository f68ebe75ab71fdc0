//! Internet checksums that follow changes (RFC 1624), nested.
//!
//! A change moves every checksum that covers it, and a checksum that moves is itself a change to
//! those around it: the TCP checksum inside VXLAN inside UDP. [`Sums`] is the stack of checksums
//! open at one point of a packet, outermost first. Only differences are used: bytes that are not
//! exposed are never needed, and a checksum that was wrong stays wrong by the same difference.
//!
//! What this reveals: the difference of a checksum is that of the fields, which the reader of the
//! transformed packet could know anyway except for 16 bits about the original address.

/// Checksums open at once: the decoder follows five IP headers, each with one checksum behind it, and
/// the innermost IPv4 header has its own.
const MAX_OPEN: usize = 8;

#[derive(Clone, Copy, Default)]
struct Sum {
    /// Offset of the first byte it covers; tells which bytes are high in their word.
    start: usize,
    /// Offset of the checksum.
    at: usize,
    /// Sum of the changes as seen from `start`, modulo nothing yet.
    change: i64,
    /// 0 means that there is none (RFC 768).
    optional: bool,
}

#[derive(Default)]
pub(crate) struct Sums {
    open: [Sum; MAX_OPEN],
    len: usize,
}

impl Sums {
    /// Opens a checksum at `at` over bytes from `start` on; `change` is what changed already in what
    /// it covers (its pseudo-header). Without room or without the two bytes, nothing is opened.
    pub(crate) fn open(&mut self, bytes: &[u8], start: usize, at: usize, change: i64, optional: bool) {
        if self.len < MAX_OPEN && at + 2 <= bytes.len() {
            self.open[self.len] = Sum { start, at, change, optional };
            self.len += 1;
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.len
    }

    /// Replaces bytes and returns the change of their sum, the first byte being high in its word.
    #[inline]
    pub(crate) fn replace(&mut self, bytes: &mut [u8], at: usize, new: &[u8]) -> i64 {
        let old = &mut bytes[at..at + new.len()];
        let change = sum(new) - sum(old);
        old.copy_from_slice(new);
        for s in &mut self.open[..self.len] {
            // 256 * 256 = 1 (mod 65535): shifting by a byte is multiplying by 256.
            s.change += if (at - s.start).is_multiple_of(2) { change } else { change * 256 };
        }
        change
    }

    /// Closes the innermost checksums until `depth` are open, writing each.
    pub(crate) fn close(&mut self, bytes: &mut [u8], depth: usize) {
        while self.len > depth {
            self.len -= 1;
            let s = self.open[self.len];
            let old = u16::from_be_bytes([bytes[s.at], bytes[s.at + 1]]);
            let Some(new) = moved(old, s.change, s.optional) else { continue };
            self.replace(bytes, s.at, &new.to_be_bytes());
        }
    }
}

/// The checksum `old` after a change of what it covers, if that changes it.
#[inline]
pub(crate) fn moved(old: u16, change: i64, optional: bool) -> Option<u16> {
    let change = change.rem_euclid(0xffff);
    if change == 0 || (optional && old == 0) {
        return None;
    }
    // HC' = ~(~HC + ~m + m'), equation 3. A sum of anything but zeros is never 0.
    let total = match (i64::from(!old) + change) % 0xffff {
        0 => 0xffff,
        n => n as u16,
    };
    Some(match !total {
        0 if optional => 0xffff,
        n => n,
    })
}

#[inline]
pub(crate) fn sum(bytes: &[u8]) -> i64 {
    let words = bytes.chunks(2);
    words.map(|w| i64::from(w[0]) << 8 | w.get(1).map_or(0, |b| i64::from(*b))).sum()
}
