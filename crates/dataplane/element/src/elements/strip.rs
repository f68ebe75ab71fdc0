//! Strip(N), Unstrip(N), StripToNetworkHeader, StripIPHeader, StripTCPHeader, UnstripIPHeader: move the
//! beginning of packets.
//! Expects: anything; the last four need a marked IP header.
//! Gives: the same packets, shorter or longer in front.
//! Handlers: none.
//! Example: `c [2] -> Strip(14) -> CheckIPHeader`
//!
//! Truncate(N), Pad(N), Resize(HEAD, TAIL): change the length. Pad adds zeros up to N, or as many bytes as
//! the packet lacks; Resize adds (removes, if negative) bytes on both sides.
//! Expects: anything.
//! Gives: the same packets.
//! Handlers: none.
//! Example: `Truncate(60) -> Pad(60)`
//!
//! StoreData(OFFSET, DATA, MASK): overwrites bytes.
//! Expects: anything.
//! Gives: the same packets. Bytes beyond the end are not stored.
//! Handlers: none.
//! Example: `StoreData(12, \<0800>)`

use super::util::ip_header;
use crate::registry::Setup;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Packet};
use flame_click::Args;
use flame_click::value::Data;

const SOURCE: &str = include_str!("strip.rs");

enum Change {
    Strip(usize),
    Unstrip(usize),
    ToNetwork,
    StripIp,
    StripTcp,
    Truncate(usize),
    Pad(Option<usize>),
    Resize(i64, i64),
    Store(usize, Vec<u8>, Vec<u8>),
}

impl Element for Change {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        match self {
            Self::Strip(n) if *n > p.len() => {
                cx.drop("too short", p);
                return None;
            }
            Self::Strip(n) => p.strip(*n),
            Self::Unstrip(n) => p.unstrip(*n),
            Self::ToNetwork => match p.network_distance() {
                Some(d) if d < 0 => p.unstrip(d.unsigned_abs()),
                Some(d) => p.strip(d.unsigned_abs()),
                None => {}
            },
            Self::StripIp => {
                if let Some(h) = ip_header(&p) {
                    p.strip(h.payload());
                }
            }
            Self::StripTcp => {
                let length = p.data().get(12).map_or(0, |b| usize::from(b >> 4) * 4);
                p.strip(length);
            }
            Self::Truncate(n) => {
                if *n < p.len() {
                    let cut = (p.len() - n) as u32 + p.anno.u32(ANNO_EXTRA_LENGTH);
                    p.anno.set_u32(ANNO_EXTRA_LENGTH, cut);
                    p.truncate(*n);
                }
            }
            Self::Pad(length) => {
                let extra = p.anno.u32(ANNO_EXTRA_LENGTH) as usize;
                let missing = match length {
                    Some(length) => length.saturating_sub(p.len()),
                    None => extra.min(65_535),
                };
                p.extend(missing);
                p.anno.set_u32(ANNO_EXTRA_LENGTH, extra.saturating_sub(missing) as u32);
            }
            Self::Resize(head, tail) => {
                match head {
                    0.. => p.unstrip(*head as usize),
                    _ => p.strip(head.unsigned_abs() as usize),
                }
                match tail {
                    0.. => p.extend(*tail as usize),
                    _ => {
                        let length = p.len().saturating_sub(tail.unsigned_abs() as usize);
                        p.truncate(length);
                    }
                }
            }
            Self::Store(at, data, mask) => {
                let bytes = p.data_mut().get_mut(*at..).unwrap_or(&mut []);
                for (i, b) in bytes.iter_mut().zip(data.iter().zip(mask)).map(|(b, d)| (d, b)) {
                    *b = *b & !i.1 | i.0 & i.1;
                }
            }
        }
        Some(p)
    }
}

fn change(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let length = |args: &mut Args<'_>| usize::from(args.req::<u16>("LENGTH"));
    Box::new(match setup.class {
        "Strip" => Change::Strip(length(args)),
        "Unstrip" => Change::Unstrip(length(args)),
        "StripToNetworkHeader" | "UnstripIPHeader" => Change::ToNetwork,
        "StripIPHeader" => Change::StripIp,
        "StripTCPHeader" => Change::StripTcp,
        "Truncate" => Change::Truncate(length(args)),
        "Pad" => {
            args.ignore::<bool>("ZERO");
            Change::Pad(args.opt::<u16>("LENGTH").map(usize::from))
        }
        "Resize" => {
            let (head, tail) = (args.opt::<i16>("HEAD").unwrap_or(0), args.opt::<i16>("TAIL").unwrap_or(0));
            Change::Resize(head.into(), tail.into())
        }
        _ => {
            let (at, data): (u16, Data) = (args.req("OFFSET"), args.req("DATA"));
            let mut mask = args.opt::<Data>("MASK").map_or_else(Vec::new, |m| m.0);
            mask.resize(data.0.len(), 255);
            Change::Store(at.into(), data.0, mask)
        }
    })
}

class!(STRIP, "Strip", "1/1", "a/a", ["LENGTH"], change);
class!(UNSTRIP, "Unstrip", "1/1", "a/a", ["LENGTH"], change);
class!(STRIP_TO_NETWORK, "StripToNetworkHeader", "1/1", "a/a", [], change);
class!(STRIP_IP, "StripIPHeader", "1/1", "a/a", [], change);
class!(STRIP_TCP, "StripTCPHeader", "1/1", "a/a", [], change);
class!(UNSTRIP_IP, "UnstripIPHeader", "1/1", "a/a", [], change);
class!(TRUNCATE, "Truncate", "1/1", "a/a", ["LENGTH"], change);
class!(PAD, "Pad", "1/1", "a/a", ["LENGTH", "ZERO"], change);
class!(RESIZE, "Resize", "1/1", "a/a", ["HEAD", "TAIL"], change);
class!(STORE_DATA, "StoreData", "1/1", "a/a", ["OFFSET", "DATA", "MASK"], change);
