//! Whether a filter decides on a whole frame.
//!
//! A filter reads headers where their types state them, and nothing else. So a frame whose version, lengths
//! or trailer contradict its headers would carry bytes past the filter.

/// The least length of a frame without its check sequence. Shorter ones are padded to it.
const LEAST: usize = 60;

/// Returns whether the headers of an Ethernet frame account for all of its bytes, except padding of zeros up
/// to the least length of a frame.
pub(super) fn is_whole(frame: &[u8]) -> bool {
    let mut at = 12;
    let kind = loop {
        match number(frame, at) {
            None => return false,
            // A tag, and a type after it.
            Some(0x8100 | 0x88a8) => at += 4,
            Some(kind) => break kind,
        }
    };
    let start = at + 2;
    let length = match kind {
        0x0800 => ipv4(&frame[start..]),
        0x86dd => ipv6(&frame[start..]),
        0x0806 => Some(28),
        // A length, in a frame of IEEE 802.3.
        0..=1500 => Some(usize::from(kind)),
        // Nothing states where a frame of another type ends.
        _ => return true,
    };
    let end = length.map(|length| start + length).filter(|end| *end <= frame.len());
    end.is_some_and(|end| end == frame.len() || frame.len() <= LEAST && frame[end..].iter().all(|b| *b == 0))
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Returns the length of an IPv4 datagram whose lengths agree.
fn ipv4(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let (header, total) = (usize::from(first & 15) * 4, usize::from(number(bytes, 2)?));
    let datagram = bytes.get(..total).filter(|_| first >> 4 == 4 && header >= 20 && header <= total)?;
    let is_fragment = number(bytes, 6)? & 0x3fff != 0;
    transport(bytes[9], &datagram[header..], is_fragment).then_some(total)
}

/// Returns the length of an IPv6 packet whose lengths agree. One with extension headers has any content.
fn ipv6(bytes: &[u8]) -> Option<usize> {
    let total = 40 + usize::from(number(bytes, 4)?);
    let packet = bytes.get(..total).filter(|packet| packet[0] >> 4 == 6)?;
    transport(packet[6], &packet[40..], false).then_some(total)
}

/// Returns whether the lengths in a transport header agree with its bytes.
fn transport(protocol: u8, bytes: &[u8], is_fragment: bool) -> bool {
    match protocol {
        _ if is_fragment => true,
        6 => bytes.get(12).is_some_and(|b| (20..=bytes.len()).contains(&(usize::from(b >> 4) * 4))),
        17 => number(bytes, 4).is_some_and(|length| length >= 8 && usize::from(length) == bytes.len()),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with an IP packet after `tags`.
    fn frame(tags: &[u8], kind: u16, packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], tags, &kind.to_be_bytes(), packet].concat()
    }

    /// An IPv4 datagram with UDP and `size` bytes of payload.
    fn udp(size: u8) -> Vec<u8> {
        let head = [0x45, 0, 0, 28 + size, 0, 0, 0, 0, 9, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        [&head[..], &[0, 1, 0, 2, 0, 8 + size, 0, 0], &vec![7; size.into()]].concat()
    }

    #[test]
    fn headers_account_for_all_bytes() {
        let changed = |at: usize, byte: u8| {
            let mut packet = udp(40);
            packet[at] = byte;
            frame(&[], 0x0800, &packet)
        };
        let v6 = |next: u8, length: u8, version: u8| {
            let mut packet = vec![0; 40];
            (packet[0], packet[5], packet[6]) = (version << 4, 8, next);
            packet.extend([0, 1, 0, 2, 0, length, 0, 0]);
            frame(&[], 0x86dd, &packet)
        };
        let padded = |byte: u8, to: usize| {
            let mut frame = frame(&[], 0x0800, &udp(0));
            frame.resize(to, byte);
            frame
        };
        for (name, frame, expected) in [
            ("as it is", frame(&[], 0x0800, &udp(40)), true),
            ("behind a tag", frame(&[0x81, 0, 0, 5], 0x0800, &udp(40)), true),
            ("padded", padded(0, 60), true),
            ("padded with data", padded(1, 60), false),
            ("padded too far", padded(0, 61), false),
            ("a trailer", frame(&[], 0x0800, &[udp(40), vec![1]].concat()), false),
            ("a trailer behind a tag", frame(&[0x81, 0, 0, 5], 0x0800, &[udp(40), vec![1]].concat()), false),
            ("another version", changed(0, 0x65), false),
            ("a short header", changed(0, 0x44), false),
            ("a header beyond the datagram", changed(3, 19), false),
            ("a datagram beyond the frame", changed(3, 90), false),
            ("a shorter datagram", changed(3, 60), false),
            ("a shorter UDP", changed(25, 40), false),
            ("a longer UDP", changed(25, 60), false),
            ("a fragment", changed(6, 0x20), true),
            ("IPv6", v6(17, 8, 6), true),
            ("another version of IPv6", v6(17, 8, 4), false),
            ("a shorter UDP in IPv6", v6(17, 7, 6), false),
            ("ARP", frame(&[], 0x0806, &[0; 28]), true),
            ("ARP with a trailer", frame(&[], 0x0806, &[1; 60]), false),
            ("802.3", frame(&[], 3, &[1, 2, 3]), true),
            ("802.3 with a trailer", frame(&[], 3, &[1, 2, 3, 4]), false),
            ("no type", vec![2; 12], false),
            ("another type", frame(&[], 0x88cc, &[1, 2]), true),
        ] {
            assert_eq!(is_whole(&frame), expected, "{name}");
        }
    }
}
