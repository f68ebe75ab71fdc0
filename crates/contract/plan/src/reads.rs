//! The parts of packets that a filter reads, from its words: as far as each word is known to read no more.

use crate::{Action, ShownFilter, Transforms};

/// The parts of packets that a filter may read, besides protocols, tags and lengths, which no view changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Addresses of IP or of the link. Each can contain parts of the other.
    pub addresses: bool,
    pub ports: bool,
    /// Any bytes, as in `ip[12:4]`.
    pub bytes: bool,
}

/// Words that read protocols.
const PROTOCOLS: [&str; 18] = [
    "ip", "ip6", "arp", "rarp", "tcp", "udp", "sctp", "icmp", "icmp6", "igmp", "pim", "ah", "esp", "vrrp",
    "carp", "igrp", "iso", "stp",
];
/// Words that read protocols, tags or lengths, and take numbers, as comparisons do. A number after another
/// word is a host.
const TAKE_NUMBERS: [&str; 13] =
    ["proto", "vlan", "mpls", "less", "greater", "len", "length", "=", "==", "!=", "<", ">", "<="];
const CONNECTIVES: [&str; 7] = ["and", "or", "not", "&&", "||", "!", "("];

impl ShownFilter {
    /// Returns the parts that the filter may read.
    pub fn reads(&self) -> Reads {
        let words: Vec<&str> = self.as_str().split(' ').collect();
        let mut reads = Reads::default();
        // In `port 80 or 443`, both numbers are ports.
        let mut takes_numbers = false;
        for (at, word) in words.iter().enumerate() {
            let is_number = word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
            match *word {
                "port" | "portrange" => (reads.ports, takes_numbers) = (true, true),
                // In `src port 80`, they are sides of the port.
                "src" | "dst" => {
                    let is_other = |word: &&&str| !matches!(**word, "src" | "dst" | "and" | "or");
                    let of_port = words[at..].iter().find(is_other).is_some_and(|w| w.starts_with("port"));
                    (reads.addresses, takes_numbers) = (reads.addresses || !of_port, of_port);
                }
                word if PROTOCOLS.contains(&word) => takes_numbers = false,
                word if TAKE_NUMBERS.contains(&word) || word == ">=" => takes_numbers = true,
                word if CONNECTIVES.contains(&word) || word == ")" => {}
                "host" | "net" | "mask" | "broadcast" | "multicast" | "ether" | "link" => {
                    reads.addresses = true
                }
                word if word.contains('.') || word.contains(':') && word.len() > 1 => reads.addresses = true,
                _ if is_number => reads.addresses |= !takes_numbers,
                _ => reads.bytes = true,
            }
        }
        reads
    }
}

impl Reads {
    /// Returns the first transform that may change what is read, in words, or the `resolution`, which removes
    /// the clocks that packets contain.
    pub fn changed(self, transforms: &Transforms, resolution_ns: u64) -> Option<String> {
        let reads =
            |name: &str| self.bytes || if name.starts_with("port") { self.ports } else { self.addresses };
        let mut changes = transforms.iter().filter(|(_, action)| **action != Action::Keep);
        let changed = changes.find(|(field, _)| reads(field.name()));
        let by_time = || (self.bytes && resolution_ns > 1).then(|| "resolution".to_owned());
        changed.map(|(field, action)| format!("{}={action}", field.name())).or_else(by_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

    #[test]
    fn parts_are_read_by_words_that_are_known() {
        for (text, addresses, ports, bytes) in [
            ("not host 10.1.2.3", true, false, false),
            ("src 10.1.2.3 or udp", true, false, false),
            ("not src 167838211", true, false, false),
            ("not 167838211", true, false, false),
            ("port 80 or udp 167838211", true, true, false),
            ("net 10", true, false, false),
            ("host fe80::1", true, false, false),
            ("ether src 1:2:3:4:5:6", true, false, false),
            ("ether host 1:2:3:4:5:6 and port 53", true, true, false),
            ("tcp portrange 80-90", false, true, false),
            ("src or dst port 80 or 443", false, true, false),
            ("multicast", true, false, false),
            ("ip[12:4] = 1", true, false, true),
            ("tcp[20:2] = 0x080a", true, false, true),
            ("udp and len < 90 and vlan 7 and not ip proto 47", false, false, false),
            ("llc", false, false, true),
        ] {
            let filter = ShownFilter::parse(text).unwrap().unwrap();
            assert_eq!(filter.reads(), Reads { addresses, ports, bytes }, "{text}");
        }
    }

    #[test]
    fn a_change_of_what_is_read_is_found() {
        let changed = |text: &str, transforms: &[(Field, Action)], resolution_ns| {
            let transforms = transforms.iter().copied().collect();
            ShownFilter::parse(text).unwrap().unwrap().reads().changed(&transforms, resolution_ns)
        };
        let ip = [(Field::IpDst, Action::Zero), (Field::PortSrc, Action::Keep)];
        assert_eq!(changed("host 10.0.0.1", &ip, 1).as_deref(), Some("ip.dst=zero"));
        assert_eq!(changed("ether host 1:0:5e:1:2:3", &ip, 1).as_deref(), Some("ip.dst=zero"), "a group");
        let mac = [(Field::MacSrc, Action::Zero)];
        assert!(changed("host 2001:db8::211:22ff:fe33:4455", &mac, 1).is_some(), "an identifier");
        assert_eq!((changed("port 53", &ip, 9), changed("udp", &ip, 9)), (None, None));
        assert_eq!(changed("not tcp[20:2] = 0x080a", &[], 10).as_deref(), Some("resolution"));
        assert_eq!(changed("not tcp[20:2] = 0x080a", &[], 1), None);
    }
}
