//! How many bytes of a packet may be seen.

use flame_abi::{Descriptor, LinkType, flags};
use flame_plan::Expose;

/// Exposed bytes of a packet, before transforms; at most what was captured.
#[inline]
pub(crate) fn exposed(expose: Expose, link: LinkType, d: &Descriptor, bytes: &[u8]) -> usize {
    let more = match expose {
        Expose::Count | Expose::None => return 0,
        Expose::All => return bytes.len(),
        Expose::Headers => 0,
        Expose::Payload(n) => n as usize,
    };
    // The decoder sets `l4` behind the link header if there is no IP, and to 0 if it knows no header.
    let headers = if d.is_ip() || link.is_decoded() { d.payload() as usize + cut_header(d) } else { 0 };
    let end = headers.saturating_add(more).min(bytes.len());
    // Behind the datagram lies the link's padding, which senders fill with what they like.
    if more > 0 { end.min(datagram_end(d, bytes)).max(headers.min(end)) } else { end }
}

/// Offset behind the datagram.
fn datagram_end(d: &Descriptor, bytes: &[u8]) -> usize {
    let l3 = usize::from(d.l3);
    let word = |at: usize| {
        bytes.get(l3 + at..l3 + at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
    };
    // 0 is what segmentation offload leaves to the network card: the datagram fills the frame.
    let end = match d.flags & (flags::IPV4 | flags::IPV6) {
        flags::IPV4 if word(2) != 0 => l3 + word(2),
        flags::IPV6 if word(4) != 0 => l3 + 40 + word(4),
        _ => bytes.len(),
    };
    end.min(bytes.len())
}

/// Bytes of a transport header that is not whole: what the capture has of its fixed part is a header
/// still, ports first.
#[inline]
fn cut_header(d: &Descriptor) -> usize {
    if d.has(flags::TRANSPORT | flags::LATER_FRAGMENT) || !d.is_ip() {
        return 0;
    }
    match d.proto {
        6 => 20,
        1 | 17 | 58 | 136 => 8,
        33 | 132 => 12,
        _ => 0,
    }
}
