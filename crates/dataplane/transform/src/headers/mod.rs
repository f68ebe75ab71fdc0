//! Walks the headers that hold addresses, ports, options and checksums, and changes them.
//!
//! The decoder lists the headers; each kind has its function here, which changes the fields it knows
//! and says where it ends, or where understanding ends.

mod icmp;
mod ip;
mod link;
mod look;
mod options;
mod plain;
mod transport;

use crate::Rewriter;
use crate::checksum::{Sums, sum};
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
    /// Addresses of the last IP header.
    pseudo: ip::Pseudo,
    /// Offset behind the last datagram, by its own word, which may lie behind the bytes that are there. None
    /// for fragments and for what a network card is to divide.
    datagram_end: Option<usize>,
    /// Offset behind the payload, if the transport header has a length of its own.
    payload_end: Option<usize>,
    /// Offset behind the bytes of the datagram that are there.
    layer_end: usize,
    /// Bytes that are shown at most.
    ask: usize,
    /// Whether what follows the last header is payload that may be shown.
    payload: bool,
}

/// Changes what `rewriter` changes, and what would tell bytes behind the first `ask`, which are shown at
/// most. Returns how many are shown.
#[inline]
pub(crate) fn rewrite(rewriter: &mut Rewriter, link: LinkType, bytes: &mut [u8], ask: usize) -> usize {
    let plain = if link == LinkType::ETHERNET { plain::rewrite(rewriter, bytes, ask) } else { None };
    plain.unwrap_or_else(|| walk(rewriter, link, bytes, ask))
}

/// For any packet.
fn walk(rewriter: &mut Rewriter, link: LinkType, bytes: &mut [u8], ask: usize) -> usize {
    let keeps = !rewriter.changes_any();
    let mut p = Packet {
        ask: ask.min(bytes.len()),
        layer_end: bytes.len(),
        bytes,
        rewriter,
        sums: Sums::new(keeps),
        pseudo: ip::Pseudo::default(),
        datagram_end: None,
        payload_end: None,
        payload: false,
    };
    let (understood, lost) = p.layers(link);
    let shown = if keeps && !lost { p.ask } else { understood.min(p.ask) };
    p.sums.close(p.bytes, 0, shown);
    shown
}

impl Packet<'_> {
    /// Returns the offset where understanding ends, and whether a transport header may follow there that was
    /// not looked at, with a checksum of what is hidden.
    fn layers(&mut self, link: LinkType) -> (usize, bool) {
        let layers = flame_decode::layers(link, self.bytes);
        let mut end = match self.cooked(link) {
            Ok(end) => end,
            Err(end) => return (end, false),
        };
        let mut last: Option<&Layer> = None;
        let mut headers = 0;
        for layer in layers.iter() {
            last = Some(layer);
            let is_ip = matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6);
            headers += usize::from(is_ip);
            match self.layer(layer) {
                Ok(at) => end = at,
                Err(at) => return (at.min(layer.end), is_ip && headers == 1),
            }
        }
        let is_ip = last.is_some_and(|last| matches!(last.kind, Kind::Ipv4 | Kind::Ipv6));
        let understood = match last {
            // Something behind the last header was malformed, cut off or too deep.
            _ if !layers.complete => end,
            // The link's padding lies behind `layer.end`.
            Some(layer) if self.payload && !layer.quoted => {
                self.payload_end.map_or(layer.end, |end| end.min(layer.end)).max(end)
            }
            _ => layers.understood.max(end),
        };
        (understood, !layers.complete && is_ip && headers == 1)
    }

    fn layer(&mut self, layer: &Layer) -> End {
        self.payload = false;
        self.payload_end = None;
        self.layer_end = layer.end;
        let at = layer.at;
        match layer.kind {
            Kind::Ethernet => self.ethernet(at),
            Kind::MacDst => self.mac(at, Field::MacDst),
            Kind::MacSrc => self.mac(at, Field::MacSrc),
            Kind::MacAny => {
                self.mac(at, if self.rewriter.changes(Field::MacDst) { Field::MacDst } else { Field::MacSrc })
            }
            Kind::Opaque => self.opaque(at, layer.end),
            Kind::Notes => self.notes(at, layer.end),
            Kind::Arp => self.arp(at),
            Kind::Ipv4 => self.ipv4(at),
            Kind::Ipv6 => self.ipv6(at),
            Kind::Tcp => self.tcp(at),
            Kind::Udp => self.udp(at),
            Kind::Sctp => self.sctp(at),
            Kind::OtherTransport => self.other(at),
            Kind::Icmp => self.icmp(at),
            Kind::Icmpv6 => self.icmpv6(at, layer.end),
        }
    }

    /// Whether bytes up to `end` are hidden, or may be.
    fn hides(&self, end: Option<usize>) -> bool {
        end.is_none_or(|end| end > self.ask)
    }

    /// Whether the bytes up to `end` are there. What lies behind a layer's end, the link's padding for one,
    /// is not.
    fn has(&self, end: usize) -> bool {
        end <= self.layer_end.min(self.bytes.len())
    }

    /// 0 where there is no byte; for values that a later check of the whole header covers.
    fn byte(&self, at: usize) -> u8 {
        if self.has(at + 1) { self.bytes[at] } else { 0 }
    }

    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// The sum of the words that are there.
    fn sum(&self, from: usize, to: usize) -> i64 {
        sum(self.bytes.get(from..to).unwrap_or(&[]))
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

    fn put(&mut self, at: usize, new: &[u8]) {
        if self.has(at + new.len()) {
            self.sums.replace(self.bytes, at, new);
        }
    }

    /// Zeroes what may hold an address in a form that is not known.
    fn blank(&mut self, from: usize, to: usize) {
        self.fill::<0>(from, to);
    }

    fn fill<const BYTE: u8>(&mut self, from: usize, to: usize) {
        let to = to.min(self.bytes.len());
        let mut at = from;
        while at < to {
            let n = (to - at).min(16);
            self.sums.replace(self.bytes, at, &[BYTE; 16][..n]);
            at += n;
        }
    }
}
