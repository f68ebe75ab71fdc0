//! `ACTION PROTOCOL SOURCE PORT DIRECTION DESTINATION PORT (`

use super::address::Addresses;
use super::fault::{Wrong, wrong};
use super::port::Ports;
use super::text::Piece;
use super::vars::Variables;
use super::{App, proto};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    Ip,
    Tcp,
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// TCP and UDP, of a protocol above them.
    Either,
}

/// What a rule does with a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Alert,
    /// No other rule alerts on the packet, or in Suricata's dialect on its connection, depending on the rule.
    Pass,
}

#[derive(Clone, Debug)]
pub struct Header {
    pub action: Action,
    pub proto: Proto,
    /// The version of IP, if only one matches.
    pub family: Option<u8>,
    /// The protocol number, if the name of the rule's protocol is one of a single number.
    pub number: Option<u8>,
    /// The protocol above TCP or UDP.
    pub app: Option<App>,
    pub src: Arc<Addresses>,
    pub sport: Arc<Ports>,
    pub dst: Arc<Addresses>,
    pub dport: Arc<Ports>,
    /// Whether the rule matches either direction (`<>`).
    pub both: bool,
}

/// The known actions of Snort and Suricata, of which `alert` and `pass` are supported.
const ACTIONS: [&str; 13] = [
    "alert",
    "log",
    "pass",
    "drop",
    "reject",
    "sdrop",
    "activate",
    "dynamic",
    "block",
    "rejectsrc",
    "rejectdst",
    "rejectboth",
    "accept",
];
/// Protocols that need reassembled streams.
const STREAMS: &[&str] = &[
    "http",
    "http1",
    "http2",
    "smb",
    "smtp",
    "ftp",
    "ftp-data",
    "ssh",
    "imap",
    "pop3",
    "dcerpc",
    "dnp3",
    "modbus",
    "enip",
    "nfs",
    "tcp-stream",
    "rdp",
    "rfb",
    "telnet",
    "pgsql",
    "mqtt",
    "ldap",
    "websocket",
    "file",
    "doh2",
    "irc",
    "msn",
    "bittorrent-dht",
];
/// Protocols whose messages this module does not parse.
const OTHERS: &[&str] = &[
    "llmnr", "template", "sip", "snmp", "dhcp", "ike", "ikev2", "krb5", "tftp", "ntp", "quic", "mdns", "arp",
    "ether", "pkthdr",
];

#[inline(never)]
pub fn is_action(word: &str) -> bool {
    ACTIONS.contains(&word)
}

/// Parses the header and returns it with the text after it. Reasons why the rule cannot be used go to
/// `unsupported`.
///
/// # Errors
///
/// Returns an error with its offset if the protocol, the direction, an address or a port is missing or not
/// valid.
#[inline(never)]
pub fn read<'a>(
    piece: Piece<'a>,
    vars: &mut Variables,
    unsupported: &mut Vec<String>,
) -> Result<(Header, Piece<'a>), Wrong> {
    let (action, rest) = piece.word(&['(']);
    let action = match action.text {
        "pass" => Action::Pass,
        other => {
            if other != "alert" {
                unsupported.push(format!("action {other}"));
            }
            Action::Alert
        }
    };
    let (word, rest) = rest.skip_space().word(&['(']);
    // Suricata 8 names a point of the evaluation after the protocol.
    let word = match word.text.find(':') {
        Some(colon) => {
            unsupported.push("hook of a protocol".to_owned());
            word.to(colon)
        }
        None => word,
    };
    let (mut family, mut number, mut app) = (None, None, None);
    let proto = match word.text {
        "ip" => Proto::Ip,
        "tcp" | "tcp-pkt" => Proto::Tcp,
        "udp" => Proto::Udp,
        "icmp" => Proto::Icmp,
        "ipv4" | "ip4" | "ipv6" | "ip6" => {
            family = Some(if word.text.ends_with('4') { 4 } else { 6 });
            Proto::Ip
        }
        "icmpv4" | "icmpv6" => {
            number = Some(if word.text.ends_with('4') { 1 } else { 58 });
            Proto::Icmp
        }
        "dns" => {
            app = Some(App::Dns);
            Proto::Either
        }
        "tls" | "ssl" => {
            app = Some(App::Tls);
            Proto::Tcp
        }
        other if STREAMS.contains(&other) => {
            unsupported.push(format!("protocol {other} (needs streams)"));
            Proto::Ip
        }
        other if OTHERS.contains(&other) => {
            unsupported.push(format!("protocol {other}"));
            Proto::Ip
        }
        other => match proto::number(other) {
            Some(found) => {
                number = Some(found);
                Proto::Ip
            }
            None => return wrong(word.at, "the name of a protocol, as tcp, udp, icmp, ip, dns or tls"),
        },
    };
    let (src, rest) = field(rest, "an address or any")?;
    let src = vars.addresses(src)?;
    let (sport, rest) = field(rest, "a port or any")?;
    let sport = vars.ports(sport)?;
    let (arrow, rest) = rest.skip_space().word(&['(']);
    let both = match arrow.text {
        "->" => false,
        "<>" => true,
        "=>" => {
            unsupported.push("direction => (needs transactions)".to_owned());
            false
        }
        _ => return wrong(arrow.at, "`->` or `<>`"),
    };
    let (dst, rest) = field(rest, "an address or any")?;
    let dst = vars.addresses(dst)?;
    let (dport, rest) = field(rest, "a port or any")?;
    let dport_at = dport.at;
    let dport = vars.ports(dport)?;
    if matches!(proto, Proto::Icmp) && !(sport.is_all() && dport.is_all()) {
        return wrong(dport_at, "any: ICMP has no ports");
    }
    Ok((Header { action, proto, family, number, app, src, sport, dst, dport, both }, rest.skip_space()))
}

/// Returns one field: the text up to white space, or a list including the white space in it.
#[inline(never)]
fn field<'a>(piece: Piece<'a>, expected: &str) -> Result<(Piece<'a>, Piece<'a>), Wrong> {
    let piece = piece.skip_space();
    let mut depth = 0usize;
    let mut end = piece.text.len();
    for (i, b) in piece.text.bytes().enumerate() {
        match b {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b'(' | b'\n' => {
                end = i;
                break;
            }
            b' ' | b'\t' | b'\r' if depth == 0 && piece.text.as_bytes()[..i] != *b"!" => {
                end = i;
                break;
            }
            _ => {}
        }
    }
    if end == 0 {
        return wrong(piece.at, expected);
    }
    Ok((piece.to(end), piece.from(end)))
}
