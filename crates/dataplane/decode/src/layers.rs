//! Lists every header of a packet that holds addresses or ports, outermost first, for views that change them.
//! Tunnels are always followed, and so are the packets that ICMP errors quote.

use crate::kind::Kind;
use crate::{MAX_TUNNELS, ip, link, transport, tunnel};
use flame_abi::{Descriptor, LinkType, flags};

/// One header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    pub kind: Kind,
    /// The offset of its first byte. The header may be cut short by the end of the packet.
    pub at: usize,
    /// The offset of the first byte after the header and its payload.
    pub end: usize,
    /// The index of a transport header's IP header in the list.
    pub ip: usize,
    /// Whether an ICMP error quotes the header: it may be cut short, and its checksums need not match the
    /// bytes present.
    pub quoted: bool,
}

/// The maximum number of headers that are listed. The list of a packet with more is incomplete
/// ([`Layers::complete`]).
pub const MAX_LAYERS: usize = 24;

/// The headers of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Layers {
    list: [Layer; MAX_LAYERS],
    len: usize,
    /// The offset up to which the packet was understood. The bytes after it are payload if `complete`.
    pub understood: usize,
    /// Whether nothing was malformed, cut short or nested too deeply.
    pub complete: bool,
}

impl Layers {
    pub fn iter(&self) -> impl Iterator<Item = &Layer> {
        self.list[..self.len].iter()
    }

    pub fn get(&self, index: usize) -> Option<&Layer> {
        self.list[..self.len].get(index)
    }

    fn push(&mut self, kind: Kind, at: usize, end: usize, ip: usize, quoted: bool) {
        if self.len == MAX_LAYERS {
            self.complete = false;
            return;
        }
        self.list[self.len] = Layer { kind, at, end, ip, quoted };
        self.len += 1;
    }
}

/// Lists the headers of a packet. Does not allocate.
pub fn layers(link: LinkType, bytes: &[u8]) -> Layers {
    let none = Layer { kind: Kind::Ethernet, at: 0, end: 0, ip: 0, quoted: false };
    let mut l = Layers { list: [none; MAX_LAYERS], len: 0, understood: 0, complete: true };
    let found =
        link::walk(link, bytes, &mut |kind, at, end| l.push(kind, at, end.min(bytes.len()), 0, false));
    network(bytes, found, false, MAX_TUNNELS + 1, &mut l);
    l
}

fn network(bytes: &[u8], found: link::Found, quoted: bool, depth: usize, l: &mut Layers) {
    l.understood = found.at.min(bytes.len());
    if found.malformed {
        l.complete = false;
    }
    if !found.is_ip {
        return;
    }
    if depth == 0 {
        l.complete = false;
        return;
    }
    let ip = ip::walk(bytes, found.at.min(bytes.len()), found.version);
    let kind = match ip.flags & (flags::IPV4 | flags::IPV6) {
        flags::IPV4 => Kind::Ipv4,
        flags::IPV6 => Kind::Ipv6,
        _ => {
            l.complete = false;
            return;
        }
    };
    let index = l.len;
    l.push(kind, found.at, ip.end, 0, quoted);
    if !ip.whole || ip.flags & flags::MALFORMED != 0 {
        l.complete = false;
        return;
    }
    l.understood = ip.end_of_headers.min(bytes.len());
    if ip.flags & flags::LATER_FRAGMENT != 0 {
        return;
    }
    let at = l.understood;
    let mut d = Descriptor {
        flags: ip.flags,
        proto: ip.proto,
        l3: found.at.min(0xffff) as u16,
        l4: at.min(0xffff) as u16,
        ..Descriptor::default()
    };
    let inner = &bytes[..ip.end.min(bytes.len())];
    transport::walk(inner, at, &mut d);
    let transport = match ip.proto {
        transport::TCP => Some(Kind::Tcp),
        transport::UDP => Some(Kind::Udp),
        transport::SCTP => Some(Kind::Sctp),
        transport::ICMP => Some(Kind::Icmp),
        transport::ICMPV6 => Some(Kind::Icmpv6),
        transport::DCCP | transport::UDP_LITE => Some(Kind::OtherTransport),
        _ => None,
    };
    if let Some(kind) = transport {
        l.push(kind, at, inner.len(), index, quoted);
        if !d.has(flags::TRANSPORT) {
            // The ports may be present; the bytes after them are not understood.
            l.complete = false;
            l.understood = (at + 4).min(inner.len());
            return;
        }
        l.understood = at + usize::from(d.l4_len);
    }
    if is_icmp_error(ip.proto, bytes.get(at).copied()) {
        let quote = link::Found { at: at + 8, is_ip: true, version: 0, malformed: false };
        network(inner, quote, true, depth - 1, l);
        return;
    }
    if !tunnel::is_understood(inner, &d) {
        return;
    }
    for (kind, at, end) in tunnel::unknown(inner, &d).into_iter().flatten() {
        l.push(kind, at, end.min(inner.len()), 0, quoted);
    }
    if let Some(inside) = tunnel::inside(inner, &d) {
        let found = inside.walk(inner, &mut |kind, at, end| {
            l.push(kind, at, end.min(inner.len()), 0, quoted);
        });
        network(inner, found, quoted, depth - 1, l);
    }
}

/// Returns whether a message is an error that quotes the packet that caused it: RFC 792 (3, 4, 5, 11, 12),
/// RFC 4443 (1 to 4).
fn is_icmp_error(proto: u8, kind: Option<u8>) -> bool {
    match proto {
        transport::ICMP => matches!(kind, Some(3 | 4 | 5 | 11 | 12)),
        transport::ICMPV6 => matches!(kind, Some(1..=4)),
        _ => false,
    }
}
