//! The numbers of networks in front of IP: tags of VLANs, labels of MPLS, identifiers of overlays.

use flame_module::{Descriptor, LinkType, flags};

/// The numbers of networks in the headers of one packet. A number that a packet does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The VLAN of the outermost tag that states one.
    pub vlan: u16,
    /// The VLAN of the innermost tag, if there are two or more.
    pub inner_vlan: u16,
    /// The identifier of the innermost overlay: VXLAN, GENEVE, or the I-SID of a provider backbone.
    pub vni: u32,
    /// The label at the bottom of the innermost stack of MPLS.
    pub mpls: u32,
}

/// The maximum number of headers in front of IP that are read.
const MAX_HEADERS: usize = 10;

impl Tags {
    /// Returns the numbers in the bytes before the IP header that a descriptor states.
    #[inline(never)]
    pub fn of(link: LinkType, d: &Descriptor, bytes: &[u8]) -> Self {
        flame_module::cold();
        let mut tags = Self::default();
        let be16 = |at: usize| {
            let b = bytes.get(at..at + 2);
            b.map_or(0, |b| u16::from(b[0]) << 8 | u16::from(b[1]))
        };
        let word = |at: usize| u32::from(be16(at)) << 16 | u32::from(be16(at + 2));
        let (mut kind, mut at) = match link {
            LinkType::ETHERNET => (be16(12), 14),
            LinkType::LINUX_SLL => (be16(14), 16),
            LinkType::LINUX_SLL2 => (be16(0), 20),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => (version(be16(0)), 0),
            _ => return tags,
        };
        for _ in 0..MAX_HEADERS {
            if at >= usize::from(d.l3) || bytes.len() < at + 4 {
                break;
            }
            (kind, at) = match kind {
                0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => {
                    tags.add(be16(at) & 0xfff);
                    (be16(at + 2), at + 4)
                }
                0x893f => (be16(at + 6), at + 8),
                0x8926 => (be16(at + 4), at + 6),
                // Frames inside: after the tag of a provider backbone, and after the header of an overlay.
                0x88e7 => {
                    tags.vni = word(at) & 0x00ff_ffff;
                    (be16(at + 16), at + 18)
                }
                0x8847 | 0x8848 => {
                    tags.mpls = word(at) >> 12;
                    let is_last = word(at) & 0x100 != 0;
                    (if is_last { behind_labels(be16(at + 4)) } else { kind }, at + 4)
                }
                WORD => (be16(at + 16), at + 18),
                FRAME => (be16(at + 12), at + 14),
                0x0800 | 0x86dd if d.has(flags::TUNNEL) => {
                    let is_v4 = kind == 0x0800;
                    let (proto, length) = match is_v4 {
                        true => (be16(at + 8) as u8, usize::from(be16(at) >> 8 & 15) * 4),
                        false => ((be16(at + 6) >> 8) as u8, 40),
                    };
                    tags.overlay(proto, at + length, be16)
                }
                _ => break,
            };
        }
        tags
    }

    fn add(&mut self, vlan: u16) {
        if self.vlan == 0 {
            self.vlan = vlan;
        } else {
            self.inner_vlan = vlan;
        }
    }

    /// Reads the header of a tunnel, and returns the type of the header after it, with its offset.
    fn overlay(&mut self, proto: u8, at: usize, be16: impl Fn(usize) -> u16) -> (u16, usize) {
        let number = |at: usize| u32::from(be16(at)) << 8 | u32::from(be16(at + 2)) >> 8;
        match (proto, be16(at + 2)) {
            (17, 4789 | 8472) => {
                self.vni = number(at + 12);
                (FRAME, at + 16)
            }
            (17, 6081) => {
                self.vni = number(at + 12);
                let options = usize::from(be16(at + 8) >> 8 & 0x3f) * 4;
                (frame_or(be16(at + 10)), at + 16 + options)
            }
            (47, kind) => {
                let bits = be16(at);
                let optional = [0x8000, 0x2000, 0x1000].iter().filter(|bit| bits & **bit != 0).count();
                (frame_or(kind), at + 4 + optional * 4)
            }
            (4, _) => (0x0800, at),
            (41, _) => (0x86dd, at),
            _ => (0, at),
        }
    }

    /// Returns the numbers as one, for a hash.
    pub fn mixed(self) -> u32 {
        let tags = u32::from(self.vlan) << 16 | u32::from(self.inner_vlan);
        tags.wrapping_mul(0x85eb_ca6b)
            ^ self.vni.wrapping_mul(0xc2b2_ae35)
            ^ self.mpls.wrapping_mul(0x27d4_eb2f)
    }
}

/// The values for Ethernet and for a control word before it. No EtherType is that small.
const FRAME: u16 = 1;
const WORD: u16 = 2;

/// Returns the EtherType of the IP version in the first bytes of a header.
fn version(first: u16) -> u16 {
    if first >> 12 == 6 { 0x86dd } else { 0x0800 }
}

/// Returns the type of the header after the last label of MPLS.
fn behind_labels(first: u16) -> u16 {
    if first >> 8 == 0 { WORD } else { FRAME }
}

/// Returns the type of the header after GRE or GENEVE.
fn frame_or(kind: u16) -> u16 {
    if kind == 0x6558 { FRAME } else { kind }
}
