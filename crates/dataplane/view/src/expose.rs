//! The number of bytes of a packet that may be seen.

use flame_abi::{Descriptor, LinkType, flags};
use flame_plan::Expose;

/// Returns the number of exposed bytes of a packet, before transforms, at most those captured.
#[inline]
pub(crate) fn exposed(expose: Expose, link: LinkType, d: &Descriptor, bytes: &[u8]) -> usize {
    let more = match expose {
        Expose::Count | Expose::None => return 0,
        Expose::All => return bytes.len(),
        Expose::Headers => 0,
        Expose::Payload(n) => n as usize,
    };
    // Without IP, the decoder sets `l4` to the end of the link header, or to 0 if it knows no header.
    let headers = if d.is_ip() || link.is_decoded() { d.payload() as usize + cut_header(d) } else { 0 };
    // The bytes after the datagram are padding of the link, which senders fill with arbitrary data.
    headers.saturating_add(more).min(datagram_end(link, d, bytes)).min(bytes.len())
}

/// Returns whether a packet is complete: it is no fragment, and neither the capture nor an earlier copy has
/// cut it off. Then none of its bytes reveals missing ones.
#[inline]
pub(crate) fn is_whole(link: LinkType, d: &Descriptor, bytes: &[u8]) -> bool {
    let whole = if d.is_ip() { own_end(d, bytes) } else { Some(datagram_end(link, d, bytes)) };
    d.flags & (flags::TRUNCATED | flags::FRAGMENT) == 0 && whole.is_some_and(|end| end <= bytes.len())
}

/// Returns the end of an IP datagram as its header states it. Segmentation offload leaves 0 for the network
/// card to fill in, which gives `None`.
fn own_end(d: &Descriptor, bytes: &[u8]) -> Option<usize> {
    let l3 = usize::from(d.l3);
    if d.has(flags::IPV4) {
        Some(word(bytes, l3 + 2)).filter(|total| *total >= 20).map(|total| l3 + total)
    } else {
        Some(word(bytes, l3 + 4)).filter(|payload| *payload != 0).map(|payload| l3 + 40 + payload)
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
}

/// Returns the end of the datagram, or of the packet if no header states the former.
fn datagram_end(link: LinkType, d: &Descriptor, bytes: &[u8]) -> usize {
    let at = usize::from(d.l4);
    let end = match () {
        () if d.is_ip() => own_end(d, bytes),
        () if link == LinkType::ETHERNET && (at == 14 || at == 18 && word(bytes, 12) == 0x8100) => {
            frame_end(bytes, at)
        }
        () => None,
    };
    end.unwrap_or(bytes.len())
}

/// Returns the end of a packet other than IP, whose type precedes `at`: ARP contains lengths, and LLC has a
/// length in place of a type.
fn frame_end(bytes: &[u8], at: usize) -> Option<usize> {
    let byte = |at: usize| bytes.get(at).map_or(0, |b| usize::from(*b));
    match word(bytes, at - 2) {
        0x0806 => Some(at + 8 + 2 * (byte(at + 4) + byte(at + 5))),
        length => (1..=1500).contains(&length).then_some(at + length),
    }
}

/// Returns the fixed length of a transport header that is incomplete: its captured bytes, ports first, still
/// count as a header.
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
