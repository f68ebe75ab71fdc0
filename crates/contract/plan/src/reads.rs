//! The fields of packets that a filter reads, from its words.

use crate::{Action, Field, ShownFilter, Transforms};

/// The fields that a filter reads, as far as its words show. An expression such as `ip[12:4]` reads any
/// bytes, and counts as reading every field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    pub mac: bool,
    pub ip: bool,
    pub port: bool,
}

/// Words that compare an IP address, unless `ether` or another link precedes them.
const HOSTS: [&str; 3] = ["host", "net", "mask"];
/// Words that compare a port.
const PORTS: [&str; 2] = ["port", "portrange"];
/// Words that compare an address of the link, or whose meaning depends on one.
const LINKS: [&str; 11] =
    ["ether", "link", "wlan", "fddi", "tr", "addr1", "addr2", "addr3", "addr4", "ra", "ta"];
/// Words that test whether an address is one of a group.
const GROUPS: [&str; 2] = ["broadcast", "multicast"];

impl ShownFilter {
    /// Returns the fields that the filter reads.
    pub fn reads(&self) -> Reads {
        let words: Vec<&str> = self.as_str().split(' ').collect();
        let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
        // In `ether src host`, the host is one of the link.
        let is_of_link = |at: usize| {
            let before = words[..at].iter().rev().find(|word| !matches!(**word, "src" | "dst"));
            before.is_some_and(|word| LINKS.contains(word))
        };
        let host = words.iter().enumerate().any(|(at, word)| HOSTS.contains(word) && !is_of_link(at));
        let is_ip = |word: &&str| word.contains('.') || word.matches(':').count() == 7;
        let is_mac = |word: &&str| word.matches(':').count() == 5;
        let (any, group) = (has(&["["]), has(&GROUPS));
        Reads {
            mac: any || group || has(&LINKS) || words.iter().any(is_mac),
            ip: any || group || host || words.iter().any(is_ip),
            port: any || has(&PORTS),
        }
    }
}

impl Reads {
    /// Returns the first field that is read and that `transforms` change, with the change.
    pub fn changed(self, transforms: &Transforms) -> Option<(Field, Action)> {
        let reads = |field: Field| match field {
            Field::MacSrc | Field::MacDst => self.mac,
            Field::IpSrc | Field::IpDst => self.ip,
            Field::PortSrc | Field::PortDst => self.port,
        };
        let changed = |(field, action): (&Field, &Action)| {
            (*action != Action::Keep && reads(*field)).then_some((*field, *action))
        };
        transforms.iter().find_map(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_words_addresses_and_bytes() {
        for (text, mac, ip, port) in [
            ("not host 10.1.2.3", false, true, false),
            ("src 10.1.2.3 or udp", false, true, false),
            ("net 10", false, true, false),
            ("host fe80::1", false, true, false),
            ("ether src 1:2:3:4:5:6", true, false, false),
            ("ether host 1:2:3:4:5:6 and port 53", true, false, true),
            ("tcp portrange 80-90", false, false, true),
            ("multicast", true, true, false),
            ("ip[12:4] = 1", true, true, true),
            ("udp and len < 90 and vlan 7", false, false, false),
        ] {
            let filter = ShownFilter::parse(text).unwrap().unwrap();
            assert_eq!(filter.reads(), Reads { mac, ip, port }, "{text}");
        }
    }

    #[test]
    fn a_change_of_what_is_read_is_found() {
        let zero = [(Field::IpDst, Action::Zero), (Field::PortSrc, Action::Keep)].into();
        let changed = |text: &str| ShownFilter::parse(text).unwrap().unwrap().reads().changed(&zero);
        assert_eq!(changed("host 10.0.0.1"), Some((Field::IpDst, Action::Zero)));
        assert_eq!((changed("port 53"), changed("udp")), (None, None));
    }
}
