//! Generates packets in pairs that differ only in hidden data: every header that the decoder knows, tunnels
//! in tunnels, options of all kinds, checksums that are right, wrong, or left to the network card.
//!
//! A [`Maker`] draws all shown data from one source of numbers and all hidden data from another. Two makers
//! that share the first generate the two packets of a pair.

mod links;

#[allow(unused_imports)] // Not every test needs links.
pub use links::LINKS;

use super::common::*;
use flame_plan::{Action, Field, Transforms};
use flame_transform::Prefix;

/// SplitMix64, after a list of given choices.
#[derive(Clone)]
pub struct Numbers {
    pub seed: u64,
    /// Choices that precede the others, one byte each.
    pub choices: std::collections::VecDeque<u8>,
}

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self { seed, choices: std::collections::VecDeque::new() }
    }

    pub fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        match self.choices.pop_front() {
            Some(choice) if n <= 256 => u64::from(choice) % n,
            _ => self.next() % n,
        }
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// The parts of a packet that are hidden.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hidden {
    /// Unknown options, under any transform.
    pub options: bool,
    /// The contents of protocols that are not understood, under any transform or where no payload is exposed.
    pub opaque: bool,
    /// Options of IP and reserved fields of tunnels, under an address transform.
    pub addresses: bool,
    /// The number of shown bytes of payload. All bytes after them are hidden.
    pub payload: Option<usize>,
    /// The padding of the link.
    pub padding: bool,
    /// The notes of a capture about a packet.
    pub notes: bool,
    /// The times of packets below the resolution.
    pub times: bool,
}

const ADDRESSES: [Field; 4] = [Field::MacSrc, Field::MacDst, Field::IpSrc, Field::IpDst];

pub struct Maker<'a> {
    pub shown: Numbers,
    pub secret: Numbers,
    pub hidden: Hidden,
    pub transforms: &'a Transforms,
    /// Whether no header states the end of the datagram.
    pub endless: bool,
    /// The mapping under the maker's own key, by which each maker has other addresses for the same
    /// pseudonyms.
    pub prefix: Option<Prefix>,
}

impl Maker<'_> {
    fn choose(&mut self, n: u64) -> u64 {
        self.shown.below(n)
    }

    /// Draws bytes; shown ones are the same in both packets.
    fn draw(&mut self, n: usize, hidden: bool) -> Vec<u8> {
        let (shown, secret) = (self.shown.bytes(n), self.secret.bytes(n));
        if hidden { secret } else { shown }
    }

    fn field(&mut self, field: Field, n: usize) -> Vec<u8> {
        let mut value = self.draw(n, false);
        let secret = self.secret.bytes(n);
        match self.transforms.get(&field) {
            Some(Action::Zero) => value = secret,
            Some(Action::Truncate(bits)) => {
                for (i, (v, s)) in value.iter_mut().zip(secret).enumerate() {
                    let kept = usize::from(*bits).saturating_sub(i * 8).min(8) as u32;
                    let mask = 0xffu8.checked_shr(kept).unwrap_or(0);
                    *v = *v & !mask | s & mask;
                }
            }
            Some(Action::Prefix) => {
                if let Some(prefix) = &mut self.prefix {
                    value = unmap(prefix, &value);
                }
            }
            _ => {}
        }
        if matches!(field, Field::PortSrc | Field::PortDst) {
            // The view reveals whether a port is a tunnel's: 0x4xxx never is.
            value[0] = value[0] & 0x0f | 0x40;
        }
        value
    }

    fn changes(&self, fields: &[Field]) -> bool {
        fields.iter().any(|field| self.transforms.contains_key(field))
    }

    fn is_pseudonym(&self, field: Field) -> bool {
        matches!(self.transforms.get(&field), Some(Action::Hash | Action::Prefix))
    }

    /// Draws a MAC address, which may contain an address of IP on the side `ip`.
    pub fn mac(&mut self, field: Field, ip: &[Field]) -> Vec<u8> {
        let mac = self.field(field, 6);
        let (form, is_hidden) = (self.choose(8), self.changes(ip));
        let is_neighbour_hidden = is_hidden || self.changes(&ADDRESSES);
        // Pseudonyms of a whole address show whether it is the same.
        if self.is_pseudonym(field) {
            return mac;
        }
        let mut new = match form {
            0 => [vec![1, 0, 0x5e], self.draw(3, is_hidden)].concat(),
            1 => [vec![0x33, 0x33, 0], self.draw(3, is_hidden)].concat(),
            2 => [vec![0x33, 0x33, 0xff], self.draw(3, is_neighbour_hidden)].concat(),
            3 => [vec![2, 0x42], self.draw(4, is_hidden)].concat(),
            4 => [vec![0x0a, 0x58], self.draw(4, is_hidden)].concat(),
            _ => return mac,
        };
        if form == 0 {
            new[3] &= 0x7f;
        }
        new
    }

    /// Draws an IPv6 address, which may contain a MAC address that is changed as `mac`.
    fn six(&mut self, field: Field, mac: Field) -> Vec<u8> {
        let mut address = self.field(field, 16);
        let form = self.choose(4);
        let id = self.field(mac, 6);
        let is_hidden = self.changes(&ADDRESSES);
        let neighbour = self.draw(3, is_hidden);
        let is_true = match self.transforms.get(&field) {
            None => true,
            Some(Action::Truncate(bits)) => *bits > 64,
            Some(_) => false,
        };
        match form {
            _ if !is_true => {}
            0 => {
                address[8..].copy_from_slice(&[id[0] ^ 2, id[1], id[2], 0xff, 0xfe, id[3], id[4], id[5]]);
            }
            1 => {
                address = vec![0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
                address.extend(neighbour);
            }
            _ => {}
        }
        address
    }

    fn macs(&mut self) -> Vec<u8> {
        [self.mac(Field::MacDst, &[Field::IpDst]), self.mac(Field::MacSrc, &[Field::IpSrc])].concat()
    }

    /// Generates a frame, perhaps with padding after it.
    pub fn frame(&mut self) -> Vec<u8> {
        self.endless = false;
        let mut frame = self.ethernet(0);
        let n = self.choose(3) as usize * 9;
        let is_hidden = self.hidden.padding && !self.endless;
        frame.extend(self.draw(n, is_hidden));
        frame
    }

    fn ethernet(&mut self, depth: u64) -> Vec<u8> {
        let mut frame = self.macs();
        for _ in 0..self.choose(4).saturating_sub(2) {
            // A VLAN, or the tag of a ring.
            let (kind, length) = [([0x81, 0], 2), ([0x89, 0x2f], 4)][usize::from(self.choose(4) == 0)];
            frame.extend(kind);
            frame.extend(self.draw(length, false));
        }
        match self.choose(12) {
            0 => {
                frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
                frame.extend(self.mac(Field::MacSrc, &[Field::IpSrc]));
                frame.extend(self.field(Field::IpSrc, 4));
                frame.extend(self.mac(Field::MacDst, &[Field::IpDst]));
                frame.extend(self.field(Field::IpDst, 4));
                frame
            }
            1 => {
                // PPPoE, with its protocol field compressed or not.
                let packet = self.ipv4(depth);
                frame.extend([0x88, 0x64, 0x11, 0, 0, 9]);
                frame.extend(((packet.len() + 2) as u16).to_be_bytes());
                frame.extend(if self.choose(2) == 0 { &[0x21][..] } else { &[0, 0x21] });
                [frame, packet].concat()
            }
            2 => {
                let label = [0, 0, 0x11, 0x40];
                let packet = self.ip(depth);
                [frame, vec![0x88, 0x47], label.to_vec(), packet].concat()
            }
            n if n & 1 == 0 => [frame, vec![8, 0], self.ipv4(depth)].concat(),
            _ => [frame, vec![0x86, 0xdd], self.ipv6(depth)].concat(),
        }
    }

    fn ip(&mut self, depth: u64) -> Vec<u8> {
        if self.choose(2) == 0 { self.ipv4(depth) } else { self.ipv6(depth) }
    }

    fn ipv4(&mut self, depth: u64) -> Vec<u8> {
        let options = self.options4();
        let (src, dst) = (self.field(Field::IpSrc, 4), self.field(Field::IpDst, 4));
        let (proto, mut rest) = self.transport(depth, &[&src[..], &dst].concat());
        let length = 20 + options.len();
        let fragment: u16 = [0, 0, 0, 0, 0, 0x2000, 0x00b9][self.choose(7) as usize];
        if fragment == 0x00b9 {
            // Data from the middle of a datagram.
            rest = self.payload();
        }
        let mut proto = proto;
        let short = fragment == 0 && self.choose(12) == 0;
        if short {
            (proto, rest) = self.short(&[1, 6, 17, 33, 51, 132]);
        }
        let mut total = (length + rest.len()) as u16;
        if !short && self.choose(16) == 0 {
            // Left to the network card, including the checksums.
            total = 0;
            self.endless |= depth == 0;
        }
        let mut p = vec![0x40 | (length / 4) as u8, 0, (total >> 8) as u8, total as u8, 1, 2];
        p.extend(fragment.to_be_bytes());
        p.extend([64, proto, 0, 0]);
        p.extend(src);
        p.extend(dst);
        p.extend(options);
        set_sum(&mut p, 10, 0, length, &[]);
        if self.choose(8) == 0 {
            p[10] ^= 0x42;
        }
        [p, rest].concat()
    }

    /// Generates a datagram that ends within a header, before the link's padding.
    fn short(&mut self, protocols: &[u8]) -> (u8, Vec<u8>) {
        let proto = protocols[self.choose(protocols.len() as u64) as usize];
        let n = 4 + self.choose(20) as usize;
        let mut rest = self.draw(n, false);
        // No tunnel's port and no ICMP error; an extension of up to 64 bytes; a first fragment.
        rest[0] = match proto {
            1 => 8,
            58 => 128,
            0 | 44 | 51 => 6,
            _ => 0x40,
        };
        rest[1] &= 7;
        rest[2] = 0x40;
        if proto == 44 {
            rest[2..4].copy_from_slice(&[0, 1]);
        }
        (proto, rest)
    }

    fn options4(&mut self) -> Vec<u8> {
        let (kind, n) = match self.choose(10) {
            0 => (7, 11),
            1 => (130, 11),
            2 => (134, 7),
            3 => (68, 11),
            4 => (99, 7),
            5 => return vec![148, 4, 0, 0],
            6 => (136, 4),
            _ => return Vec::new(),
        };
        // Of these, only the option 68 and the unknown one hold times.
        let is_hidden = self.hidden.addresses || (matches!(kind, 68 | 99) && self.hidden.times);
        let mut options = [vec![kind, n as u8], self.draw(n - 2, is_hidden)].concat();
        options.resize(n.next_multiple_of(4), 1);
        options
    }

    fn ipv6(&mut self, depth: u64) -> Vec<u8> {
        let (src, dst) = (self.six(Field::IpSrc, Field::MacSrc), self.six(Field::IpDst, Field::MacDst));
        let (mut next, mut rest) = self.transport(depth, &[&src[..], &dst].concat());
        for _ in 0..self.choose(5).saturating_sub(2) {
            let is_hidden = self.hidden.addresses;
            let pads = is_hidden || self.hidden.times;
            let (kind, body) = match self.choose(5) {
                // PadN that is not padding, an unknown option, or one of IOAM.
                0 => (0, [vec![1, 4], self.draw(4, pads)].concat()),
                1 => (60, [vec![[0x1e, 0x31][self.choose(2) as usize], 4], self.draw(4, pads)].concat()),
                2 => (0, vec![5, 2, 0, 0, 1, 0]),
                3 if is_hidden => (43, [vec![9, 0], self.draw(4, true)].concat()),
                _ if is_hidden => (135, self.draw(6, true)),
                _ => (0, vec![1, 4, 0, 0, 0, 0]),
            };
            rest = [vec![next, 0], body, rest].concat();
            next = kind;
        }
        if self.choose(12) == 0 {
            (next, rest) = self.short(&[0, 6, 17, 33, 44, 51, 58, 132]);
        }
        let length = if self.choose(16) == 0 { 0 } else { rest.len() as u16 };
        self.endless |= length == 0 && depth == 0;
        let mut p = vec![0x60, 0, 0, 0];
        p.extend(length.to_be_bytes());
        p.extend([next, 64]);
        [p, src, dst, rest].concat()
    }

    /// Generates payload that is no packet. Its shown part is text.
    fn payload(&mut self) -> Vec<u8> {
        let n = self.choose(60) as usize;
        let shown = self.hidden.payload.unwrap_or(usize::MAX).min(n);
        let mut payload: Vec<u8> = self.shown.bytes(n).into_iter().map(|b| b & 0x1f | 0x80).collect();
        let secret = self.secret.bytes(n);
        payload[shown..].copy_from_slice(&secret[shown..]);
        payload
    }

    /// Sets a checksum that is right, wrong, or the sum of the pseudo-header, as left to the network card.
    fn sum(&mut self, segment: &mut [u8], at: usize, proto: u8, addresses: &[u8]) {
        let n = segment.len() as u16;
        let pseudo = [addresses, &[0, proto], &n.to_be_bytes()].concat();
        let pseudo: &[u8] = if proto == 1 { &[] } else { &pseudo };
        let end = segment.len();
        set_sum(segment, at, 0, end, pseudo);
        let right = [segment[at], segment[at + 1]];
        if proto == 17 && right == [0, 0] {
            segment[at..at + 2].fill(0xff);
        }
        match self.choose(6) {
            0 => segment[at] ^= 0x12,
            1 | 2 => {
                let sum = word_sum(&[pseudo]).to_be_bytes();
                segment[at..at + 2].copy_from_slice(&sum);
                // It happens to be right, or to mean none, so another wrong one is used.
                if sum == right || sum == [0, 0] {
                    segment[at..at + 2].copy_from_slice(&[right[0] ^ 0x12, right[1] | 1]);
                }
            }
            _ => {}
        }
    }

    fn tcp_options(&mut self) -> Vec<u8> {
        let (is_hidden, times) = (self.hidden.options || self.hidden.times, self.hidden.times);
        let mut options = match self.choose(10) {
            0 => [vec![28, 4], self.draw(2, is_hidden)].concat(),
            1 => [vec![200, 10], self.draw(8, is_hidden)].concat(),
            2 => [vec![253, 8], self.draw(6, is_hidden)].concat(),
            3 => [vec![30, 8, 0x30], self.draw(5, is_hidden)].concat(),
            4 => [vec![19, 18], self.draw(16, is_hidden)].concat(),
            5 => [vec![2, 4], self.draw(2, false), vec![1, 3, 3, 7]].concat(),
            6 => [vec![1, 1, 8, 10], self.draw(8, times)].concat(),
            8 => [vec![2, 4, 5, 6, 8, 10], self.draw(8, times)].concat(),
            7 => [vec![0], self.draw(3, is_hidden)].concat(),
            _ => Vec::new(),
        };
        options.resize(options.len().next_multiple_of(4), 1);
        options
    }

    fn transport(&mut self, depth: u64, addresses: &[u8]) -> (u8, Vec<u8>) {
        let six = addresses.len() > 8;
        let ports = [self.field(Field::PortSrc, 2), self.field(Field::PortDst, 2)].concat();
        match self.choose(if depth < 3 { 16 } else { 9 }) {
            0..=3 => {
                let options = self.tcp_options();
                let mut p = [
                    ports,
                    self.draw(8, false),
                    vec![((20 + options.len()) * 4) as u8, 0x18, 1, 0, 0, 0, 0, 0],
                ]
                .concat();
                p.extend(options);
                p.extend(self.payload());
                self.sum(&mut p, 16, 6, addresses);
                (6, p)
            }
            4 | 5 => {
                let payload = self.payload();
                (17, self.udp(ports, payload, addresses))
            }
            6 => {
                let has_times = !six && self.choose(3) == 0;
                let kind = if six { 128 } else { 8 + u8::from(has_times) * 5 };
                let times = if has_times { self.times() } else { Vec::new() };
                let payload = if has_times { Vec::new() } else { self.payload() };
                let mut p = [vec![kind, 0, 0, 0, 0, 1, 0, 2], times, payload].concat();
                let proto = if six { 58 } else { 1 };
                self.sum(&mut p, 2, proto, addresses);
                (proto, p)
            }
            7 => {
                let crc = self.draw(4, self.hidden.opaque);
                let chunks = self.draw(12, self.hidden.opaque);
                (132, [ports, self.draw(4, false), crc, chunks].concat())
            }
            8 => {
                // ESP, OSPF, DCCP, UDP-Lite: not understood under a transform.
                let proto = [50, 89, 33, 136][self.choose(4) as usize];
                let n = if !matches!(proto, 33 | 136) { 24 } else { 0 };
                (proto, if n == 0 { [ports, vec![0; 20]].concat() } else { self.draw(n, self.hidden.opaque) })
            }
            9 => (if self.choose(2) == 0 { 4 } else { 41 }, self.ip(depth + 1)),
            10 => {
                let packet = self.ipv4(depth + 1);
                let mut gre =
                    if self.choose(2) == 0 { vec![0, 0, 8, 0] } else { vec![0x80, 0, 8, 0, 0, 0, 0, 0] };
                let summed = gre[0] != 0;
                gre.extend(packet);
                if summed {
                    let end = gre.len();
                    set_sum(&mut gre, 4, 0, end, &[]);
                }
                (47, gre)
            }
            11 => {
                let reserved = self.draw(3, self.hidden.addresses || self.hidden.times);
                let frame = self.ethernet(depth + 1);
                let port = [4789u16, 8472][self.choose(2) as usize];
                self.tunnel(port, [vec![8], reserved, vec![0, 0, 9, 0], frame].concat(), addresses)
            }
            12 => {
                let options = self.draw(4, self.hidden.addresses || self.hidden.times);
                let options = [vec![1, 2, 3, 1], options].concat();
                let frame = self.ethernet(depth + 1);
                self.tunnel(6081, [vec![2, 0, 0x65, 0x58, 0, 0, 9, 0], options, frame].concat(), addresses)
            }
            13 => {
                // Tunnels that are told by a port alone, decoded or not. All their contents are hidden
                // under a transform.
                let port = [2152u16, 3544, 1701, 6080, 6635, 4790, 5247][self.choose(7) as usize];
                let n = 8 + self.choose(40) as usize;
                let is_hidden = !self.transforms.is_empty();
                let held = self.draw(n, is_hidden);
                self.tunnel(port, held, addresses)
            }
            14 => {
                // A tunnel on another port, recognized by its contents.
                let mut inner = self.shown_free_ip();
                let head = self.draw(8, false).into_iter().map(|b| b & 0x1f | 0x80).collect::<Vec<_>>();
                inner.splice(0..0, head);
                (17, self.udp(ports, inner, addresses))
            }
            _ => {
                // An ICMP error that quotes a packet.
                let kind = if six { 1 } else { 3 };
                let mut p = [vec![kind, 3, 0, 0, 0, 0, 0, 0], self.ip(3)].concat();
                let proto = if six { 58 } else { 1 };
                self.sum(&mut p, 2, proto, addresses);
                (proto, p)
            }
        }
    }

    /// Draws the times in a message of ICMP. They are payload to a view that hides no times.
    fn times(&mut self) -> Vec<u8> {
        let shown = self.hidden.payload.unwrap_or(usize::MAX).min(12);
        let mut times = self.draw(12, false);
        let secret = self.secret.bytes(12);
        let from = if self.hidden.times { 0 } else { shown };
        times.iter_mut().for_each(|byte| *byte = *byte & 0x1f | 0x80);
        times[from..].copy_from_slice(&secret[from..]);
        times
    }

    /// Generates an IPv4 packet with a right checksum and hidden addresses.
    fn shown_free_ip(&mut self) -> Vec<u8> {
        let is_hidden = !self.transforms.is_empty();
        let mut p = vec![0x45, 0, 0, 28, 1, 2, 0, 0, 64, 17, 0, 0];
        p.extend(self.draw(8, is_hidden));
        set_sum(&mut p, 10, 0, 20, &[]);
        p.extend(self.draw(8, is_hidden));
        p
    }

    fn tunnel(&mut self, port: u16, held: Vec<u8>, addresses: &[u8]) -> (u8, Vec<u8>) {
        let ports = [&[0x40, 1][..], &port.to_be_bytes()].concat();
        (17, self.udp(ports, held, addresses))
    }

    fn udp(&mut self, ports: Vec<u8>, held: Vec<u8>, addresses: &[u8]) -> Vec<u8> {
        let mut p = [ports, ((8 + held.len()) as u16).to_be_bytes().to_vec(), vec![0, 0], held].concat();
        if self.choose(3) > 0 {
            self.sum(&mut p, 6, 17, addresses);
        }
        p
    }
}

/// Returns the address whose pseudonym is `to`, bit by bit.
fn unmap(prefix: &mut Prefix, to: &[u8]) -> Vec<u8> {
    let bits = to.len() * 8;
    let to = to.iter().fold(0u128, |n, b| n << 8 | u128::from(*b));
    let mut address = 0u128;
    for bit in (0..bits).rev() {
        let mapped = if bits == 32 { u128::from(prefix.ipv4(address as u32)) } else { prefix.ipv6(address) };
        address |= (mapped ^ to) & 1 << bit;
    }
    address.to_be_bytes()[16 - bits / 8..].to_vec()
}
