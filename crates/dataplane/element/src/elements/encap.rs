//! IPEncap(PROTO, SRC, DST, TOS, TTL, DF), UDPIPEncap(SRC, SPORT, DST, DPORT), ICMPPingEncap(SRC, DST,
//! IDENTIFIER), ICMPIPEncap(SRC, DST, TYPE, CODE): put packets into new IP packets, with correct checksums.
//! Expects: anything, up to 65,000 bytes.
//! Gives: IP packets with marked headers and destination annotations.
//! Handlers: src (rw), dst (rw).
//! Example: `UDPIPEncap(1.0.0.1, 1234, 2.0.0.2, 53) -> EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2)`

use super::summary_fields::{icmp_type, parse_protocol};
use super::util::{put16, put32, set_ip_checksum, set_transport_checksum};
use crate::registry::Setup;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Packet;
use flame_click::{Args, Ip, Value};
use std::cell::Cell;

const SOURCE: &str = include_str!("encap.rs");

enum Inner {
    None,
    Udp(u16, u16, bool),
    Icmp { kind: u8, code: u8, identifier: u16 },
}

struct Encap {
    protocol: u8,
    src: Ip,
    /// None: the destination annotation.
    dst: Option<Ip>,
    tos: u8,
    ttl: u8,
    df: bool,
    inner: Inner,
    id: Cell<u16>,
}

impl Element for Encap {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        if p.len() > 65_000 {
            cx.drop("too long", p);
            return None;
        }
        let dst = self.dst.unwrap_or_else(|| p.anno.dst_ip());
        let mut header = [0; 28];
        let length = match self.inner {
            Inner::None => 20,
            _ => 28,
        };
        let total = p.len() + length;
        let h = &mut header;
        h[0] = 0x45;
        h[1] = self.tos;
        put16(h, 2, total as u16);
        put16(h, 4, self.id.get());
        put16(h, 6, if self.df { 0x4000 } else { 0 });
        h[8] = self.ttl;
        h[9] = self.protocol;
        put32(h, 12, self.src.0);
        put32(h, 16, dst.0);
        match self.inner {
            Inner::None => {}
            Inner::Udp(sport, dport, _) => {
                put16(h, 20, sport);
                put16(h, 22, dport);
                put16(h, 24, (total - 20) as u16);
            }
            Inner::Icmp { kind, code, identifier } => {
                (h[20], h[21]) = (kind, code);
                put16(h, 24, identifier);
                put16(h, 26, self.id.get());
            }
        }
        self.id.set(self.id.get().wrapping_add(1));
        p.prepend(&header[..length]);
        p.set_network(0, 20);
        p.anno.set_dst_ip(dst);
        set_ip_checksum(p.data_mut());
        if !matches!(self.inner, Inner::None | Inner::Udp(.., false)) {
            set_transport_checksum(&mut p, self.protocol);
        }
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "src" => Some(Ok(self.src.to_string())),
            "dst" => Some(Ok(self.dst.map_or("DST_ANNO".into(), |d| d.to_string()))),
            _ => None,
        }
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let shift = usize::from(cx.class() == "IPEncap");
        match name {
            "src" => Some(cx.router.set_argument(cx.me, "SRC", shift, value)),
            "dst" => {
                let at = if cx.class() == "UDPIPEncap" { 2 } else { 1 + shift };
                Some(cx.router.set_argument(cx.me, "DST", at, value))
            }
            _ => None,
        }
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("src", "rw"), ("dst", "rw")]
    }
}

/// Reads a destination, which may be the annotation's.
fn destination(args: &mut Args<'_>) -> Option<Ip> {
    let scope = args.scope();
    let text: String = args.req("DST");
    if matches!(text.as_str(), "DST_ANNO" | "ANNO") {
        return None;
    }
    let ip = Ip::read(&text, &scope);
    if ip.is_none() {
        args.error(format!("DST: expected an IP address or DST_ANNO, found '{text}'"));
    }
    ip
}

fn port(args: &mut Args<'_>, name: &str) -> u16 {
    let scope = args.scope();
    let text: String = args.req(name);
    text.parse().ok().or_else(|| scope.port(&text)).unwrap_or_else(|| {
        args.error(format!("{name}: expected a port, found '{text}'"));
        0
    })
}

fn encap(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let (mut tos, mut df, mut ttl) = (0, false, 250);
    let (protocol, src, dst, inner) = match setup.class {
        "IPEncap" => {
            let name: String = args.req("PROTO");
            let number = parse_protocol(&name).or_else(|| (name == "ipip").then_some(4));
            let protocol = number.unwrap_or_else(|| {
                args.error(format!("PROTO: expected a protocol, found '{name}'"));
                0
            });
            (tos, df) = (args.key("TOS").unwrap_or(0), args.key("DF").unwrap_or(false));
            tos |= args.key::<u8>("DSCP").map_or(0, |d| d << 2);
            ttl = args.key("TTL").unwrap_or(250);
            (protocol, args.req("SRC"), destination(args), Inner::None)
        }
        "UDPIPEncap" => {
            let (src, sport) = (args.req("SRC"), port(args, "SPORT"));
            let (dst, dport) = (destination(args), port(args, "DPORT"));
            let check = args.opt("CHECKSUM").unwrap_or(true);
            (17, src, dst, Inner::Udp(sport, dport, check))
        }
        class => {
            let (src, dst) = (args.req("SRC"), destination(args));
            let is_ping = class == "ICMPPingEncap";
            let kind = if is_ping { Some("8".into()) } else { Some(args.req::<String>("TYPE")) };
            let kind = kind.and_then(|k| icmp_type(&k)).unwrap_or_else(|| {
                args.error("TYPE: expected a type of ICMP");
                0
            });
            let code = if is_ping { 0 } else { args.opt("CODE").unwrap_or(0) };
            let identifier = args.key("IDENTIFIER").unwrap_or(0);
            (1, src, dst, Inner::Icmp { kind, code, identifier })
        }
    };
    Box::new(Encap { protocol, src, dst, tos, ttl, df, inner, id: Cell::new(0) })
}

class!(IP_ENCAP, "IPEncap", "1/1", "a/a", ["PROTO", "SRC", "DST", "TOS", "DSCP", "TTL", "DF"], encap);
class!(UDP_IP_ENCAP, "UDPIPEncap", "1/1", "a/a", ["SRC", "SPORT", "DST", "DPORT", "CHECKSUM"], encap);
class!(ICMP_PING_ENCAP, "ICMPPingEncap", "1/1", "a/a", ["SRC", "DST", "IDENTIFIER"], encap);
class!(ICMP_IP_ENCAP, "ICMPIPEncap", "1/1", "a/a", ["SRC", "DST", "TYPE", "CODE", "IDENTIFIER"], encap);
