//! Computes the 32-byte descriptor of a packet from its bytes, once for all modules.
//!
//! A packet is decoded header by header: link, IP, transport and tunnel, each in its own file. No byte is
//! trusted: every read goes through [`read`], so an offset in a [`Descriptor`] always lies inside the
//! captured bytes. A contradiction sets `MALFORMED`, and the fields decoded before it are kept.
//!
//! [`layers()`] follows the same headers and lists them all, for views that must find every address.
#![no_std]
#![forbid(unsafe_code)]

mod fast;
mod hash;
mod ip;
mod kind;
pub mod layers;
mod link;
mod read;
mod transport;
mod tunnel;
mod values;

pub use hash::flow_hash;
pub use kind::Kind;
pub use layers::{Layer, Layers, layers};
pub use link::{Subframes, may_aggregate, subframes};
pub use tunnel::TUNNEL_PORTS;
pub use values::differs_in_values_only;

use flame_abi::{Descriptor, LinkType, flags};

/// The depth to which packets are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to describe the innermost packet of tunnels (`tunnel.rs`).
    pub decapsulate: bool,
    /// Whether the flow hash is not read. It is 0 then.
    pub without_hash: bool,
}

/// The maximum number of nested tunnels that are followed.
const MAX_TUNNELS: usize = 4;

/// Decodes a packet into a descriptor, whose `ts_ns` and `addr` are 0. Packets that are not IP, or of a link
/// type that is not decoded, have neither `IPV4` nor `IPV6` and a hash of 0; their `l4` is the length of the
/// link header, as far as it was understood.
pub fn decode(link: LinkType, bytes: &[u8], wire_len: u32, options: Options) -> Descriptor {
    let mut d = Descriptor::default();
    decode_into(link, bytes, wire_len, options, &mut d);
    d
}

/// Decodes a packet like [`decode`] into a descriptor, whose `ts_ns` and `addr` stay as they are.
#[inline(always)] // A loop over packets contains the fast path.
pub fn decode_into(link: LinkType, bytes: &[u8], wire_len: u32, options: Options, d: &mut Descriptor) {
    // Only the full decoder finds packets in tunnels.
    let is_fast = link == LinkType::ETHERNET
        && !options.decapsulate
        && fast::decode(bytes, wire_len, options, d).is_some();
    if !is_fast {
        let Descriptor { ts_ns, addr, .. } = *d;
        *d = Descriptor { ts_ns, addr, ..walk(link, bytes, wire_len, options) };
    }
}

fn walk(link: LinkType, bytes: &[u8], wire_len: u32, options: Options) -> Descriptor {
    let mut d = Descriptor { wire_len, cap_len: bytes.len() as u32, ..Descriptor::default() };
    if d.cap_len < wire_len {
        d.flags |= flags::TRUNCATED;
    }
    let found = link::walk(link, bytes, &mut |_, _, _| {});
    // The bytes after a datagram are padding of the link, and are ignored.
    let mut bytes = &bytes[..network(bytes, found, &mut d)];
    if options.decapsulate {
        for _ in 0..MAX_TUNNELS {
            let Some(inner) = tunnel::inside(bytes, &d) else { break };
            let mut of_inner = Descriptor { wire_len, cap_len: d.cap_len, ..Descriptor::default() };
            let found = inner.walk(bytes, &mut |_, _, _| {});
            if !found.is_ip {
                break;
            }
            of_inner.flags = d.flags & flags::TRUNCATED | flags::TUNNEL;
            let end = network(bytes, found, &mut of_inner);
            if !of_inner.is_ip() {
                break;
            }
            (bytes, d) = (&bytes[..end], of_inner);
        }
    }
    if d.is_ip() && !options.without_hash {
        d.hash = flow_hash(bytes, &d);
    }
    d
}

/// Decodes IP and its payload from `found` on, and returns the offset of the first byte after the datagram.
fn network(bytes: &[u8], found: link::Found, d: &mut Descriptor) -> usize {
    let at = found.at.min(bytes.len());
    if found.malformed {
        d.flags |= flags::MALFORMED;
    }
    if !found.is_ip || at > usize::from(u16::MAX) - 1024 {
        d.l4 = at.min(usize::from(u16::MAX)) as u16;
        return bytes.len();
    }
    let ip = ip::walk(bytes, at, found.version);
    d.flags |= ip.flags;
    d.proto = ip.proto;
    d.l3 = at as u16;
    d.l4 = ip.end_of_headers.min(bytes.len()).min(usize::from(u16::MAX)) as u16;
    if ip.flags & (flags::IPV4 | flags::IPV6) == 0 {
        (d.l3, d.l4, d.proto) = (0, at as u16, 0);
        return bytes.len();
    }
    let end = ip.end.min(bytes.len());
    if ip.whole && ip.flags & flags::LATER_FRAGMENT == 0 {
        transport::walk(&bytes[..end], usize::from(d.l4), d);
    }
    end
}

#[cfg(test)]
mod tests;
