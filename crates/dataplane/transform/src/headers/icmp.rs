//! ICMP (RFC 792), ICMPv6 (RFC 4443), neighbour discovery (RFC 4861), listener discovery (RFC 2710).
//!
//! The packet that an error quotes is a separate layer. The bytes after the quoted headers are not shown,
//! because extensions (RFC 4884) hold addresses of interfaces.

use super::{End, Packet};
use crate::contains::{Part, Secrets, twin};
use flame_plan::Field;

impl Packet<'_> {
    pub(super) fn icmp(&mut self, at: usize) -> End {
        self.open_plain(at, at + 2, self.datagram_end);
        if !self.has(at + 8) {
            return Err(at);
        }
        match self.byte(at) {
            0 | 8 => self.payload = self.is_payload(at + 8, self.datagram_end),
            // Timestamp: three of them.
            13 | 14 => {
                self.lose(Part::IcmpClock, at + 8, (at + 20).min(self.layer_end))?;
                self.payload = self.is_payload(at + 8, self.datagram_end);
            }
            // The gateway of a redirect.
            5 => {
                self.field::<4>(at + 4, self.any_ip());
            }
            3 | 4 | 11 | 12 => {}
            _ => return Err(at + 8),
        }
        Ok(at + 8)
    }

    pub(super) fn icmpv6(&mut self, at: usize, end: usize) -> End {
        self.open_transport(at, at + 2, self.datagram_end, 58, false);
        if !self.has(at + 8) {
            return Err(at);
        }
        match self.byte(at) {
            128 | 129 => self.payload = self.is_payload(at + 8, self.datagram_end),
            1..=4 => {}
            133 => return self.neighbour_options(at + 8, end),
            134 => return self.neighbour_options(at + 16, end),
            135 | 136 => return self.target(at + 8).and_then(|at| self.neighbour_options(at, end)),
            137 => {
                let behind = self.target(at + 8).and_then(|at| self.target(at));
                return behind.and_then(|at| self.neighbour_options(at, end));
            }
            130..=132 => return Err(self.target(at + 8).unwrap_or(at + 8)),
            _ => return Err(at + 8),
        }
        Ok(at + 8)
    }

    /// Changes an address of 16 bytes.
    fn target(&mut self, at: usize) -> End {
        if !self.has(at + 16) {
            return Err(at);
        }
        self.sideless6(at);
        Ok(at + 16)
    }

    /// Changes options of neighbour discovery, up to the first that is not known.
    fn neighbour_options(&mut self, mut at: usize, end: usize) -> End {
        let end = end.min(self.bytes.len());
        while at + 8 <= end {
            let n = usize::from(self.byte(at + 1)) * 8;
            if n == 0 || at + n > end {
                break;
            }
            match (self.byte(at), n) {
                (1, 8) => self.mac(at + 2, Field::MacSrc, twin(Field::MacSrc)),
                (2, 8) => self.mac(at + 2, self.any_mac(), Secrets::IP),
                (3, 32) => {
                    self.sideless6(at + 16);
                }
                // Maximum transmission unit, nonce.
                (5 | 14, 8) => {}
                // Timestamp, of which six bytes are reserved.
                (13, 16) if self.rewriter.loses(Part::IcmpClock) => self.blank(at + 2, at + 16),
                _ => break,
            }
            at += n;
        }
        Err(at.min(end))
    }
}
