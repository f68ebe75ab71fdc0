//! Names of services and protocols in filters: tables of this program, from IANA's registries, so that a
//! filter means the same on every machine.
//!
//! `services.txt` has the services below port 1024 and some above, as far as their name has one number: a
//! name, a port, and `t` or `u` if the name is registered for TCP or for UDP alone. The registry of 2024-06
//! was read.

/// The transport protocols that have services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A service: its port, and its protocol if the name is registered for one alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub port: u16,
    pub only: Option<Transport>,
}

const SERVICES: &str = include_str!("services.txt");

/// Protocols behind IP, by IANA's keywords in lower case and the names of libpcap.
const PROTOCOLS: &[(&str, u32)] = &[
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipv4", 4),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("igrp", 9),
    ("udp", 17),
    ("rdp", 27),
    ("dccp", 33),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("ospfigp", 89),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("carp", 112),
    ("pgm", 113),
    ("l2tp", 115),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

/// EtherTypes by the names of libpcap and those in use.
const ETHERTYPES: &[(&str, u32)] = &[
    ("ip", 0x0800),
    ("arp", 0x0806),
    ("rarp", 0x8035),
    ("aarp", 0x80f3),
    ("atalk", 0x809b),
    ("ip6", 0x86dd),
    ("mopdl", 0x6001),
    ("moprc", 0x6002),
    ("lat", 0x6004),
    ("decnet", 0x6003),
    ("sca", 0x6007),
    ("mpls", 0x8847),
    ("pppoed", 0x8863),
    ("pppoes", 0x8864),
    ("eapol", 0x888e),
    ("lldp", 0x88cc),
    ("macsec", 0x88e5),
    ("ptp", 0x88f7),
    ("loopback", 0x9000),
];

/// Returns the service of a name.
pub(crate) fn service(name: &str) -> Option<Service> {
    let entry = services().find(|(found, _)| *found == name)?.1;
    let (port, only) = match entry.as_bytes().last()? {
        b't' => (&entry[..entry.len() - 1], Some(Transport::Tcp)),
        b'u' => (&entry[..entry.len() - 1], Some(Transport::Udp)),
        _ => (entry, None),
    };
    Some(Service { port: port.parse().ok()?, only })
}

fn services() -> impl Iterator<Item = (&'static str, &'static str)> {
    SERVICES.split(',').filter_map(|entry| entry.trim().split_once(' '))
}

/// Returns the number of a protocol behind IP.
pub(crate) fn protocol(name: &str) -> Option<u32> {
    PROTOCOLS.iter().find(|(found, _)| *found == name).map(|(_, number)| *number)
}

/// Returns the number of an EtherType.
pub(crate) fn ethertype(name: &str) -> Option<u32> {
    ETHERTYPES.iter().find(|(found, _)| *found == name).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_name_has_one_entry() {
        let names: BTreeSet<&str> = services().map(|(name, _)| name).collect();
        assert_eq!(names.len(), SERVICES.split(',').count());
        for name in &names {
            assert!(service(name).is_some_and(|service| service.port > 0), "{name}");
            // A word of digits alone would be a number.
            assert!(name.contains(|c: char| c.is_ascii_lowercase()), "{name}");
        }
        for table in [PROTOCOLS, ETHERTYPES] {
            assert_eq!(table.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), table.len());
        }
    }

    #[test]
    fn services_have_the_ports_of_the_registry() {
        let of = |name| service(name).map(|s| (s.port, s.only));
        let expected = [
            ("domain", 53, None),
            ("https", 443, None),
            ("ssh", 22, None),
            ("ntp", 123, None),
            ("sip", 5060, None),
            ("shell", 514, Some(Transport::Tcp)),
            ("syslog", 514, Some(Transport::Udp)),
            ("vxlan", 4789, Some(Transport::Udp)),
        ];
        for (name, port, only) in expected {
            assert_eq!(of(name), Some((port, only)), "{name}");
        }
        // Three numbers are registered for it.
        assert_eq!(of("http-alt"), None);
    }
}
