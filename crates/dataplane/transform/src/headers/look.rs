//! Finds packets in payload, as in tunnels on arbitrary ports. Only bytes that would be shown are examined,
//! so that the result reveals nothing about the bytes after them.
//!
//! All that a header states must agree: version, lengths, protocol, and the checksum where there is one. Of
//! random bytes, less than one payload in a million agrees by chance.

use crate::checksum::sum;

/// The number of bytes of payload in which a packet is looked for.
const DEPTH: usize = 128;

/// The beginning of ARP for Ethernet and IPv4, with its EtherType.
const ARP: [u8; 8] = [8, 6, 0, 1, 8, 0, 6, 4];

/// The values of one byte that may begin a packet, or that are protocols.
const V4: u8 = 1;
const V6: u8 = 2;
const OF_ARP: u8 = 4;
const PROTOCOL: u8 = 8;
const NEXT: u8 = 16;
const EXTENSION: u8 = 32;

/// The roles that a byte can have, for a decision in one step for each byte of a payload.
static ROLES: [u8; 256] = roles();

/// The protocols of packets in tunnels: ICMP, IGMP, TCP, UDP, DCCP, SCTP, UDP-Lite, tunnels, IPsec, routing.
const PROTOCOLS: [u8; 16] = [1, 2, 4, 6, 17, 33, 41, 47, 50, 51, 88, 89, 103, 112, 132, 136];

/// The headers that follow IPv6's, in tunnels.
const HEADERS: [u8; 14] = [0, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 59, 60, 132];

const NO_NEXT: u8 = 59;

/// Those of them that name another one: options, routing, fragment.
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];

const fn roles() -> [u8; 256] {
    let mut roles = [0; 256];
    let mut low = 0;
    while low < 16 {
        roles[0x60 + low] |= V6;
        if low >= 5 {
            roles[0x40 + low] |= V4;
        }
        roles[PROTOCOLS[low] as usize] |= PROTOCOL;
        if low < HEADERS.len() {
            roles[HEADERS[low] as usize] |= NEXT;
        }
        if low < EXTENSIONS.len() {
            roles[EXTENSIONS[low] as usize] |= EXTENSION;
        }
        low += 1;
    }
    roles[ARP[0] as usize] |= OF_ARP;
    roles
}

/// Returns whether a byte has a role.
#[inline(always)]
fn is(byte: u8, role: u8) -> bool {
    ROLES[usize::from(byte)] & role != 0
}

/// The length of a payload as the headers before it state it, of which fewer bytes may be shown.
#[derive(Clone, Copy)]
pub(super) struct Length {
    pub(super) stated: Option<usize>,
    /// Whether a packet in the payload may end in a later one, as in a stream.
    pub(super) is_stream: bool,
}

impl Length {
    /// Returns the length of a payload that contains whole packets.
    #[inline]
    pub(super) fn whole(stated: Option<usize>) -> Self {
        Self { stated, is_stream: false }
    }

    /// Returns the length of a part of a stream.
    #[inline]
    pub(super) fn of_stream(stated: Option<usize>) -> Self {
        Self { stated, is_stream: true }
    }
}

/// The bytes from one place of a payload on.
#[derive(Clone, Copy)]
struct Rest<'a> {
    shown: &'a [u8],
    /// The number of bytes that the headers state.
    stated: usize,
    is_stream: bool,
}

/// Returns whether a packet with addresses begins in the first [`DEPTH`] bytes of `payload`, the shown bytes
/// of one of this length: IPv4 or IPv6 whose fields agree with each other and with the length, also if the
/// shown bytes end within, or ARP.
pub(super) fn holds_packet(payload: &[u8], length: Length) -> bool {
    let stated = length.stated.unwrap_or(0).max(payload.len());
    payload.iter().take(DEPTH).enumerate().any(|(at, first)| {
        is(*first, V4 | V6 | OF_ARP)
            && Rest { shown: &payload[at..], stated: stated - at, is_stream: length.is_stream }.is_packet()
    })
}

impl Rest<'_> {
    fn be16(&self, at: usize) -> usize {
        usize::from(u16::from_be_bytes([self.shown[at], self.shown[at + 1]]))
    }

    fn is_packet(&self) -> bool {
        let first = self.shown[0];
        // Most text and most random bytes end here.
        let may_be_six = || self.shown.get(6).is_some_and(|next| is(*next, NEXT));
        if is(first, V4) {
            self.is_ipv4()
        } else if is(first, V6) {
            may_be_six() && self.is_ipv6()
        } else {
            self.shown.starts_with(&ARP)
        }
    }

    /// Returns whether IPv4 begins here. Of a header whose end is not shown, the bytes after the protocol
    /// depend on the addresses; without any of them they are no ports.
    fn is_ipv4(&self) -> bool {
        let header = usize::from(self.shown[0] & 15) * 4;
        if self.shown.len() < 11 {
            return false;
        }
        let (total, is_known) = (self.be16(2), is(self.shown[9], PROTOCOL));
        let fits = total <= self.stated;
        let Some(whole) = self.shown.get(..header) else {
            // Without the checksum: no fragment, and none but known protocols.
            let options = self.shown.get(20..).unwrap_or(&[]);
            let is_likely = matches!(self.be16(6), 0 | 0x4000) && is_known && total >= header;
            return is_likely && (fits || self.is_stream && header == 20) && is_option(options);
        };
        let is_all = total == self.stated;
        // Segments that a card is to divide state no length.
        // Samples and quotations of packets end before the packet does: no fragment, and a known protocol.
        let is_cut = is_known && matches!(self.be16(6), 0 | 0x4000) && self.shown[8] > 0;
        let is_long = total >= header && (fits || self.is_stream || is_cut) || total == 0;
        let agrees = is_long && (is_known || is_all) && self.shown[6] < 0x80 && are_options(&whole[20..]);
        // A card is to fill in the checksum.
        let is_unfilled = whole[10..12] == [0, 0] && is_all;
        agrees && (is_unfilled || sum(whole).rem_euclid(0xffff) == 0)
    }

    /// Returns whether IPv6 begins here: it ends with the payload, or with a frame check sequence before
    /// that; or it is shown whole and the checksum of its own payload is right.
    fn is_ipv6(&self) -> bool {
        // Without any byte of the addresses it is none.
        if self.shown.len() < 9 {
            return false;
        }
        let (total, next) = (40 + self.be16(4), self.shown[6]);
        let source = &self.shown[8..self.shown.len().min(24)];
        let destination = self.shown.get(24..).unwrap_or(&[]);
        let has_addresses =
            is_unicast(source) && (is_unicast(destination) || destination.first() == Some(&0xff));
        // Every header has eight bytes or more, except the mark that none follows.
        let is_filled = total >= 48 || next == NO_NEXT;
        let has_next = !is(next, EXTENSION) || self.shown.get(40).is_none_or(|b| is(*b, NEXT));
        let agrees = self.shown[7] > 0 && has_addresses && is_filled && has_next;
        agrees && (total == self.stated || total + 4 == self.stated || self.has_right_sum(total, next))
    }

    /// Returns whether an IPv6 packet is shown whole and its transport checksum is right.
    fn has_right_sum(&self, total: usize, next: u8) -> bool {
        let (true, Some(whole)) = (matches!(next, 6 | 17 | 58), self.shown.get(..total)) else {
            return false;
        };
        let pseudo = i64::from(next) + (total - 40) as i64;
        (sum(&whole[8..]) + pseudo).rem_euclid(0xffff) == 0
    }
}

/// Returns whether an address of a host may begin with these bytes: global, local or of the link, or the one
/// of none and those that contain an IPv4 address.
fn is_unicast(address: &[u8]) -> bool {
    match address {
        [] | [0x20..=0x3f | 0xfc | 0xfd | 0xfe, ..] => true,
        [0, 0x64, 0xff, 0x9b, ..] => true,
        [0, ..] => address.iter().take(8).all(|b| *b == 0),
        _ => false,
    }
}

/// Returns whether a known option of IPv4 begins here, as far as it is shown.
fn is_option(options: &[u8]) -> bool {
    options
        .first()
        .is_none_or(|kind| matches!(kind, 0 | 1 | 7 | 68 | 82 | 130 | 131 | 133 | 134 | 136 | 137 | 148))
}

/// Returns whether these are options of IPv4, well formed and known.
fn are_options(mut options: &[u8]) -> bool {
    loop {
        let length = match *options {
            [] => return true,
            [0, ref rest @ ..] => return rest.iter().all(|b| *b == 0),
            [1, ..] => 1,
            [_, length, ..] if length >= 2 && is_option(options) => usize::from(length),
            _ => return false,
        };
        let Some(rest) = options.get(length..) else { return false };
        options = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an IPv4 header with options, in front of `n` bytes.
    fn four(options: &[u8], n: usize) -> Vec<u8> {
        let header = 20 + options.len();
        let mut p = vec![0x40 | (header / 4) as u8, 0, 0, (header + n) as u8, 7, 7, 0x40, 0, 64, 17, 0, 0];
        p.extend([10, 0, 0, 9, 192, 0, 2, 7]);
        p.extend(options);
        let total = sum(&p).rem_euclid(0xffff) as u16;
        p[10..12].copy_from_slice(&(!total).to_be_bytes());
        p.resize(header + n, 1);
        p
    }

    fn six(n: u8) -> Vec<u8> {
        let mut p = vec![0x6b, 0x12, 0x34, 0x56, 0, n, 17, 64, 0x20, 1];
        p.resize(40 + usize::from(n), 0x33);
        p
    }

    /// Returns whether the first `shown` bytes of a payload hold a packet, in a datagram and in a stream.
    fn holds(payload: &[u8], shown: usize) -> [bool; 2] {
        [Length::whole, Length::of_stream]
            .map(|length| holds_packet(&payload[..shown], length(Some(payload.len()))))
    }

    #[test]
    fn packets_are_found() {
        let arp = [&ARP[..], &[0; 20]].concat();
        for before in [0, 1, 7, 50, DEPTH - 1] {
            for packet in
                [four(&[], 30), four(&[1, 1, 1, 0], 30), four(&[148, 4, 0, 0], 9), six(8), arp.clone()]
            {
                let payload = [&vec![0xaa; before][..], &packet].concat();
                assert_eq!(holds(&payload, payload.len()), [true; 2], "{before} {packet:02x?}");
            }
        }
        // Something follows it.
        assert_eq!(holds(&[four(&[], 30), vec![9; 50]].concat(), 100), [true; 2]);
        assert_eq!(holds(&[six(8), vec![9; 4]].concat(), 52), [true; 2], "a frame check sequence");
        let mut summed = six(20);
        summed[46..48].fill(0);
        let total = (sum(&summed[8..]) + 17 + 20).rem_euclid(0xffff) as u16;
        summed[46..48].copy_from_slice(&(!total).to_be_bytes());
        assert_eq!(holds(&[summed, vec![9; 50]].concat(), 110), [true; 2]);
        // It ends in a later segment of a stream, or is the sample of a longer one.
        assert_eq!(holds(&four(&[], 200)[..90], 90), [true; 2]);
    }

    #[test]
    fn packets_that_are_cut_off_are_found() {
        for packet in [four(&[], 90), four(&[1, 1, 1, 0], 90), six(90)] {
            let first = if packet[0] >> 4 == 4 { 11 } else { 9 };
            for shown in [first, first + 1, 19, 20, 23, 24, 39, 40, 90] {
                let payload = [&[0xaa; 13][..], &packet].concat();
                assert_eq!(holds(&payload, 13 + shown), [true; 2], "{shown} {packet:02x?}");
            }
        }
    }

    #[test]
    fn what_contradicts_itself_is_no_packet() {
        let right = four(&[], 30);
        for (at, byte) in [(0, 0x44), (0, 0x46), (2, 1), (6, 0x80), (9, 200), (10, 0x77)] {
            let mut wrong = right.clone();
            wrong[at] = byte;
            if matches!(at, 6 | 9) {
                wrong[10..12].fill(0);
                let total = sum(&wrong[..20]).rem_euclid(0xffff) as u16;
                wrong[10..12].copy_from_slice(&(!total).to_be_bytes());
                wrong.push(0);
            }
            assert_eq!(holds(&wrong, wrong.len()), [false; 2], "{at}");
        }
        for (at, byte) in [(5, 9), (6, 200), (8, 0x10), (24, 0x10)] {
            let mut wrong = six(8);
            wrong[at] = byte;
            assert_eq!(holds(&wrong, wrong.len()), [false; 2], "{at}");
        }
    }

    #[test]
    fn text_is_no_packet() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.org\r\n",
            "HTTP/1.1 200 OK\r\nServer: Apache\r\nContent-Type: text/html\r\n\r\n<html>",
            "EHLO mail.example.org",
            "Elephants, 45 of them",
            "hello",
            "pp\0\0\0\0\0\x06rotcel\0\0\0\0\0\x0b#root.cell.\0\0\0\0\x098+9H\0\0@\0\0\0(\0\0\0\x01\0\0",
        ] {
            for shown in 0..=text.len() {
                assert_eq!(holds(text.as_bytes(), shown), [false; 2], "{text}");
            }
        }
    }

    /// `FLAME_CASES` is the number of payloads (300,000, of which one in 1e6 may be taken for a packet).
    #[test]
    fn random_bytes_are_no_packet() {
        let cases = std::env::var("FLAME_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300_000);
        let (mut state, mut bytes, mut found) = (1u64, [0; 1460], 0u64);
        for case in 0..cases {
            for word in bytes[..176].chunks_exact_mut(8) {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                word.copy_from_slice(&(z ^ z >> 31).to_le_bytes());
            }
            let shown = if case % 2 == 0 { 1460 } else { 20 + (case % 157) as usize };
            found += holds(&bytes, shown).map(u64::from).iter().sum::<u64>();
        }
        assert!(found <= 2 * cases / 1_000_000, "{found} of {cases}, twice");
    }
}
