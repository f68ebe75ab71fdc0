//! IPv4 with options (RFC 791), IPv6 with extension headers (RFC 8200), the GRE checksum.

use super::{End, Packet};
use crate::contains::Part;
use crate::cover::Cover;
use flame_plan::Field;

const GRE: u8 = 47;
const AH: u8 = 51;

/// The maximum number of extension headers, the same as in the decoder.
const MAX_EXTENSIONS: usize = 16;

/// The addresses of a pseudo-header.
#[derive(Clone, Copy, Default)]
pub(super) struct Pseudo {
    /// The true sum of the addresses.
    sum: i64,
    change: i64,
    /// Their begin and end.
    addresses: (usize, usize),
}

impl Packet<'_> {
    /// Opens a checksum that covers a pseudo-header and the bytes from `start` on.
    pub(super) fn open_transport(
        &mut self,
        start: usize,
        at: usize,
        end: Option<usize>,
        proto: u8,
        optional: bool,
    ) {
        let length = end.map_or(0, |end| end.saturating_sub(start)) as i64;
        let pseudo = self.pseudo.sum + i64::from(proto) + length;
        let Pseudo { change, addresses, .. } = self.pseudo;
        self.sums.open(self.bytes, Cover { start, end, at, pseudo, change, optional, addresses });
    }

    /// Opens a checksum that covers only the bytes from `start` on.
    pub(super) fn open_plain(&mut self, start: usize, at: usize, end: Option<usize>) {
        self.sums.open(self.bytes, Cover { start, end, at, ..Cover::default() });
    }

    pub(super) fn ipv4(&mut self, at: usize) -> End {
        self.datagram_end = None;
        if !self.has(at + 20) {
            // Its checksum covers hidden bytes.
            self.blank(at + 10, (at + 12).min(self.layer_end));
            return Err(at);
        }
        let depth = self.sums.depth();
        let length = usize::from(self.byte(at) & 15) * 4;
        self.open_plain(at, at + 10, (length >= 20).then_some(at + length));
        let sum = self.sum(at + 12, at + 20);
        let change = self.field::<4>(at + 12, Field::IpSrc) + self.field::<4>(at + 16, Field::IpDst);
        self.pseudo = Pseudo { sum, change, addresses: (at + 12, at + 20) };
        let end = if length >= 20 && self.has(at + length) {
            if self.rewriter.loses(Part::IpClock) {
                self.options4(at + 20, at + length);
            }
            Ok(at + length)
        } else {
            Err(at + 20)
        };
        // Exposed bytes do not end inside the header, because understanding ends at a header that is cut
        // short.
        self.sums.close(self.bytes, depth, usize::MAX);
        let fragment = self.be16(at + 6) & 0x3fff;
        let total = usize::from(self.be16(at + 2));
        self.datagram_end = (total >= length && fragment == 0).then_some(at + total);
        let end = end?;
        if fragment & 0x1fff == 0 {
            let proto = self.byte(at + 9);
            if proto == AH {
                self.authentication(end, end + 8 + usize::from(self.byte(end + 1)) * 4);
            }
            self.gre(proto, end);
        }
        Ok(end)
    }

    pub(super) fn ipv6(&mut self, at: usize) -> End {
        self.datagram_end = None;
        if !self.has(at + 40) {
            return Err(at);
        }
        let mut src = (self.sum(at + 8, at + 24), self.ip6(at + 8, Field::IpSrc, Field::MacSrc));
        let mut dst = (self.sum(at + 24, at + 40), self.ip6(at + 24, Field::IpDst, Field::MacDst));
        let (mut next, mut place) = (self.byte(at + 6), at + 40);
        let payload = usize::from(self.be16(at + 4));
        let datagram_end = (payload != 0).then_some(at + 40 + payload);
        let (mut fragment, mut later) = (false, false);
        let mut extensions = 0;
        let changes = self.rewriter.changes_addresses();
        let pads = changes || self.rewriter.loses(Part::IpClock);
        while !later {
            let units = usize::from(self.byte(place + 1));
            let length = match next {
                0 | 43 | 60 | 135 | 139 | 140 => 8 + units * 8,
                44 => 8,
                AH => 8 + units * 4,
                _ => break,
            };
            extensions += 1;
            if extensions > MAX_EXTENSIONS || !self.has(place + length) {
                if next == AH {
                    self.datagram_end = datagram_end.filter(|_| !fragment);
                    self.authentication(place, place + length);
                }
                return Err(place);
            }
            match next {
                44 => {
                    fragment = true;
                    later = self.be16(place + 2) & 0xfff8 != 0;
                }
                0 | 60 if pads => src = self.options6(place + 2, place + length).unwrap_or(src),
                43 if changes => dst = self.routing(place, place + length).unwrap_or(dst),
                // Mobility, HIP and shim6 contain addresses.
                135 | 139 | 140 if changes => self.blank(place + 2, place + length),
                AH => {
                    self.datagram_end = datagram_end.filter(|_| !fragment);
                    self.authentication(place, place + length);
                }
                _ => {}
            }
            next = self.byte(place);
            place += length;
        }
        let addresses = (at + 8, at + 40);
        self.pseudo = Pseudo { sum: src.0 + dst.0, change: src.1 + dst.1, addresses };
        self.datagram_end = datagram_end.filter(|_| !fragment);
        if !later {
            self.gre(next, place);
        }
        Ok(place)
    }

    /// Zeroes the value of an authentication header (RFC 4302), which depends on all it protects, if any of
    /// that is changed or hidden.
    fn authentication(&mut self, at: usize, end: usize) {
        let loses = self.rewriter.loses(Part::TcpClock);
        if self.rewriter.changes_any() || loses || self.hides(self.datagram_end) {
            self.blank(at + 12, end);
        }
    }

    /// Changes routing headers: type 0 (RFC 2460), type 2 (RFC 6275), segments (RFC 8754). While segments are
    /// left, the last destination replaces the destination in pseudo-headers; its true sum and its change are
    /// returned.
    fn routing(&mut self, at: usize, end: usize) -> Option<(i64, i64)> {
        let room = (end - at - 8) / 16;
        let (count, last) = match self.byte(at + 2) {
            0 => (room, room.wrapping_sub(1)),
            2 => (room.min(1), 0),
            4 => (room.min(usize::from(self.byte(at + 4)) + 1), 0),
            _ => {
                self.blank(at + 4, end);
                return None;
            }
        };
        let left = self.byte(at + 3) != 0;
        // Reserved, except for the number of the last segment, which stays.
        self.blank(at + 4 + usize::from(self.byte(at + 2) == 4), at + 8);
        let mut destination = None;
        for i in 0..count {
            let place = at + 8 + i * 16;
            let sum = self.sum(place, place + 16);
            let change = self.sideless6(place);
            if left && i == last {
                destination = Some((sum, change));
            }
        }
        self.blank(at + 8 + count * 16, end);
        destination
    }

    /// Opens the checksum of GRE, if it has one, which covers the header and its payload (RFC 2784).
    fn gre(&mut self, proto: u8, at: usize) {
        if proto == GRE && self.byte(at) & 0x80 != 0 {
            self.open_plain(at, at + 4, self.datagram_end);
        }
    }
}
