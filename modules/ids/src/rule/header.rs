//! `ACTION PROTOCOL SOURCE PORT DIRECTION DESTINATION PORT (`

use super::address::Addresses;
use super::fault::{Wrong, wrong};
use super::port::Ports;
use super::text::Piece;
use super::vars::Variables;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    Ip,
    Tcp,
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
}

#[derive(Clone, Debug)]
pub struct Header {
    pub proto: Proto,
    pub src: Addresses,
    pub sport: Ports,
    pub dst: Addresses,
    pub dport: Ports,
    /// Whether the rule matches either direction (`<>`).
    pub both: bool,
}

/// The known actions of Snort, of which only `alert` is supported.
const ACTIONS: [&str; 9] =
    ["alert", "log", "pass", "drop", "reject", "sdrop", "activate", "dynamic", "block"];
/// Protocols that other engines have rules for.
const OTHERS: [&str; 18] = [
    "http", "http1", "http2", "dns", "tls", "ssl", "smb", "smtp", "ftp", "ftp-data", "ssh", "dcerpc",
    "modbus", "sip", "file", "arp", "sctp", "pkthdr",
];

pub fn is_action(word: &str) -> bool {
    ACTIONS.contains(&word)
}

/// Parses the header and returns it with the text after it. Reasons why the rule cannot be used go to
/// `unsupported`.
pub fn read<'a>(
    piece: Piece<'a>,
    vars: &Variables,
    unsupported: &mut Vec<String>,
) -> Result<(Header, Piece<'a>), Wrong> {
    let (action, rest) = piece.word(&['(']);
    if action.text != "alert" {
        unsupported.push(format!("action {}", action.text));
    }
    let (word, rest) = rest.skip_space().word(&['(']);
    let proto = match word.text {
        "ip" => Proto::Ip,
        "tcp" => Proto::Tcp,
        "udp" => Proto::Udp,
        "icmp" => Proto::Icmp,
        other if OTHERS.contains(&other) => {
            unsupported.push(format!("protocol {other}"));
            Proto::Ip
        }
        _ => return wrong(word.at, "tcp, udp, icmp or ip"),
    };
    let (src, rest) = field(rest, "an address or any")?;
    let src = vars.addresses(src)?;
    let (sport, rest) = field(rest, "a port or any")?;
    let sport = vars.ports(sport)?;
    let (arrow, rest) = rest.skip_space().word(&['(']);
    let both = match arrow.text {
        "->" => false,
        "<>" => true,
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
    Ok((Header { proto, src, sport, dst, dport, both }, rest.skip_space()))
}

/// Returns one field: the text up to white space, or a list including the white space in it.
fn field<'a>(piece: Piece<'a>, expected: &str) -> Result<(Piece<'a>, Piece<'a>), Wrong> {
    let piece = piece.skip_space();
    let mut depth = 0usize;
    let mut end = piece.text.len();
    for (i, c) in piece.text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '(' | '\n' => {
                end = i;
                break;
            }
            c if c.is_whitespace() && depth == 0 && piece.text[..i] != *"!" => {
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
