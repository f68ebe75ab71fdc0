//! TCP, UDP, SCTP and others: ports and checksums.

use super::{End, Packet, look, options};
use crate::contains::Part;
use flame_decode::TUNNEL_PORTS;
use flame_plan::Field;

impl Packet<'_> {
    fn ports(&mut self, at: usize) {
        self.field::<2>(at, Field::PortSrc);
        self.field::<2>(at + 2, Field::PortDst);
    }

    /// Returns whether the bytes from `at` on may be shown as payload, which ends at `stated`.
    pub(super) fn is_payload(&mut self, at: usize, stated: Option<usize>) -> bool {
        self.is_plain(at, look::Length::whole(stated.map(|end| end.saturating_sub(at))))
    }

    /// Returns whether payload from `at` on, of this length, may be shown.
    fn is_plain(&mut self, at: usize, length: look::Length) -> bool {
        // No search is needed if no byte after the header is shown, or nothing would be changed.
        if at >= self.ask || !self.rewriter.changes_any() {
            return true;
        }
        let end = self.payload_end.unwrap_or(self.layer_end).min(self.layer_end).min(self.ask);
        self.rewriter.is_cut |= look::holds_packet(self.bytes.get(at..end).unwrap_or(&[]), length);
        !self.rewriter.is_cut
    }

    pub(super) fn tcp(&mut self, at: usize) -> End {
        if !self.has(at + 4) {
            return Err(at);
        }
        self.open_transport(at, at + 16, self.datagram_end, 6, false);
        self.ports(at);
        let end = at + usize::from(self.byte(at + 12) >> 4) * 4;
        let pads = self.rewriter.changes_any() || self.rewriter.loses(Part::TcpClock);
        if pads || self.hides(self.datagram_end) {
            // If the header was cut off, the options that are present.
            self.tcp_options(at + 20, end.min(self.layer_end));
        }
        if !self.has(at + 20) || end < at + 20 || !self.has(end) {
            // Ports and sequence number, which an ICMP error quotes.
            return Err(at + 8);
        }
        let stated = self.datagram_end.map(|stated| stated.saturating_sub(end));
        self.payload = self.is_plain(end, look::Length::of_stream(stated));
        Ok(end)
    }

    pub(super) fn udp(&mut self, at: usize) -> End {
        if !self.has(at + 4) {
            return Err(at);
        }
        let is_tunnel = [at, at + 2].iter().any(|at| TUNNEL_PORTS.contains(&self.be16(*at)));
        // The length in the UDP header, unless the IP header contradicts it.
        let stated = at + usize::from(self.be16(at + 4));
        let end = self.datagram_end.filter(|datagram| (at + 8..=*datagram).contains(&stated)).map(|_| stated);
        self.payload_end = end;
        self.open_transport(at, at + 6, end, 17, true);
        self.ports(at);
        if !self.has(at + 8) {
            return Err(at + 4);
        }
        // A first fragment states the length of the whole datagram.
        let stated = end.or(self.datagram_end).or((stated >= at + 8).then_some(stated));
        self.payload = !is_tunnel && self.is_payload(at + 8, stated);
        Ok(at + 8)
    }

    /// Changes the ports of SCTP. Chunks are not shown under a transform, because INIT lists addresses, so
    /// the checksum becomes zero.
    pub(super) fn sctp(&mut self, at: usize) -> End {
        if !self.has(at + 4) {
            return Err(at);
        }
        self.ports(at);
        if self.rewriter.changes_any() || self.hides(self.datagram_end) {
            self.blank(at + 8, at + 12);
        }
        Err(if self.has(at + 12) { at + 12 } else { at + 4 })
    }

    /// Hides the checksums of DCCP and UDP-Lite if they cover hidden bytes. Neither is understood under a
    /// transform.
    pub(super) fn other(&mut self, at: usize) -> End {
        if self.hides(self.datagram_end) {
            self.blank(at + 6, at + 8);
        }
        Err(at)
    }
}

/// Used by the fast path, `headers/fast.rs`.
pub(super) use options::{NOP, is_clock, tcp_stay};
