//! EtherEncap(TYPE, SRC, DST), EtherRewrite(SRC, DST), EtherMirror: add, rewrite or swap Ethernet addresses.
//! Expects: anything; the last two need Ethernet packets.
//! Gives: Ethernet packets.
//! Handlers: ethertype (rw), src (rw), dst (rw).
//! Example: `EtherEncap(0x0800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> out`
//!
//! HostEtherFilter(ADDRESS, DROP_OWN, DROP_OTHER): marks packets by their destination address.
//! Expects: Ethernet packets.
//! Gives: 0: packets for ADDRESS, broadcast and multicast; 1, if connected: others, which are otherwise
//! dropped.
//! Handlers: none.
//! Example: `in -> HostEtherFilter(0:1:2:3:4:5) -> c`
//!
//! DropBroadcasts: drops packets that came as link-level broadcast or multicast.
//! Expects: packets marked by HostEtherFilter or a device.
//! Gives: the others.
//! Handlers: drops.
//! Example: `rt [1] -> DropBroadcasts -> out`
//!
//! VLANEncap(TCI, ETHERTYPE, NATIVE_VLAN), VLANDecap(ETHERTYPE), EtherVLANEncap(TYPE, SRC, DST, TCI),
//! StripEtherVLANHeader, SetVLANAnno(ID, PCP): add and remove VLAN tags. The TCI may be ANNO, the annotation.
//! Expects: Ethernet packets; EtherVLANEncap takes any.
//! Gives: Ethernet packets; StripEtherVLANHeader gives what is inside.
//! Handlers: none.
//! Example: `VLANEncap(12) -> out`

use super::util::{be16, put16};
use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_VLAN, Kind, Packet};
use flame_click::{Args, Mac};
use std::cell::Cell;

const SOURCE: &str = include_str!("ether.rs");

struct EtherEncap {
    header: [u8; 14],
}

impl EtherEncap {
    fn mac(&self, at: usize) -> Mac {
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&self.header[at..at + 6]);
        Mac(bytes)
    }
}

impl Element for EtherEncap {
    fn action(&self, _: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        p.prepend(&self.header);
        p.set_link(0);
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "ethertype" | "etht" => be16(&self.header, 12).to_string(),
            "src" => self.mac(6).to_string(),
            "dst" => self.mac(0).to_string(),
            _ => return None,
        }))
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let (key, at) = match name {
            "ethertype" | "etht" => ("ETHERTYPE", 0),
            "src" => ("SRC", 1),
            "dst" => ("DST", 2),
            _ => return None,
        };
        Some(cx.router.set_argument(cx.me, key, at, value))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("ethertype", "rw"), ("src", "rw"), ("dst", "rw")]
    }
}

fn ether_header(args: &mut Args<'_>) -> [u8; 14] {
    let (kind, src, dst): (u16, Mac, Mac) = (args.req("ETHERTYPE"), args.req("SRC"), args.req("DST"));
    let mut header = [0; 14];
    header[..6].copy_from_slice(&dst.0);
    header[6..12].copy_from_slice(&src.0);
    put16(&mut header, 12, kind);
    header
}

class!(ETHER_ENCAP, "EtherEncap", "1/1", "a/a", ["ETHERTYPE", "SRC", "DST"], |args, _| {
    Box::new(EtherEncap { header: ether_header(args) })
});

struct EtherRewrite(Option<(Mac, Mac)>);

impl Element for EtherRewrite {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        if p.len() < 14 {
            cx.drop("too short", p);
            return None;
        }
        let d = p.data_mut();
        match self.0 {
            Some((src, dst)) => {
                d[..6].copy_from_slice(&dst.0);
                d[6..12].copy_from_slice(&src.0);
            }
            None => (0..6).for_each(|i| d.swap(i, i + 6)),
        }
        Some(p)
    }
}

class!(ETHER_REWRITE, "EtherRewrite", "1/1", "a/a", ["SRC", "DST"], |args, _| {
    Box::new(EtherRewrite(Some((args.req("SRC"), args.req("DST")))))
});
class!(ETHER_MIRROR, "EtherMirror", "1/1", "a/a", [], |_, _| Box::new(EtherRewrite(None)));

struct HostEtherFilter {
    mac: Mac,
    drop_own: bool,
    drop_other: bool,
    offset: usize,
}

impl Element for HostEtherFilter {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let Some(h) = p.data().get(self.offset..self.offset + 14) else {
            cx.drop("too short", p);
            return None;
        };
        let mut dst = Mac::default();
        dst.0.copy_from_slice(&h[..6]);
        if self.drop_own && h[6..12] == self.mac.0 {
            cx.push_or_drop(1, "own packet", p);
            return None;
        }
        p.anno.kind = match dst {
            Mac::BROADCAST => Kind::Broadcast,
            dst if dst.is_group() => Kind::Multicast,
            dst if dst == self.mac => Kind::Host,
            _ => Kind::OtherHost,
        };
        if p.anno.kind == Kind::OtherHost && self.drop_other {
            cx.push_or_drop(1, "other host", p);
            return None;
        }
        Some(p)
    }
}

class!(
    HOST_ETHER_FILTER,
    "HostEtherFilter",
    "1/1-2",
    "a/ah",
    ["ETHER", "DROP_OWN", "DROP_OTHER", "OFFSET"],
    |args, _| {
        Box::new(HostEtherFilter {
            mac: args.req("ETHER"),
            drop_own: args.opt("DROP_OWN").unwrap_or(false),
            drop_other: args.opt("DROP_OTHER").unwrap_or(true),
            offset: args.key::<u8>("OFFSET").unwrap_or(0).into(),
        })
    }
);

struct DropBroadcasts(Cell<u64>);

impl Element for DropBroadcasts {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if matches!(p.anno.kind, Kind::Broadcast | Kind::Multicast) {
            add(&self.0, 1);
            cx.drop("broadcast", p);
            return None;
        }
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "drops").then(|| Ok(self.0.get().to_string()))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.0]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r")]
    }
}

class!(DROP_BROADCASTS, "DropBroadcasts", "1/1", "a/a", [], |_, _| Box::new(DropBroadcasts(Cell::new(0))));

/// The tag to add. None stands for the annotation.
struct Tag {
    tci: Option<u16>,
    kind: u16,
    native: Option<u16>,
}

impl Tag {
    fn of(args: &mut Args<'_>) -> Self {
        let tci = match args.peek() {
            Some("ANNO") => {
                args.opt::<String>("VLAN_TCI");
                None
            }
            _ => match args.key::<u16>("VLAN_ID") {
                Some(id) => Some(id & 0xfff | args.key::<u16>("VLAN_PCP").unwrap_or(0) << 13),
                None => Some(args.req("VLAN_TCI")),
            },
        };
        let native: Option<i32> = args.key("NATIVE_VLAN");
        Self {
            tci,
            kind: args.key("ETHERTYPE").unwrap_or(0x8100),
            native: native.map(|n| u16::try_from(n).unwrap_or(u16::MAX)),
        }
    }

    /// Returns the tag of a packet, if it gets one.
    fn tci(&self, p: &Packet) -> Option<u16> {
        let tci = self.tci.unwrap_or_else(|| p.anno.u16(ANNO_VLAN));
        (self.native != Some(tci & 0xfff)).then_some(tci)
    }
}

struct VlanEncap(Tag);

impl Element for VlanEncap {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let Some(tci) = self.0.tci(&p) else { return Some(p) };
        if p.len() < 14 {
            cx.drop("too short", p);
            return None;
        }
        let mut addresses = [0; 16];
        addresses[..12].copy_from_slice(&p.data()[..12]);
        put16(&mut addresses, 12, self.0.kind);
        put16(&mut addresses, 14, tci);
        p.strip(12);
        p.prepend(&addresses);
        p.set_link(0);
        Some(p)
    }
}

class!(
    VLAN_ENCAP,
    "VLANEncap",
    "1/1",
    "a/a",
    ["VLAN_TCI", "VLAN_ID", "VLAN_PCP", "NATIVE_VLAN", "ETHERTYPE"],
    |args, _| Box::new(VlanEncap(Tag::of(args)))
);

struct VlanDecap {
    kind: u16,
    strips: bool,
}

impl Element for VlanDecap {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let tagged = p.len() >= 18 && be16(p.data(), 12) == self.kind;
        if tagged {
            let tci = be16(p.data(), 14);
            p.anno.set_u16(ANNO_VLAN, tci);
        } else if p.len() < 14 {
            cx.drop("too short", p);
            return None;
        }
        match (self.strips, tagged) {
            (true, _) => p.strip(if tagged { 18 } else { 14 }),
            (false, true) => {
                let mut addresses = [0; 12];
                addresses.copy_from_slice(&p.data()[..12]);
                p.strip(16);
                p.prepend(&addresses);
                p.set_link(0);
            }
            _ => {}
        }
        if !tagged {
            p.anno.set_u16(ANNO_VLAN, 0);
        }
        Some(p)
    }
}

fn vlan_decap(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    args.ignore::<bool>("ANNO");
    args.ignore::<i32>("NATIVE_VLAN");
    let kind = args.key("ETHERTYPE").unwrap_or(0x8100);
    Box::new(VlanDecap { kind, strips: setup.class == "StripEtherVLANHeader" })
}

class!(VLAN_DECAP, "VLANDecap", "1/1", "a/a", ["ANNO", "ETHERTYPE"], vlan_decap);
class!(
    STRIP_ETHER_VLAN,
    "StripEtherVLANHeader",
    "1/1",
    "a/a",
    ["ANNO", "ETHERTYPE", "NATIVE_VLAN"],
    vlan_decap
);

struct EtherVlanEncap([u8; 14], Tag);

impl Element for EtherVlanEncap {
    fn action(&self, _: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        if let Some(tci) = self.1.tci(&p) {
            let mut tag = [0; 4];
            put16(&mut tag, 0, tci);
            tag[2..].copy_from_slice(&self.0[12..]);
            p.prepend(&tag);
            p.prepend(&self.0);
            put16(p.data_mut(), 12, self.1.kind);
        } else {
            p.prepend(&self.0);
        }
        p.set_link(0);
        Some(p)
    }
}

class!(
    ETHER_VLAN_ENCAP,
    "EtherVLANEncap",
    "1/1",
    "a/a",
    ["ETHERTYPE", "SRC", "DST", "VLAN_TCI", "VLAN_ID", "VLAN_PCP", "NATIVE_VLAN"],
    |args, _| {
        let header = ether_header(args);
        Box::new(EtherVlanEncap(header, Tag::of(args)))
    }
);

struct SetVlanAnno(u16);

impl Element for SetVlanAnno {
    fn action(&self, _: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        p.anno.set_u16(ANNO_VLAN, self.0);
        Some(p)
    }
}

class!(SET_VLAN_ANNO, "SetVLANAnno", "1/1", "a/a", ["VLAN_TCI", "VLAN_ID", "VLAN_PCP"], |args, _| {
    let tci = args.key::<u16>("VLAN_TCI");
    let (id, pcp) = (args.opt::<u16>("VLAN_ID").unwrap_or(0), args.opt::<u16>("VLAN_PCP").unwrap_or(0));
    Box::new(SetVlanAnno(tci.unwrap_or(id & 0xfff | pcp << 13)))
});
