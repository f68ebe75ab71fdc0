//! Addresses that mean the same everywhere, and that a publisher of a capture may keep.

use crate::Rewriter;
use crate::contains::NEIGHBOURS;

/// What a publisher keeps of addresses that are changed. A view keeps none of it, since it tells the parts
/// that hide: that an address is a group's, and addresses of hosts on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The bit of a MAC address that states a group, and the broadcast address.
    pub groups: bool,
    /// Addresses of IP that are multicast, broadcast, link-local, loopback, unspecified or for documentation,
    /// and MAC addresses of such groups.
    pub special: bool,
}

/// Special ranges of IPv4, with the lengths of their prefixes: unspecified, loopback, link-local (RFC 3927),
/// documentation (RFC 5737), multicast (RFC 5771), broadcast.
pub(crate) const SPECIAL4: [(u32, u32); 8] = [
    (0x0000_0000, 32),
    (0x7f00_0000, 8),
    (0xa9fe_0000, 16),
    (0xc000_0200, 24),
    (0xc633_6400, 24),
    (0xcb00_7100, 24),
    (0xe000_0000, 4),
    (0xffff_ffff, 32),
];

/// Special ranges of IPv6 likewise: unspecified, loopback, documentation (RFC 3849, RFC 9637), link-local,
/// and multicast but groups that contain prefixes of networks (RFC 3306).
pub(crate) const SPECIAL6: [(u128, u32); 6] = [
    (0, 128),
    (1, 128),
    (0x2001_0db8 << 96, 32),
    (0x3fff << 112, 20),
    (0xfe80 << 112, 10),
    (0xff00 << 112, 11),
];

/// Returns the number of leading bits of an address, of the `width` of its type, that are as they are where
/// special ranges are kept and prefixes preserved: an address that shares bits with a special range shares
/// them with its pseudonym's, and the next bit differs in both.
pub(crate) fn kept4(address: u32) -> u32 {
    let kept = |(range, bits): (u32, u32)| kept_by((address ^ range).leading_zeros(), bits, 32);
    SPECIAL4.into_iter().map(kept).max().unwrap_or(0)
}

/// Returns the same for IPv6.
pub(crate) fn kept6(address: u128) -> u32 {
    let kept = |(range, bits): (u128, u32)| kept_by((address ^ range).leading_zeros(), bits, 128);
    SPECIAL6.into_iter().map(kept).max().unwrap_or(0)
}

fn kept_by(shared: u32, bits: u32, width: u32) -> u32 {
    if shared >= bits { width } else { shared + 1 }
}

impl Rewriter {
    /// Keeps parts of addresses that would be changed.
    #[must_use]
    pub fn keeping(mut self, kept: Kept) -> Self {
        self.kept = kept;
        if let Some(prefix) = self.prefix.take() {
            self.prefix = Some(prefix.keeping(kept.special));
        }
        self
    }

    /// Returns whether an address of IPv4 is kept.
    #[inline]
    pub(crate) fn keeps4(&self, address: u32) -> bool {
        self.kept.special && kept4(address) == 32
    }

    /// Returns whether an address of IPv6 is kept, except for a MAC address in it.
    #[inline]
    pub(crate) fn keeps6(&self, address: [u8; 16]) -> bool {
        self.kept.special && kept6(u128::from_be_bytes(address)) == 128
    }

    /// Returns whether the address of a group is kept. Groups of neighbours contain a part of an address.
    pub(crate) fn keeps_group(&self, mac: [u8; 6]) -> bool {
        let is_group = match mac {
            [0x33, 0x33, third, ..] => third != NEIGHBOURS[12],
            [1, 0, 0x5e, bits, ..] => bits < 0x80,
            _ => false,
        };
        self.kept.special && is_group
    }

    /// Puts the bits of a group into the new value of a MAC address.
    #[inline]
    pub(crate) fn with_group(&self, old: [u8; 6], mut new: [u8; 6]) -> [u8; 6] {
        if !self.kept.groups {
            return new;
        }
        if old == [0xff; 6] {
            return old;
        }
        new[0] = new[0] & !1 | old[0] & 1;
        new
    }
}
