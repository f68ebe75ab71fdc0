//! TCP, UDP, SCTP: ports and checksums.

use super::{End, Packet};
use crate::crc;
use flame_plan::Field;

/// Ports whose payload is a tunnel: it is never shown as mere payload.
pub(super) const TUNNELS: [u16; 3] = [4789, 8472, 6081];

/// The option of Multipath TCP, and its subtype that announces an address (RFC 8684, 3.4.1).
pub(super) const MPTCP: u8 = 30;
const ADD_ADDR: u8 = 3;

impl Packet<'_> {
    fn ports(&mut self, at: usize) {
        self.field::<2>(at, Field::PortSrc);
        self.field::<2>(at + 2, Field::PortDst);
    }

    pub(super) fn tcp(&mut self, at: usize) -> End {
        if !self.has(at + 4) {
            return Err(at);
        }
        self.sums.open(self.bytes, at, at + 16, self.pseudo, false);
        self.ports(at);
        let end = at + usize::from(self.byte(at + 12) >> 4) * 4;
        if !self.has(at + 20) || end < at + 20 || !self.has(end) {
            // Ports and sequence number: what an ICMP error quotes.
            return Err(at + 8);
        }
        if self.rewriter.changes_ip() {
            self.tcp_options(at + 20, end);
        }
        self.payload = true;
        Ok(end)
    }

    fn tcp_options(&mut self, mut at: usize, end: usize) {
        while at < end {
            match (self.byte(at), usize::from(self.byte(at + 1))) {
                (1, _) => at += 1,
                (kind, n) if kind != 0 && n >= 2 && at + n <= end => {
                    if kind == MPTCP && self.byte(at + 2) >> 4 == ADD_ADDR {
                        self.blank(at + 3, at + n);
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

    pub(super) fn udp(&mut self, at: usize) -> End {
        if !self.has(at + 4) {
            return Err(at);
        }
        self.payload = !TUNNELS.contains(&self.be16(at + 2));
        self.sums.open(self.bytes, at, at + 6, self.pseudo, true);
        self.ports(at);
        if self.has(at + 8) { Ok(at + 8) } else { Err(at + 4) }
    }

    /// Chunks are not shown: INIT lists addresses.
    pub(super) fn sctp(&mut self, at: usize) -> End {
        let Some(old) = self.bytes.get(at..at + 4) else { return Err(at) };
        let mut difference = [old[0], old[1], old[2], old[3]];
        self.ports(at);
        if !self.has(at + 12) {
            return Err(at + 4);
        }
        for (d, new) in difference.iter_mut().zip(&self.bytes[at..]) {
            *d ^= new;
        }
        if let (true, Some(length)) = (difference != [0; 4], self.carried.filter(|n| *n >= 12)) {
            let change = crc::change(&difference, length - 4).to_le_bytes();
            let mut sum = [0; 4];
            for (i, byte) in sum.iter_mut().enumerate() {
                *byte = self.byte(at + 8 + i) ^ change[i];
            }
            self.sums.replace(self.bytes, at + 8, &sum);
        }
        Err(at + 12)
    }
}
