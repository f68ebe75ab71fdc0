//! CheckIPHeader(INTERFACES, BADSRC, GOODDST, OFFSET, CHECKSUM, VERBOSE), CheckIPHeader2,
//! MarkIPHeader(OFFSET): check IPv4 headers, remove link padding, set the destination annotation;
//! MarkIPHeader only marks.
//! Expects: IPv4 packets, whose header is at OFFSET (0; MarkIPHeader: 14 is usual).
//! Gives: 0: good packets; 1, if connected: bad ones, which are otherwise dropped.
//! Handlers: drops, drop_details.
//! Example: `Strip(14) -> CheckIPHeader(INTERFACES 18.26.4.1/24)`
//!
//! CheckTCPHeader(VERBOSE), CheckUDPHeader(VERBOSE), CheckICMPHeader(VERBOSE): check transport headers with
//! their checksums.
//! Expects: packets with marked IP headers.
//! Gives: 0: good packets; 1, if connected: bad ones, which are otherwise dropped.
//! Handlers: drops.
//! Example: `CheckIPHeader -> CheckUDPHeader -> next`
//!
//! GetIPAddress(OFFSET), SetIPAddress(ADDRESS), StoreIPAddress(ADDRESS, OFFSET): set the destination
//! annotation from the packet or to a value; write it, or an address, into the packet. OFFSET may be `src` or
//! `dst`.
//! Expects: anything.
//! Gives: the same packets.
//! Handlers: none.
//! Example: `GetIPAddress(16) -> rt`
//!
//! FixIPSrc(ADDRESS), DecIPTTL(ACTIVE, MULTICAST): FixIPSrc sets the source of packets that an ICMPError
//! made; DecIPTTL decrements the time to live.
//! Expects: packets with marked IP headers.
//! Gives: 0: packets; 1 of DecIPTTL, if connected: expired packets, which are otherwise dropped.
//! Handlers: drops.
//! Example: `FixIPSrc(18.26.4.24) -> dt :: DecIPTTL -> fr; dt [1] -> ICMPError(18.26.4.24, timeexceeded)`
//!
//! SetIPDSCP(DSCP), SetIPECN(ECN), MarkIPCE(FORCE), SetIPChecksum, SetTCPChecksum, SetUDPChecksum: change
//! fields and update checksums. MarkIPCE drops packets that are not ECN capable, unless FORCE.
//! Expects: packets with marked IP headers.
//! Gives: the same packets.
//! Handlers: dscp (rw), drops.
//! Example: `q -> MarkIPCE -> out`

use super::util::{
    address_words, adjust_checksum, be16, checksum, ip_header, mark_ip, pseudo, set_ip_checksum,
    set_transport_checksum,
};
use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_FIX_IP_SRC, Packet};
use flame_click::{Args, Ip, Prefix, Value, text};
use std::cell::Cell;
use std::collections::HashSet;

const SOURCE: &str = include_str!("ip.rs");

#[derive(Clone, Copy)]
enum Bad {
    Short,
    Version,
    HeaderLength,
    Length,
    Checksum,
    Source,
}

impl Bad {
    fn name(self) -> &'static str {
        match self {
            Self::Short => "tiny packet",
            Self::Version => "bad IP version",
            Self::HeaderLength => "bad IP header length",
            Self::Length => "bad IP length",
            Self::Checksum => "bad IP checksum",
            Self::Source => "bad source address",
        }
    }
}

struct CheckIpHeader {
    offset: usize,
    checks: bool,
    bad_sources: HashSet<u32>,
    good_destinations: HashSet<u32>,
    checksum: bool,
    verbose: bool,
    drops: [Cell<u64>; 6],
}

impl CheckIpHeader {
    fn check(&self, p: &Packet) -> Result<usize, Bad> {
        let h = p.data().get(self.offset..).filter(|h| h.len() >= 20).ok_or(Bad::Short)?;
        if h[0] >> 4 != 4 {
            return Err(Bad::Version);
        }
        let header = usize::from(h[0] & 15) * 4;
        if header < 20 {
            return Err(Bad::HeaderLength);
        }
        let total = usize::from(be16(h, 2));
        if total < header || h.len() < header || total > h.len() + p.anno.u32(24) as usize {
            return Err(Bad::Length);
        }
        if self.checksum && checksum(&h[..header], 0) != 0 {
            return Err(Bad::Checksum);
        }
        let (src, dst) = (super::util::be32(h, 12), super::util::be32(h, 16));
        if self.bad_sources.contains(&src) && !self.good_destinations.contains(&dst) {
            return Err(Bad::Source);
        }
        Ok(total)
    }
}

impl Element for CheckIpHeader {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        if self.checks {
            match self.check(&p) {
                Ok(total) => {
                    mark_ip(&mut p, self.offset);
                    if self.offset + total < p.len() {
                        p.truncate(self.offset + total);
                    }
                }
                Err(bad) => {
                    if self.verbose || self.drops.iter().all(|d| d.get() == 0) {
                        cx.error(&format!("IP header check failed: {}", bad.name()));
                    }
                    add(&self.drops[bad as usize], 1);
                    cx.push_or_drop(1, bad.name(), p);
                    return None;
                }
            }
        } else {
            mark_ip(&mut p, self.offset);
        }
        let at = self.offset + 16;
        if self.checks
            && let Some(dst) = p.data().get(at..at + 4).map(Ip::from_bytes)
        {
            p.anno.set_dst_ip(dst);
        }
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "drops" => Some(Ok(self.drops.iter().map(Cell::get).sum::<u64>().to_string())),
            "drop_details" => {
                let all =
                    [Bad::Short, Bad::Version, Bad::HeaderLength, Bad::Length, Bad::Checksum, Bad::Source];
                Some(Ok(all
                    .iter()
                    .map(|b| format!("{:<15} {}\n", self.drops[*b as usize].get(), b.name()))
                    .collect()))
            }
            _ => None,
        }
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        self.drops.iter().collect()
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r"), ("drop_details", "r")]
    }
}

fn check_ip(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let scope = args.scope();
    let mut bad_sources: HashSet<u32> = HashSet::new();
    let mut good_destinations = HashSet::new();
    let checks = setup.class != "MarkIPHeader";
    let list = |args: &mut Args<'_>, key: &str, set: &mut HashSet<u32>| {
        let Some(list) = args.key::<flame_click::value::Raw>(key) else { return false };
        for word in text::words(&text::unquote(&list.0)) {
            match Ip::read(&word, &scope) {
                Some(ip) => {
                    set.insert(ip.0);
                }
                None => args.error(format!("{key}: expected IP addresses, found '{word}'")),
            }
        }
        true
    };
    let given = checks && list(args, "BADSRC", &mut bad_sources);
    if checks {
        list(args, "GOODDST", &mut good_destinations);
    }
    if let Some(interfaces) = args.key::<flame_click::value::Raw>("INTERFACES") {
        for word in text::words(&text::unquote(&interfaces.0)) {
            match Prefix::read(&word, &scope) {
                Some(net) => {
                    let network = net.network().ip.0;
                    bad_sources.extend([network, network | !net.mask.0]);
                    good_destinations.insert(net.ip.0);
                }
                None => args.error(format!("INTERFACES: expected prefixes, found '{word}'")),
            }
        }
        bad_sources.extend([0, u32::MAX]);
    } else if checks && !given {
        // An old form: the bad sources come first.
        if args.peek().is_some_and(|a| a.contains('.')) {
            for word in args.opt::<String>("BADSRC").unwrap_or_default().split_ascii_whitespace() {
                bad_sources.extend(Ip::parse(word).map(|ip| ip.0));
            }
        }
    }
    args.ignore::<bool>("DETAILS");
    let offset = args.opt::<u16>("OFFSET").unwrap_or(0);
    Box::new(CheckIpHeader {
        offset: offset.into(),
        checks,
        bad_sources,
        good_destinations,
        checksum: args.key("CHECKSUM").unwrap_or(true) && setup.class != "CheckIPHeader2",
        verbose: args.key("VERBOSE").unwrap_or(false),
        drops: Default::default(),
    })
}

class!(
    CHECK_IP_HEADER,
    "CheckIPHeader",
    "1/1-2",
    "a/ah",
    ["OFFSET", "INTERFACES", "BADSRC", "GOODDST", "CHECKSUM", "VERBOSE", "DETAILS"],
    check_ip
);
class!(
    CHECK_IP_HEADER2,
    "CheckIPHeader2",
    "1/1-2",
    "a/ah",
    ["OFFSET", "INTERFACES", "BADSRC", "GOODDST", "CHECKSUM", "VERBOSE", "DETAILS"],
    check_ip
);
class!(MARK_IP_HEADER, "MarkIPHeader", "1/1", "a/a", ["OFFSET"], check_ip);

struct CheckTransport {
    protocol: u8,
    verbose: bool,
    drops: Cell<u64>,
}

impl CheckTransport {
    fn check(&self, p: &Packet) -> Result<(), &'static str> {
        let h = ip_header(p).ok_or("not IP")?;
        if h.protocol != self.protocol {
            return Err("other protocol");
        }
        let t = &p.data()[h.payload()..h.end()];
        let least = if self.protocol == 6 { 20 } else { 8 };
        if t.len() < least || !h.is_first_fragment() {
            return Err("bad length");
        }
        let (length, plus) = match self.protocol {
            6 if usize::from(t[12] >> 4) * 4 < 20 || usize::from(t[12] >> 4) * 4 > t.len() => {
                return Err("bad header length");
            }
            17 => {
                let length = usize::from(be16(t, 4));
                if length < 8 || length > t.len() {
                    return Err("bad length");
                }
                if be16(t, 6) == 0 {
                    return Ok(());
                }
                (length, pseudo(&p.data()[h.at..], length))
            }
            6 => (t.len(), pseudo(&p.data()[h.at..], t.len())),
            _ => (t.len(), 0),
        };
        if checksum(&t[..length], plus) == 0 { Ok(()) } else { Err("bad checksum") }
    }
}

impl Element for CheckTransport {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        match self.check(&p) {
            Ok(()) => Some(p),
            Err(cause) => {
                if self.verbose || self.drops.get() == 0 {
                    cx.error(&format!("header check failed: {cause}"));
                }
                add(&self.drops, 1);
                cx.push_or_drop(1, cause, p);
                None
            }
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "drops").then(|| Ok(self.drops.get().to_string()))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r")]
    }
}

fn check_transport(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    args.ignore::<bool>("DETAILS");
    let protocol = match setup.class {
        "CheckTCPHeader" => 6,
        "CheckUDPHeader" => 17,
        _ => 1,
    };
    Box::new(CheckTransport { protocol, verbose: args.key("VERBOSE").unwrap_or(false), drops: Cell::new(0) })
}

class!(CHECK_TCP_HEADER, "CheckTCPHeader", "1/1-2", "a/ah", ["VERBOSE", "DETAILS"], check_transport);
class!(CHECK_UDP_HEADER, "CheckUDPHeader", "1/1-2", "a/ah", ["VERBOSE", "DETAILS"], check_transport);
class!(CHECK_ICMP_HEADER, "CheckICMPHeader", "1/1-2", "a/ah", ["VERBOSE", "DETAILS"], check_transport);

/// A place for an address.
#[derive(Clone, Copy)]
enum Place {
    Offset(usize),
    Source,
    Destination,
}

impl Place {
    fn of(args: &mut Args<'_>) -> Self {
        match args.req::<String>("OFFSET").as_str() {
            "src" => Self::Source,
            "dst" => Self::Destination,
            text => match text.parse::<u16>() {
                Ok(offset) => Self::Offset(offset.into()),
                Err(_) => {
                    args.error(format!("OFFSET: expected a number, src or dst, found '{text}'"));
                    Self::Source
                }
            },
        }
    }
}

/// Writes an address into the IP header and updates the checksums that cover it.
pub fn set_ip(p: &mut Packet, is_source: bool, ip: Ip) {
    let Some(h) = ip_header(p) else { return };
    let at = h.at + if is_source { 12 } else { 16 };
    let old = Ip::from_bytes(&p.data()[at..]);
    let field = match h.protocol {
        6 => Some(16),
        17 => Some(6),
        _ => None,
    };
    let data = p.data_mut();
    let changes = address_words(old, ip);
    data[at..at + 4].copy_from_slice(&ip.bytes());
    adjust_checksum(data, h.at + 10, false, &changes);
    if let Some(field) = field.filter(|f| h.is_first_fragment() && h.payload() + f + 2 <= h.end()) {
        adjust_checksum(data, h.payload() + field, h.protocol == 17, &changes);
    }
}

enum Address {
    Get(usize),
    Set(Ip),
    Store(Option<Ip>, Place),
    FixSource(Ip),
}

impl Element for Address {
    fn action(&self, _: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        match self {
            Self::Get(at) => {
                if let Some(ip) = p.data().get(*at..at + 4).map(Ip::from_bytes) {
                    p.anno.set_dst_ip(ip);
                }
            }
            Self::Set(ip) => p.anno.set_dst_ip(*ip),
            Self::Store(ip, place) => {
                let ip = ip.unwrap_or_else(|| p.anno.dst_ip());
                match place {
                    Place::Offset(at) => {
                        if let Some(b) = p.data_mut().get_mut(*at..at + 4) {
                            b.copy_from_slice(&ip.bytes());
                        }
                    }
                    // These packets are marked; a malformed header is written all the same.
                    place => store_ip(&mut p, matches!(place, Place::Source), ip),
                }
            }
            Self::FixSource(ip) => {
                if p.anno.bytes[ANNO_FIX_IP_SRC] != 0 {
                    p.anno.bytes[ANNO_FIX_IP_SRC] = 0;
                    set_ip(&mut p, true, *ip);
                }
            }
        }
        Some(p)
    }
}

/// Writes an address where the IP header is marked, and updates its checksum.
fn store_ip(p: &mut Packet, is_source: bool, ip: Ip) {
    let Some(start) = p.network().filter(|n| n + 20 <= p.len()) else { return };
    if ip_header(p).is_some() {
        return set_ip(p, is_source, ip);
    }
    let at = start + if is_source { 12 } else { 16 };
    let data = p.data_mut();
    let old = Ip::from_bytes(&data[at..]);
    data[at..at + 4].copy_from_slice(&ip.bytes());
    adjust_checksum(data, start + 10, false, &address_words(old, ip));
}

class!(GET_IP_ADDRESS, "GetIPAddress", "1/1", "a/a", ["OFFSET"], |args, _| {
    Box::new(Address::Get(args.req::<u16>("OFFSET").into()))
});
class!(SET_IP_ADDRESS, "SetIPAddress", "1/1", "a/a", ["IPADDR"], |args, _| {
    Box::new(Address::Set(args.req("IPADDR")))
});
class!(STORE_IP_ADDRESS, "StoreIPAddress", "1/1", "a/a", ["IPADDR", "OFFSET"], |args, setup| {
    let has_address = text::split(setup.config).len() > 1;
    let ip = if has_address { Some(args.req("IPADDR")) } else { None };
    Box::new(Address::Store(ip, Place::of(args)))
});
class!(FIX_IP_SRC, "FixIPSrc", "1/1", "a/a", ["IPADDR"], |args, _| Box::new(Address::FixSource(
    args.req("IPADDR")
)));

struct DecIpTtl {
    is_active: bool,
    multicast: bool,
    drops: Cell<u64>,
}

impl Element for DecIpTtl {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let Some(h) = ip_header(&p) else {
            cx.drop("not IP", p);
            return None;
        };
        if !self.is_active || !self.multicast && h.destination.is_multicast() {
            return Some(p);
        }
        let data = p.data_mut();
        if data[h.at + 8] <= 1 {
            add(&self.drops, 1);
            cx.push_or_drop(1, "expired", p);
            return None;
        }
        let old = be16(data, h.at + 8);
        data[h.at + 8] -= 1;
        adjust_checksum(data, h.at + 10, false, &[(old, old - 0x100)]);
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "drops").then(|| Ok(self.drops.get().to_string()))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r")]
    }
}

class!(DEC_IP_TTL, "DecIPTTL", "1/1-2", "a/ah", ["ACTIVE", "MULTICAST"], |args, _| {
    Box::new(DecIpTtl {
        is_active: args.key("ACTIVE").unwrap_or(true),
        multicast: args.key("MULTICAST").unwrap_or(true),
        drops: Cell::new(0),
    })
});

/// Sets bits of the type-of-service field: (mask of what stays, bits).
struct SetTos {
    keep: u8,
    bits: u8,
    /// MarkIPCE: only if the packet is ECN capable.
    needs_ecn: bool,
    drops: Cell<u64>,
}

impl Element for SetTos {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let Some(h) = ip_header(&p) else {
            cx.drop("not IP", p);
            return None;
        };
        if self.needs_ecn && p.data()[h.at + 1] & 3 == 0 {
            add(&self.drops, 1);
            cx.drop("not ECN capable", p);
            return None;
        }
        let data = p.data_mut();
        let old = be16(data, h.at);
        data[h.at + 1] = data[h.at + 1] & self.keep | self.bits;
        let new = be16(data, h.at);
        adjust_checksum(data, h.at + 10, false, &[(old, new)]);
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "dscp" => Some(Ok((self.bits >> 2).to_string())),
            "ecn" => Some(Ok((self.bits & 3).to_string())),
            "drops" => Some(Ok(self.drops.get().to_string())),
            _ => None,
        }
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let key = match name {
            "dscp" => "DSCP",
            "ecn" => "ECN",
            _ => return None,
        };
        Some(cx.router.set_argument(cx.me, key, 0, value))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("dscp", "rw"), ("ecn", "rw"), ("drops", "r")]
    }
}

fn set_tos(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let (keep, bits, needs_ecn) = match setup.class {
        "SetIPDSCP" => {
            let dscp: u8 = args.req("DSCP");
            if dscp > 63 {
                args.error(format!("DSCP: expected 0 to 63, found {dscp}"));
            }
            (3, dscp << 2, false)
        }
        "SetIPECN" => match args.req::<String>("ECN").as_str() {
            "0" | "no" => (!3, 0, false),
            "1" | "ect1" | "ect" => (!3, 1, false),
            "2" | "ect2" | "ect0" => (!3, 2, false),
            "3" | "ce" => (!3, 3, false),
            other => {
                args.error(format!("ECN: expected no, ect1, ect2 or ce, found '{other}'"));
                (!3, 0, false)
            }
        },
        _ => (!3, 3, !args.opt("FORCE").unwrap_or(false)),
    };
    Box::new(SetTos { keep, bits, needs_ecn, drops: Cell::new(0) })
}

class!(SET_IP_DSCP, "SetIPDSCP", "1/1", "a/a", ["DSCP"], set_tos);
class!(SET_IP_ECN, "SetIPECN", "1/1", "a/a", ["ECN"], set_tos);
class!(MARK_IP_CE, "MarkIPCE", "1/1", "a/a", ["FORCE"], set_tos);

struct SetChecksum(u8);

impl Element for SetChecksum {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let is_done = match (self.0, ip_header(&p)) {
            (0, Some(h)) => {
                set_ip_checksum(&mut p.data_mut()[h.at..]);
                true
            }
            (protocol, Some(_)) => set_transport_checksum(&mut p, protocol),
            (_, None) => false,
        };
        if is_done {
            return Some(p);
        }
        cx.push_or_drop(1, "no such header", p);
        None
    }
}

class!(SET_IP_CHECKSUM, "SetIPChecksum", "1/1-2", "a/ah", [], |_, _| Box::new(SetChecksum(0)));
class!(SET_TCP_CHECKSUM, "SetTCPChecksum", "1/1-2", "a/ah", [], |_, _| Box::new(SetChecksum(6)));
class!(SET_UDP_CHECKSUM, "SetUDPChecksum", "1/1-2", "a/ah", [], |_, _| Box::new(SetChecksum(17)));
