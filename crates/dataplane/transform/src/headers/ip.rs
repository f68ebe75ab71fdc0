//! IPv4 with options (RFC 791), IPv6 with extension headers (RFC 8200), the GRE checksum.

use super::{End, Packet};
use flame_plan::Field;

const GRE: u8 = 47;

/// IPv4 options without addresses: security (130, 133, 134), stream (136), router alert (148).
const PLAIN_OPTIONS: [u8; 5] = [130, 133, 134, 136, 148];
/// IPv6 options without addresses: padding, tunnel limit, router alert, jumbo payload.
const PLAIN_OPTIONS6: [u8; 4] = [1, 4, 5, 0xc2];
const HOME_ADDRESS: u8 = 0xc9;
/// As many as the decoder follows.
const MAX_EXTENSIONS: usize = 16;

impl Packet<'_> {
    pub(super) fn ipv4(&mut self, at: usize) -> End {
        if !self.has(at + 20) {
            return Err(at);
        }
        let depth = self.sums.depth();
        self.sums.open(self.bytes, at, at + 10, 0, false);
        self.pseudo = self.field::<4>(at + 12, Field::IpSrc) + self.field::<4>(at + 16, Field::IpDst);
        let length = usize::from(self.byte(at) & 15) * 4;
        let end = if length >= 20 && self.has(at + length) {
            if self.rewriter.changes_ip() {
                self.options4(at + 20, at + length);
            }
            Ok(at + length)
        } else {
            Err(at + 20)
        };
        self.sums.close(self.bytes, depth);
        let fragment = self.be16(at + 6) & 0x3fff;
        let carried = usize::from(self.be16(at + 2)).checked_sub(length);
        self.carried = carried.filter(|_| fragment == 0);
        let end = end?;
        if fragment & 0x1fff == 0 {
            self.gre(self.byte(at + 9), end);
        }
        Ok(end)
    }

    fn options4(&mut self, mut at: usize, end: usize) {
        while at < end {
            match (self.byte(at), usize::from(self.byte(at + 1))) {
                (1, _) => at += 1,
                (kind, n) if kind != 0 && n >= 2 && at + n <= end => {
                    if !PLAIN_OPTIONS.contains(&kind) {
                        // Record route, source routes, timestamps, traceroute, and what is unknown.
                        self.blank(at + 2, at + n);
                    }
                    at += n;
                }
                _ => {
                    self.blank(at, end);
                    return;
                }
            }
        }
    }

    pub(super) fn ipv6(&mut self, at: usize) -> End {
        if !self.has(at + 40) {
            return Err(at);
        }
        let mut src = self.field::<16>(at + 8, Field::IpSrc);
        let mut dst = self.field::<16>(at + 24, Field::IpDst);
        let (mut next, mut place) = (self.byte(at + 6), at + 40);
        let payload = usize::from(self.be16(at + 4));
        let (mut fragment, mut later) = (false, false);
        let mut extensions = 0;
        while !later {
            let units = usize::from(self.byte(place + 1));
            let length = match next {
                0 | 43 | 60 | 135 | 139 | 140 => 8 + units * 8,
                44 => 8,
                51 => 8 + units * 4,
                _ => break,
            };
            extensions += 1;
            if extensions > MAX_EXTENSIONS || !self.has(place + length) {
                return Err(place);
            }
            match next {
                44 => {
                    fragment = true;
                    later = self.be16(place + 2) & 0xfff8 != 0;
                }
                0 | 60 if self.rewriter.changes_ip() => self.options6(place + 2, place + length, &mut src),
                43 if self.rewriter.changes_ip() => self.routing(place, place + length, &mut dst),
                // Mobility, HIP and shim6 are about addresses.
                135 | 139 | 140 if self.rewriter.changes_ip() => self.blank(place + 2, place + length),
                _ => {}
            }
            next = self.byte(place);
            place += length;
        }
        self.pseudo = src + dst;
        self.carried = (at + 40 + payload).checked_sub(place).filter(|_| !fragment && payload != 0);
        if !later {
            self.gre(next, place);
        }
        Ok(place)
    }

    /// Hop-by-hop and destination options. A home address (RFC 6275) stands for the source in
    /// pseudo-headers.
    fn options6(&mut self, mut at: usize, end: usize, src: &mut i64) {
        while at < end {
            let (kind, n) = (self.byte(at), usize::from(self.byte(at + 1)));
            if kind == 0 {
                at += 1;
                continue;
            }
            if at + 2 + n > end {
                self.blank(at, end);
                return;
            }
            if kind == HOME_ADDRESS && n == 16 {
                *src = self.field::<16>(at + 2, Field::IpSrc);
            } else if !PLAIN_OPTIONS6.contains(&kind) {
                self.blank(at + 2, at + 2 + n);
            }
            at += 2 + n;
        }
    }

    /// Routing headers: type 0 (RFC 2460), type 2 (RFC 6275), segments (RFC 8754). While segments are
    /// left, the last destination stands for the destination in pseudo-headers.
    fn routing(&mut self, at: usize, end: usize, dst: &mut i64) {
        let room = (end - at - 8) / 16;
        let (count, last) = match self.byte(at + 2) {
            0 => (room, room.wrapping_sub(1)),
            2 => (room.min(1), 0),
            4 => (room.min(usize::from(self.byte(at + 4)) + 1), 0),
            _ => {
                self.blank(at + 4, end);
                return;
            }
        };
        let left = self.byte(at + 3) != 0;
        for i in 0..count {
            let change = self.sideless::<16>(at + 8 + i * 16);
            if left && i == last {
                *dst = change;
            }
        }
        self.blank(at + 8 + count * 16, end);
    }

    /// GRE may have a checksum over itself and all it carries (RFC 2784).
    fn gre(&mut self, proto: u8, at: usize) {
        if proto == GRE && self.byte(at) & 0x80 != 0 {
            self.sums.open(self.bytes, at, at + 4, 0, false);
        }
    }
}
