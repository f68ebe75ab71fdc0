//! Names of applications by the port that IANA assigned to them. A port is a guess, not a finding: any
//! application can use any port.

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Returns the application of a flow: that of the lower of the ports that have a name.
pub(crate) fn name(proto: u8, sport: u16, dport: u16) -> Option<&'static str> {
    let (low, high) = (sport.min(dport), sport.max(dport));
    [low, high].into_iter().find_map(|port| {
        NAMES.iter().find(|(p, protos, _)| *p == port && protos.contains(&proto)).map(|(_, _, name)| *name)
    })
}

const BOTH: &[u8] = &[TCP, UDP];
const T: &[u8] = &[TCP];
const U: &[u8] = &[UDP];

/// Ports, the protocols on which they have the name, and the name.
#[rustfmt::skip]
const NAMES: [(u16, &[u8], &str); 64] = [
    (20, T, "ftp-data"), (21, T, "ftp"), (22, T, "ssh"), (23, T, "telnet"), (25, T, "smtp"), (43, T, "whois"),
    (49, BOTH, "tacacs"), (53, BOTH, "dns"), (67, U, "dhcp"), (68, U, "dhcp"), (69, U, "tftp"),
    (80, T, "http"), (88, BOTH, "kerberos"), (110, T, "pop3"), (111, BOTH, "sunrpc"), (119, T, "nntp"),
    (123, U, "ntp"), (135, T, "epmap"), (137, U, "netbios-ns"), (138, U, "netbios-dgm"),
    (139, T, "netbios-ssn"), (143, T, "imap"), (161, U, "snmp"), (162, U, "snmptrap"), (179, T, "bgp"),
    (194, T, "irc"), (319, U, "ptp"), (320, U, "ptp"), (389, BOTH, "ldap"), (443, T, "https"),
    (443, U, "quic"), (445, T, "smb"), (465, T, "submissions"), (500, U, "isakmp"), (502, T, "modbus"),
    (514, U, "syslog"), (520, U, "rip"), (546, U, "dhcpv6"), (547, U, "dhcpv6"), (554, BOTH, "rtsp"),
    (587, T, "submission"), (631, T, "ipp"), (636, T, "ldaps"), (853, BOTH, "dot"), (873, T, "rsync"),
    (989, T, "ftps-data"), (990, T, "ftps"), (993, T, "imaps"), (995, T, "pop3s"), (1194, U, "openvpn"),
    (1433, T, "mssql"), (1812, U, "radius"), (1813, U, "radius-acct"), (1883, T, "mqtt"), (1900, U, "ssdp"),
    (2049, BOTH, "nfs"), (2905, &[TCP, SCTP], "m3ua"), (3306, T, "mysql"), (3389, BOTH, "rdp"),
    (5060, &[TCP, UDP, SCTP], "sip"), (5353, U, "mdns"), (5432, T, "postgresql"), (6379, T, "redis"),
    (4789, U, "vxlan"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_known_port_decides() {
        assert_eq!(name(TCP, 50_000, 443), Some("https"));
        assert_eq!(name(UDP, 443, 50_000), Some("quic"));
        assert_eq!(name(UDP, 53, 5353), Some("dns"));
        assert_eq!(name(TCP, 52, 3306), Some("mysql"), "a lower port without a name does not count");
        assert_eq!(name(TCP, 50_000, 50_001), None);
        assert_eq!(name(1, 80, 80), None);
    }

    #[test]
    fn no_port_has_two_names() {
        for (i, (port, protos, name)) in NAMES.iter().enumerate() {
            let again = NAMES[..i].iter().find(|(p, q, _)| p == port && q.iter().any(|x| protos.contains(x)));
            assert!(again.is_none(), "{port} {name}");
        }
    }
}
