//! Walks the headers that hold addresses and ports, and changes them.
//!
//! The decoder lists the headers; each kind has its function here, which changes the fields it knows
//! and says where it ends, or where understanding ends.

mod icmp;
mod ip;
mod link;
mod plain;
mod transport;

use crate::Rewriter;
use crate::checksum::Sums;
use flame_abi::LinkType;
use flame_decode::{Kind, Layer};
use flame_plan::Field;

/// `Ok`: this header ends there. `Err`: nothing behind that offset is understood.
type End = Result<usize, usize>;

/// A packet on its way through its headers.
struct Packet<'a> {
    bytes: &'a mut [u8],
    rewriter: &'a mut Rewriter,
    sums: Sums,
    /// Change of the addresses that the next transport's pseudo-header holds.
    pseudo: i64,
    /// Length of what the last IP header carries, by its own word, if it is not a fragment.
    carried: Option<usize>,
    /// Whether what follows the last header is payload that may be shown.
    payload: bool,
}

/// Changes what `rewriter` changes; how many bytes were understood.
#[inline]
pub(crate) fn rewrite(rewriter: &mut Rewriter, link: LinkType, bytes: &mut [u8]) -> usize {
    let plain = if link == LinkType::ETHERNET { plain::rewrite(rewriter, bytes) } else { None };
    plain.unwrap_or_else(|| walk(rewriter, link, bytes))
}

/// For any packet.
fn walk(rewriter: &mut Rewriter, link: LinkType, bytes: &mut [u8]) -> usize {
    let layers = flame_decode::layers(link, bytes);
    let mut p = Packet { bytes, rewriter, sums: Sums::default(), pseudo: 0, carried: None, payload: false };
    let mut end = match p.cooked(link) {
        Ok(end) => end,
        Err(end) => return end,
    };
    let mut last: Option<&Layer> = None;
    for layer in layers.iter() {
        last = Some(layer);
        match p.layer(layer) {
            Ok(at) => end = at,
            Err(at) => {
                p.finish();
                return at.min(p.bytes.len());
            }
        }
    }
    p.finish();
    let end = match last {
        // Something behind the last header was malformed, cut off or too deep.
        _ if !layers.complete => end,
        // The link's padding lies behind `layer.end`.
        Some(layer) if p.payload && !layer.quoted => layer.end.max(end),
        _ => layers.understood.max(end),
    };
    end.min(p.bytes.len())
}

impl Packet<'_> {
    fn layer(&mut self, layer: &Layer) -> End {
        self.payload = false;
        let at = layer.at;
        match layer.kind {
            Kind::Ethernet => self.ethernet(at),
            Kind::Arp => self.arp(at),
            Kind::Ipv4 => self.ipv4(at),
            Kind::Ipv6 => self.ipv6(at),
            Kind::Tcp => self.tcp(at),
            Kind::Udp => self.udp(at),
            Kind::Sctp => self.sctp(at),
            Kind::Icmp => self.icmp(at),
            Kind::Icmpv6 => self.icmpv6(at, layer.end),
        }
    }

    fn finish(&mut self) {
        self.sums.close(self.bytes, 0);
    }

    /// Whether the bytes up to `end` are there.
    fn has(&self, end: usize) -> bool {
        end <= self.bytes.len()
    }

    /// 0 where there is no byte; for values that a later check of the whole header covers.
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// Changes one field of `N` bytes, which the caller knows to be there; the change of its sum.
    #[inline]
    fn field<const N: usize>(&mut self, at: usize, field: Field) -> i64 {
        if !self.rewriter.changes(field) {
            return 0;
        }
        let Some(old) = self.bytes.get(at..at + N) else { return 0 };
        let new = self.rewriter.map(field, old);
        self.sums.replace(self.bytes, at, &new[..N])
    }

    /// An IP address without a side.
    fn sideless<const N: usize>(&mut self, at: usize) -> i64 {
        let dst = self.rewriter.changes(Field::IpDst);
        self.field::<N>(at, if dst { Field::IpDst } else { Field::IpSrc })
    }

    /// Zeroes what may hold an address in a form that is not known.
    fn blank(&mut self, from: usize, to: usize) {
        let to = to.min(self.bytes.len());
        let mut at = from;
        while at < to {
            let n = (to - at).min(16);
            self.sums.replace(self.bytes, at, &[0; 16][..n]);
            at += n;
        }
    }
}
