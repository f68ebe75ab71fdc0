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
    headers.saturating_add(more).min(bytes.len())
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
