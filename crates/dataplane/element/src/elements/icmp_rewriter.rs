//! ICMPRewriter(MAPS, DST_ANNO, REPLY_ANNO): rewrites ICMP errors about flows of rewriters, so that they
//! reach the host that sent the packet, which finds its own packet quoted. MAPS are the names of IPRewriter,
//! TCPRewriter, UDPRewriter, IPAddrRewriter or ICMPPingRewriter elements, with spaces between. Only an error
//! to the address that sent the quoted packet gets another destination; with DST_ANNO true (true), the
//! annotation is set to that. REPLY_ANNO (PAINT, or the number of a byte):
//! errors about packets of the direction that came first get this annotation from what the rewriter's own
//! REPLY_ANNO kept.
//! Expects: ICMP errors with marked IP headers.
//! Gives: 0: errors about a flow of MAPS; 1, if connected: other packets, which are otherwise dropped.
//! Handlers: count.
//! Example: `wan [1] -> ICMPRewriter(rw ping) -> lan`

use super::icmp::is_error;
use super::rewriter::{is_rewriter, peek, reply_anno};
use super::rewriter_flows::{ECHO, ECHO_REPLY, Flow};
use super::util::{
    address_words, adjust_checksum, be16, be32, ip_header, put16, put32, set_ip_checksum, sum,
};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Packet;
use flame_click::{Ip, text};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("icmp_rewriter.rs");

struct IcmpRewriter {
    names: Vec<String>,
    maps: RefCell<Vec<usize>>,
    dst_anno: bool,
    reply_anno: Option<usize>,
    count: Cell<u64>,
}

/// The packet that an ICMP error quotes.
struct Quoted {
    /// The offset of its IP header, and of what follows it.
    at: usize,
    payload: usize,
    flow: Flow,
    /// Whether its ports or its identifier are known: they may not be quoted, and other packets have none.
    has_ports: bool,
}

/// Returns the quoted packet of an ICMP error, if it belongs to a flow.
fn quoted(p: &Packet) -> Option<Quoted> {
    let h = ip_header(p).filter(|h| h.protocol == 1 && h.is_first_fragment())?;
    if !is_error(*p.data().get(h.payload())?) {
        return None;
    }
    let at = h.payload() + 8;
    let d = p.data().get(..h.end())?;
    let ip = d.get(at..).filter(|ip| ip.len() >= 20 && ip[0] >> 4 == 4)?;
    let length = usize::from(ip[0] & 15) * 4;
    let rest = ip.get(length..).filter(|_| length >= 20 && be16(ip, 6) & 0x1fff == 0)?;
    let ports = match ip[9] {
        6 | 17 if rest.len() >= 8 => Some((be16(rest, 0), be16(rest, 2))),
        1 if rest.len() >= 8 && matches!(rest[0], ECHO | ECHO_REPLY) => Some((be16(rest, 4), be16(rest, 4))),
        _ => None,
    };
    let (sport, dport) = ports.unwrap_or((0, 0));
    let flow = Flow::new(ip[9], (Ip(be32(ip, 12)), sport), (Ip(be32(ip, 16)), dport));
    let is_echo_reply = ip[9] == 1 && ports.is_some() && rest[0] == ECHO_REPLY;
    let flow = Flow { is_echo_reply, ..flow };
    Some(Quoted { at, payload: at + length, flow, has_ports: ports.is_some() })
}

/// The checksum of a quoted packet's transport header, if it is quoted.
#[derive(Clone, Copy)]
struct Check {
    at: usize,
    is_udp: bool,
}

impl Check {
    fn adjust(check: Option<Self>, d: &mut [u8], changes: &[(u16, u16)]) {
        if let Some(Self { at, is_udp }) = check {
            adjust_checksum(d, at, is_udp, changes);
        }
    }
}

/// Writes a port or an identifier of a quoted packet.
fn set_port(d: &mut [u8], at: usize, check: Option<Check>, value: u16) {
    let old = be16(d, at);
    put16(d, at, value);
    Check::adjust(check, d, &[(old, value)]);
}

/// Writes an address of a quoted packet. Its own IP checksum is set afterwards.
fn set_address(d: &mut [u8], at: usize, check: Option<Check>, value: Ip) {
    let old = Ip(be32(d, at));
    put32(d, at, value.0);
    Check::adjust(check, d, &address_words(old, value));
}

impl IcmpRewriter {
    /// Rewrites an error, for packets that go from `to.src` to `to.dst` now.
    fn rewrite(&self, p: &mut Packet, quoted: &Quoted, to: Flow) {
        let Some(h) = ip_header(p) else { return };
        let (message, end) = (h.payload(), h.end());
        let before = sum(&p.data()[message + 4..end]);
        // The quoted packet went the other way.
        let own = to.reverse();
        let d = p.data_mut();
        let protocol = quoted.flow.protocol;
        let (check, ports) = match protocol {
            6 => (Some(16), Some((0, 2))),
            17 => (Some(6), Some((0, 2))),
            1 => (Some(2), Some((4, 4))),
            _ => (None, None),
        };
        let check = check.map(|at| Check { at: quoted.payload + at, is_udp: protocol == 17 });
        let check = check.filter(|check| check.at + 2 <= end);
        // That of ICMP does not cover the addresses.
        let covering = check.filter(|_| protocol != 1);
        set_address(d, quoted.at + 12, covering, own.src.0);
        set_address(d, quoted.at + 16, covering, own.dst.0);
        set_ip_checksum(&mut d[quoted.at..quoted.payload]);
        if let Some((first, second)) = ports.filter(|_| quoted.has_ports) {
            set_port(d, quoted.payload + first, check, own.src.1);
            if first != second {
                set_port(d, quoted.payload + second, check, own.dst.1);
            }
        }
        let after = sum(&d[message + 4..end]);
        adjust_checksum(d, message + 2, false, &[(before as u16, after as u16)]);
        // An error of the other end itself comes from that end.
        if h.source == quoted.flow.dst.0 {
            super::ip::set_ip(p, true, to.src.0);
        }
        // One that was sent elsewhere than to the sender of the quoted packet goes there still.
        if h.destination == quoted.flow.src.0 {
            super::ip::set_ip(p, false, to.dst.0);
            if self.dst_anno {
                p.anno.set_dst_ip(to.dst.0);
            }
        }
    }
}

impl Element for IcmpRewriter {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let mut maps = Vec::new();
        for name in &self.names {
            let found = cx.router.lookup(cx.name(), name);
            let found = found.filter(|at| is_rewriter(&*cx.router.element(*at)));
            maps.push(found.ok_or_else(|| format!("MAPS: expected a rewriter, found '{name}'"))?);
        }
        *self.maps.borrow_mut() = maps;
        Ok(())
    }

    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let Some(quoted) = quoted(&p) else {
            cx.push_or_drop(1, "no ICMP error", p);
            return None;
        };
        let (flow, now) = (quoted.flow.reverse(), cx.now());
        let found = self
            .maps
            .borrow()
            .iter()
            .find_map(|at| peek(&*cx.router.element(*at), flow, quoted.has_ports, now));
        match found {
            Some(found) => {
                self.rewrite(&mut p, &quoted, found.to);
                if let Some((at, value)) = self.reply_anno.zip(found.reply_anno) {
                    p.anno.bytes[at] = value;
                }
                add(&self.count, 1);
                Some(p)
            }
            None => {
                cx.push_or_drop(1, "no mapping", p);
                None
            }
        }
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "count").then(|| Ok(self.count.get().to_string()))
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.count]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r")]
    }
}

class!(ICMP_REWRITER, "ICMPRewriter", "1/1-2", "a/ah", ["MAPS", "DST_ANNO", "REPLY_ANNO"], |args, _| {
    let names = text::words(&args.req::<String>("MAPS"));
    if names.is_empty() && !args.has_errors() {
        args.error("MAPS: expected names of rewriters, found none");
    }
    let dst_anno = args.key("DST_ANNO").unwrap_or(true);
    let reply_anno = reply_anno(args);
    Box::new(IcmpRewriter { names, maps: RefCell::default(), dst_anno, reply_anno, count: Cell::new(0) })
});
