//! Finds the headers that hold addresses, ports, options and checksums, and changes them.
//!
//! The decoder lists the headers. A function for each kind changes the known fields and returns where the
//! header, or understanding, ends.

mod fast;
mod icmp;
mod ip;
mod link;
mod look;
mod options;
mod transport;

use crate::Rewriter;
use crate::checksum::{Sums, sum};
use crate::contains::{Part, Secrets, twin};
use flame_abi::LinkType;
use flame_decode::{Kind, Layer};
use flame_plan::Field;

/// `Ok` is the end of this header. After `Err`, nothing from that offset on is understood.
type End = Result<usize, usize>;

/// A packet and the state of its rewriting.
struct Packet<'a> {
    bytes: &'a mut [u8],
    rewriter: &'a mut Rewriter,
    sums: Sums,
    /// The addresses of the last IP header.
    pseudo: ip::Pseudo,
    /// The offset of the first byte after the last datagram as its header states it, which may lie beyond the
    /// bytes present. `None` for fragments, and for segments that a network card is to divide.
    datagram_end: Option<usize>,
    /// The offset of the first byte after the payload, if the transport header states its length.
    payload_end: Option<usize>,
    /// The offset of the first byte after the bytes of the datagram that are present.
    layer_end: usize,
    /// The maximum number of bytes that are shown.
    ask: usize,
    /// Whether the bytes after the last header are payload that may be shown.
    payload: bool,
}

/// Changes the fields that `rewriter` changes, and all bytes that would reveal bytes after the first `ask`,
/// the maximum to be shown. Returns the number of bytes that are shown.
#[inline]
pub(crate) fn rewrite(rewriter: &mut Rewriter, link: LinkType, bytes: &mut [u8], ask: usize) -> usize {
    rewriter.is_cut = false;
    let is_simple = link == LinkType::ETHERNET && rewriter.hidden.is_none();
    let fast = if is_simple { fast::rewrite(rewriter, bytes, ask) } else { None };
    fast.unwrap_or_else(|| walk(rewriter, link, bytes, ask))
}

/// Rewrites any packet.
fn walk(rewriter: &mut Rewriter, link: LinkType, bytes: &mut [u8], ask: usize) -> usize {
    let keeps = !rewriter.changes_any();
    let mut p = Packet {
        ask: ask.min(bytes.len()),
        layer_end: bytes.len(),
        bytes,
        sums: Sums::new(keeps, rewriter.hidden.take()),
        rewriter,
        pseudo: ip::Pseudo::default(),
        datagram_end: None,
        payload_end: None,
        payload: false,
    };
    let (understood, lost) = p.layers(link);
    let shown = if keeps && !lost { p.ask } else { understood.min(p.ask) };
    p.sums.close(p.bytes, 0, shown);
    p.rewriter.hidden = p.sums.hidden.take();
    shown
}

impl Packet<'_> {
    /// Returns the offset at which understanding ends, and whether a transport header may follow there that
    /// was not examined, with a checksum of hidden bytes.
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
            // A header after the last one listed was malformed, cut off or nested too deeply.
            _ if !layers.complete => end,
            // The bytes after `layer.end` are padding of the link.
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
            Kind::MacDst => self.mac_header(at, Field::MacDst, twin(Field::MacDst)),
            Kind::MacSrc => self.mac_header(at, Field::MacSrc, twin(Field::MacSrc)),
            Kind::MacAny => self.mac_header(at, self.any_mac(), Secrets::IP),
            Kind::Opaque => self.lose(Part::Opaque, at, layer.end),
            Kind::Clock => self.lose(Part::TunnelClock, at, layer.end),
            Kind::Notes => self.lose(Part::Notes, at, layer.end),
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

    /// Returns whether bytes up to `end` are hidden, or may be.
    fn hides(&self, end: Option<usize>) -> bool {
        end.is_none_or(|end| end > self.ask)
    }

    /// Returns whether the bytes up to `end` are present. Bytes after the end of a layer, such as padding of
    /// the link, do not count.
    fn has(&self, end: usize) -> bool {
        end <= self.layer_end.min(self.bytes.len())
    }

    /// Returns a byte, or 0 if it is not present, for values that a later check of the whole header covers.
    fn byte(&self, at: usize) -> u8 {
        if self.has(at + 1) { self.bytes[at] } else { 0 }
    }

    fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    /// Returns the sum of the words that are present.
    fn sum(&self, from: usize, to: usize) -> i64 {
        sum(self.bytes.get(from..to).unwrap_or(&[]))
    }

    /// Changes one field of `N` bytes, which the caller has found to be present. Returns the change of its
    /// sum.
    #[inline]
    fn field<const N: usize>(&mut self, at: usize, field: Field) -> i64 {
        if !self.rewriter.changes(field) {
            return 0;
        }
        let Some(old) = self.bytes.get(at..at + N) else { return 0 };
        let new = self.rewriter.map(field, old);
        self.sums.replace(self.bytes, at, &new[..N])
    }

    /// Returns the field as which a MAC address without a side is changed.
    fn any_mac(&self) -> Field {
        if self.rewriter.changes(Field::MacDst) { Field::MacDst } else { Field::MacSrc }
    }

    /// Returns the field as which an IP address without a side is changed.
    fn any_ip(&self) -> Field {
        if self.rewriter.changes(Field::IpDst) { Field::IpDst } else { Field::IpSrc }
    }

    /// Changes a MAC address, which the caller has found to be present and which may contain an address of
    /// `ip`.
    fn mac(&mut self, at: usize, field: Field, ip: Secrets) {
        if self.rewriter.changes_addresses()
            && let Some(old) = self.bytes.get(at..).and_then(<[u8]>::first_chunk)
        {
            let new = self.rewriter.map_mac(field, ip, *old);
            self.sums.replace(self.bytes, at, &new);
        }
    }

    /// Changes an IPv6 address, which may contain a MAC address that is changed as `mac`. Returns the change
    /// of its sum.
    fn ip6(&mut self, at: usize, field: Field, mac: Field) -> i64 {
        let old = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        let Some(old) = old.filter(|_| self.rewriter.changes_addresses()) else { return 0 };
        let new = self.rewriter.map6(field, mac, *old);
        self.sums.replace(self.bytes, at, &new)
    }

    /// Changes an IPv6 address without a side.
    fn sideless6(&mut self, at: usize) -> i64 {
        self.ip6(at, self.any_ip(), self.any_mac())
    }

    fn put(&mut self, at: usize, new: &[u8]) {
        if self.has(at + new.len()) {
            self.sums.replace(self.bytes, at, new);
        }
    }

    /// Zeroes bytes of unknown form that may hold an address.
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
