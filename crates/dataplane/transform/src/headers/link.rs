//! Ethernet, Linux cooked headers and ARP.

use super::{End, Packet};
use crate::contains::{Part, Secrets, twin};
use flame_abi::LinkType;
use flame_plan::Field;

impl Packet<'_> {
    /// Changes the sender's address in cooked headers (LINKTYPE_LINUX_SLL, _SLL2): a MAC address, or for
    /// tunnel interfaces an IP address, in 8 bytes of which the rest is padding.
    pub(super) fn cooked(&mut self, link: LinkType) -> End {
        let (length, address, end) = match link {
            LinkType::LINUX_SLL => (usize::from(self.be16(4)), 6, 16),
            LinkType::LINUX_SLL2 => (usize::from(self.byte(11)), 12, 20),
            _ => return Ok(0),
        };
        if !self.has(end) {
            return Err(0);
        }
        if length == 6 {
            self.mac(address, Field::MacSrc, twin(Field::MacSrc));
            self.blank(address + 6, address + 8);
        } else if length != 0 && (self.rewriter.changes_mac() || self.rewriter.changes_ip()) {
            self.blank(address, address + 8);
        }
        Ok(end)
    }

    pub(super) fn ethernet(&mut self, at: usize) -> End {
        // A switch's tag may precede the type.
        if !self.has(at + 12) {
            return Err(at);
        }
        self.mac(at, Field::MacDst, twin(Field::MacDst));
        self.mac(at + 6, Field::MacSrc, twin(Field::MacSrc));
        Ok(at + 14)
    }

    /// Changes the address of a link header, which may contain an address of `ip`.
    pub(super) fn mac_header(&mut self, at: usize, field: Field, ip: Secrets) -> End {
        if !self.has(at + 6) {
            return Err(at);
        }
        self.mac(at, field, ip);
        Ok(at + 6)
    }

    /// Zeroes bytes that are hidden with the data that they contain.
    pub(super) fn lose(&mut self, part: Part, at: usize, end: usize) -> End {
        if self.rewriter.loses(part) {
            self.blank(at, end);
        }
        Ok(end)
    }

    /// Changes ARP (RFC 826) for Ethernet and IPv4. Other forms are not understood.
    pub(super) fn arp(&mut self, at: usize) -> End {
        let ours = [self.be16(at + 2), self.be16(at + 4)] == [0x0800, 0x0604];
        if !ours || !self.has(at + 28) {
            return Err(at);
        }
        self.mac(at + 8, Field::MacSrc, twin(Field::MacSrc));
        self.field::<4>(at + 14, Field::IpSrc);
        self.mac(at + 18, Field::MacDst, twin(Field::MacDst));
        self.field::<4>(at + 24, Field::IpDst);
        Ok(at + 28)
    }
}
