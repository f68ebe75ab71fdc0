//! Finds packets in payload, as in tunnels on arbitrary ports. Only bytes that would be shown are examined,
//! so that the result reveals nothing about the bytes after them.

use crate::checksum::sum;

/// The number of bytes of payload in which a packet is looked for.
const DEPTH: usize = 128;

/// The beginning of ARP for Ethernet and IPv4, after its EtherType.
const ARP: [u8; 8] = [8, 6, 0, 1, 8, 0, 6, 4];

/// Returns whether a packet with addresses seems to begin in the first [`DEPTH`] bytes of `payload`: an IPv4
/// header whose checksum is right, an IPv6 header whose fields are plausible, ARP, or the beginning of a
/// header that the capture cut off.
pub(super) fn holds_packet(payload: &[u8]) -> bool {
    (0..payload.len().min(DEPTH)).any(|at| {
        let rest = &payload[at..];
        match rest[0] {
            0x45..=0x4f => is_ipv4(rest),
            0x60..=0x6f => is_ipv6(rest),
            8 => rest.starts_with(&ARP),
            _ => false,
        }
    })
}

fn is_ipv4(rest: &[u8]) -> bool {
    let length = usize::from(rest[0] & 15) * 4;
    match rest.get(..length) {
        Some(header) => {
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let unfilled = header[10..12] == [0, 0] && total == rest.len();
            (total >= length || total == 0) && (sum(header).rem_euclid(0xffff) == 0 || unfilled)
        }
        // Only the protocol and the fields before it can be checked. The checksum after it depends on the
        // addresses.
        None => rest.len() > 10 && matches!(rest[9], 1 | 4 | 6 | 17 | 41 | 47 | 50 | 58 | 132),
    }
}

fn is_ipv6(rest: &[u8]) -> bool {
    if rest.len() <= 8 {
        return false;
    }
    let carries = matches!(rest[6], 0 | 4 | 6 | 17 | 41 | 43 | 44 | 47 | 50 | 51 | 58 | 59 | 60 | 132);
    let payload = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
    let unicast = |b: u8| matches!(b, 0 | 0x20..=0x3f | 0xfc..=0xfe);
    let source = unicast(rest[8]);
    let destination = rest.get(24).is_none_or(|b| unicast(*b) || *b == 0xff);
    carries && (payload + 40 == rest.len() || (source && destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_and_text_is_not() {
        let ip = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0xee, 0xe7 - 0x24, 10, 0, 0, 9, 192, 0, 2, 7];
        let mut right = ip;
        right[10..12].fill(0);
        let total = sum(&right).rem_euclid(0xffff) as u16;
        right[10..12].copy_from_slice(&(!total).to_be_bytes());
        for before in [0, 1, 7, 50, DEPTH - 1] {
            assert!(holds_packet(&[&vec![0xaa; before][..], &right, &[1; 30]].concat()), "{before}");
        }
        let mut six = vec![0x60, 0, 0, 0, 0, 4, 17, 64, 0x20, 1];
        six.resize(44, 7);
        assert!(holds_packet(&[&[0; 3][..], &six].concat()));
        assert!(holds_packet(&[&[2; 12][..], &ARP, &[0; 20]].concat()));
        assert!(holds_packet(&right[..11]), "cut off behind the first byte of its checksum");
        for text in [
            "GET / HTTP/1.1\r\nHost: example.org\r\n",
            "EHLO mail.example.org",
            "Elephants, 45 of them",
            "hello",
        ] {
            assert!(!holds_packet(text.as_bytes()), "{text}");
        }
    }
}
