//! The bytes that a checksum covers, and its change with them.

/// The bytes that a checksum covers, and its place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cover {
    /// The offset of the first byte covered. It determines which bytes are high in their word.
    pub start: usize,
    /// The offset of the first byte after those covered, as stated by the packet, or `None` if that is not
    /// known.
    pub end: Option<usize>,
    /// The offset of the checksum.
    pub at: usize,
    /// The sum of the true pseudo-header, without the change of the addresses.
    pub pseudo: i64,
    /// The change of the pseudo-header's sum.
    pub change: i64,
    /// Whether 0 means that there is no checksum (RFC 768).
    pub optional: bool,
    /// The begin and end of the addresses of the pseudo-header.
    pub addresses: (usize, usize),
}

/// Returns the checksum `old` after a change of the bytes it covers (RFC 1624).
#[inline]
pub(crate) fn moved(old: u16, change: i64, optional: bool) -> u16 {
    let change = change.rem_euclid(0xffff);
    if change == 0 {
        return old;
    }
    // HC' = ~(~HC + ~m + m'), equation 3. A sum of anything but zeros is never 0.
    let total = match (i64::from(!old) + change) % 0xffff {
        0 => 0xffff,
        n => n as u16,
    };
    match !total {
        0 if optional => 0xffff,
        n => n,
    }
}
