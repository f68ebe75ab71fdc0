//! ICMPError(SRC, TYPE, CODE, BADADDRS, MTU, PMTU, SET_FIX_ANNO): answers a packet with an ICMP error of at
//! most MTU bytes (576; at least 68). TYPE is unreachable, sourcequench, redirect, timeexceeded,
//! parameterproblem or its number. Those of `unreachable, needfrag` report PMTU (0, which says nothing);
//! those of `parameterproblem, erroratptr` point at what IPGWOptions found, or at byte 0. None is made for
//! errors, later fragments, packets to or from addresses of many or those of BADADDRS, and packets from
//! 0.0.0.0/8 or 127.0.0.0/8.
//! Expects: packets with marked IP headers.
//! Gives: ICMP packets, marked for FixIPSrc and annotated with their destination.
//! Handlers: src, type, code.
//! Example: `dt [1] -> ICMPError(18.26.4.24, timeexceeded) -> rt`
//!
//! ICMPPingResponder: answers echo requests.
//! Expects: packets with marked IP headers.
//! Gives: 0: replies; 1, if connected: other packets, which are otherwise dropped.
//! Handlers: none.
//! Example: `rt [0] -> ICMPPingResponder -> rt`

use super::summary_fields::{icmp_name, icmp_type};
use super::util::{adjust_checksum, be32, ip_header, put16, put32, set_ip_checksum, set_transport_checksum};
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_FIX_IP_SRC, ANNO_ICMP_PARAMPROB, Kind, Packet};
use flame_click::{Ip, Value, text};
use std::cell::Cell;
use std::collections::HashSet;

const SOURCE: &str = include_str!("icmp.rs");

struct IcmpError {
    src: Ip,
    kind: u8,
    code: u8,
    /// The length of the longest error.
    mtu: u16,
    /// The longest packet of the way on, which an error reports.
    pmtu: u16,
    /// Addresses whose packets are not answered.
    bad: HashSet<Ip>,
    /// Whether packets are marked for FixIPSrc.
    fix: bool,
    id: Cell<u16>,
}

/// Names of codes: (type, code, name).
const CODES: &[(u8, u8, &str)] = &[
    (3, 0, "net"),
    (3, 1, "host"),
    (3, 2, "protocol"),
    (3, 3, "port"),
    (3, 4, "needfrag"),
    (3, 5, "srcroute"),
    (3, 9, "netprohibited"),
    (3, 10, "hostprohibited"),
    (3, 13, "filterprohibited"),
    (5, 0, "net"),
    (5, 1, "host"),
    (5, 2, "netservice"),
    (5, 3, "hostservice"),
    (11, 0, "transit"),
    (11, 1, "reassembly"),
    (12, 0, "erroratptr"),
    (12, 1, "missingopt"),
    (12, 2, "length"),
];

pub fn code_name(kind: u8, code: u8) -> Option<&'static str> {
    CODES.iter().find(|c| (c.0, c.1) == (kind, code)).map(|c| c.2)
}

/// The length of the longest ICMP error, unless it is stated.
const LONGEST: u16 = 576;

/// The length that any link carries, which has room for the headers of an error.
const SHORTEST: u16 = 68;

/// Returns the way back that a source route has recorded: an option with the visited routers reversed.
fn reversed_route(options: &[u8]) -> Vec<u8> {
    let mut at = 0;
    while at < options.len() {
        let length = match options[at] {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            _ => usize::from(*options.get(at + 1).unwrap_or(&0)),
        };
        let Some(o) = options.get(at..at + length).filter(|_| length >= 2) else { break };
        if matches!(o[0], 131 | 137) && length >= 3 {
            let visited = (usize::from(o[2]).saturating_sub(4)).min(length - 3) / 4;
            if visited > 0 {
                let mut route = vec![o[0], (visited * 4 + 3) as u8, 4];
                (0..visited).rev().for_each(|i| route.extend_from_slice(&o[3 + i * 4..7 + i * 4]));
                route.resize(route.len().div_ceil(4) * 4, 0);
                return route;
            }
        }
        at += length;
    }
    Vec::new()
}

const UNREACHABLE: u8 = 3;

/// Returns whether ICMP packets of a type are errors: unreachable, source quench, redirect, time exceeded,
/// parameter problem.
pub fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | 4 | 5 | 11 | 12)
}

impl IcmpError {
    /// Returns why no error is made for this packet.
    fn refuse(&self, p: &Packet) -> Option<&'static str> {
        let Some(h) = ip_header(p) else { return Some("not IP") };
        let is_many = |ip: Ip| ip.is_multicast() || ip.0 == u32::MAX || ip.0 >> 28 == 15;
        if !h.is_first_fragment() {
            return Some("later fragment");
        }
        // No host has an address of network 0 (RFC 1812, 4.3.2.7).
        let is_none = matches!(h.source.0 >> 24, 0 | 127);
        if is_none || is_many(h.source) || is_many(h.destination) {
            return Some("address of many");
        }
        if self.bad.contains(&h.source) || self.bad.contains(&h.destination) {
            return Some("bad address");
        }
        if matches!(p.anno.kind, Kind::Broadcast | Kind::Multicast) {
            return Some("broadcast");
        }
        let kind = p.data().get(h.payload());
        if h.protocol == 1 && kind.is_none_or(|k| !matches!(k, 0 | 8 | 9 | 10 | 13..=18)) {
            return Some("ICMP error");
        }
        None
    }
}

impl Element for IcmpError {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if let Some(cause) = self.refuse(&p) {
            cx.drop(cause, p);
            return None;
        }
        let h = ip_header(&p)?;
        let route = reversed_route(&p.data()[h.at + 20..h.at + h.length]);
        let header = 20 + route.len();
        let quoted = &p.data()[h.at..h.end().min(h.at + usize::from(self.mtu).saturating_sub(header + 8))];
        let total = header + 8 + quoted.len();
        let mut q =
            Packet::with_room(crate::runtime::packet::HEADROOM, total, crate::runtime::packet::TAILROOM);
        let d = q.data_mut();
        d[..header + 8].fill(0);
        d[0] = 0x40 | (header / 4) as u8;
        put16(d, 2, total as u16);
        put16(d, 4, self.id.get());
        self.id.set(self.id.get().wrapping_add(1));
        (d[8], d[9]) = (255, 1);
        put32(d, 12, self.src.0);
        put32(d, 16, h.source.0);
        d[20..header].copy_from_slice(&route);
        (d[header], d[header + 1]) = (self.kind, self.code);
        match (self.kind, self.code) {
            (5, _) => d[header + 4..header + 8].copy_from_slice(&p.anno.dst_ip().bytes()),
            (3, 4) => put16(d, header + 6, self.pmtu),
            (12, 0) => d[header + 4] = p.anno.bytes[ANNO_ICMP_PARAMPROB],
            _ => {}
        }
        d[header + 8..].copy_from_slice(quoted);
        q.set_network(0, header);
        set_ip_checksum(q.data_mut());
        set_transport_checksum(&mut q, 1);
        q.anno.time = cx.now();
        q.anno.set_dst_ip(h.source);
        q.anno.bytes[ANNO_FIX_IP_SRC] = u8::from(self.fix);
        cx.made(1);
        cx.drop("answered", p);
        Some(q)
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "src" => self.src.to_string(),
            "type" => icmp_name(self.kind).map_or(self.kind.to_string(), str::to_owned),
            "code" => self.code.to_string(),
            _ => return None,
        }))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("src", "r"), ("type", "r"), ("code", "r")]
    }
}

class!(
    ICMP_ERROR,
    "ICMPError",
    "1/1",
    "a/a",
    ["SRC", "TYPE", "CODE", "BADADDRS", "MTU", "PMTU", "SET_FIX_ANNO", "USE_FIX_ANNO"],
    |args, _| {
        let src = args.req("SRC");
        let kind: String = args.req("TYPE");
        let kind = icmp_type(&kind).unwrap_or_else(|| {
            args.error(format!("TYPE: expected a type of ICMP, found '{kind}'"));
            UNREACHABLE
        });
        if !is_error(kind) {
            args.error(format!("TYPE: ICMP type {kind} is not an error type"));
        }
        let code = args.opt::<String>("CODE").map_or(Some(0), |c| {
            let named = CODES.iter().find(|k| k.0 == kind && k.2 == c).map(|k| k.1);
            named.or_else(|| c.parse().ok())
        });
        let code = code.unwrap_or_else(|| {
            args.error("CODE: expected a code of this type");
            0
        });
        let scope = args.scope();
        let mut bad = HashSet::new();
        for word in text::words(&args.opt::<String>("BADADDRS").unwrap_or_default()) {
            match Ip::read(&word, &scope) {
                Some(ip) => bad.extend([ip]),
                None => args.error(format!("BADADDRS: expected IP addresses, found '{word}'")),
            }
        }
        let fix = args.key("SET_FIX_ANNO").or_else(|| args.key("USE_FIX_ANNO")).unwrap_or(true);
        let mtu = args.key("MTU").unwrap_or(LONGEST);
        if mtu < SHORTEST {
            args.error(format!("MTU: expected at least {SHORTEST}, found {mtu}"));
        }
        let pmtu = args.key("PMTU").unwrap_or(0);
        Box::new(IcmpError { src, kind, code, mtu, pmtu, bad, fix, id: Cell::new(1) })
    }
);

/// Brings the checksum of an ICMP message up to date after words of it changed. That of nothing but zeros is
/// ffff.
pub fn adjust_icmp(message: &mut [u8], changes: &[(u16, u16)]) {
    adjust_checksum(message, 2, false, changes);
    if message.iter().all(|byte| *byte == 0) {
        put16(message, 2, 0xffff);
    }
}

struct PingResponder;

impl Element for PingResponder {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let header = ip_header(&p);
        let h = match header {
            Some(h)
                if h.protocol == 1
                    && h.is_first_fragment()
                    && p.data().get(h.payload()) == Some(&8)
                    && h.total >= h.length + 8 =>
            {
                h
            }
            _ => {
                cx.push_or_drop(1, "no echo request", p);
                return None;
            }
        };
        let data = p.data_mut();
        let (src, dst) = (be32(data, h.at + 12), be32(data, h.at + 16));
        put32(data, h.at + 12, dst);
        put32(data, h.at + 16, src);
        data[h.payload()] = 0;
        adjust_icmp(&mut data[h.payload()..h.end()], &[(0x0800, 0)]);
        p.anno.set_dst_ip(Ip(src));
        Some(p)
    }
}

class!(ICMP_PING_RESPONDER, "ICMPPingResponder", "1/1-2", "a/ah", [], |_, _| Box::new(PingResponder));
