//! Common parts of the tests of views: packets, views over them, checksums from scratch.

use flame_abi::{Descriptor, LinkType};
use flame_decode::{Options, decode};
use flame_plan::{Action, Expose, Field, Transforms, ViewSpec};
use flame_view::{Key, View};
use std::path::{Path, PathBuf};

pub const BASE: u32 = 0x8010_8000;

pub struct Seen {
    pub descriptors: Vec<Descriptor>,
    /// All data of the slot, including bytes to which no descriptor points.
    pub data: Vec<u8>,
}

impl Seen {
    pub fn packet(&self, i: usize) -> &[u8] {
        let d = &self.descriptors[i];
        let at = (d.addr - BASE) as usize;
        &self.data[at..at + d.cap_len as usize]
    }
}

/// Decodes packets, placed one after the other.
pub fn block(link: LinkType, packets: &[Vec<u8>]) -> (Vec<Descriptor>, Vec<u8>) {
    block_of(link, packets, |i| packets[i].len() as u32)
}

/// Decodes packets with the given lengths on the wire.
pub fn block_of(
    link: LinkType,
    packets: &[Vec<u8>],
    wire_len: impl Fn(usize) -> u32,
) -> (Vec<Descriptor>, Vec<u8>) {
    let (mut descriptors, mut data) = (Vec::new(), Vec::new());
    for (i, bytes) in packets.iter().enumerate() {
        let mut d = decode(link, bytes, wire_len(i), Options::default());
        d.addr = data.len() as u32;
        descriptors.push(d);
        data.extend_from_slice(bytes);
    }
    (descriptors, data)
}

pub fn see(view: &mut View, link: LinkType, packets: &[Vec<u8>]) -> Seen {
    let (descriptors, data) = block(link, packets);
    let mut out = vec![Descriptor::default(); packets.len()];
    let mut out_data = vec![0; data.len()];
    let written = view.copy(&descriptors, |_| link, &data, &mut out, &mut out_data, BASE).unwrap();
    out.truncate(written.packets as usize);
    Seen { descriptors: out, data: out_data }
}

pub fn view(expose: Expose, transforms: &[(&str, Action)]) -> View {
    let mut map = Transforms::new();
    for (fields, action) in transforms {
        for field in Field::parse(fields).unwrap() {
            map.insert(field, *action);
        }
    }
    let spec = ViewSpec { expose, transforms: map, ..ViewSpec::default() };
    View::new(&spec, Some(&Key::new([9; 32]))).unwrap()
}

pub fn word_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        for w in part.chunks(2) {
            sum += u64::from(w[0]) << 8 | w.get(1).map_or(0, |b| u64::from(*b));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sets the checksum at `at` so that `parts` and the packet from `start` to `end` sum to ones.
pub fn set_sum(bytes: &mut [u8], at: usize, start: usize, end: usize, pseudo: &[u8]) {
    bytes[at..at + 2].fill(0);
    let sum = !word_sum(&[pseudo, &bytes[start..end]]);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

pub fn pseudo4(ip: &[u8], proto: u8, length: usize) -> Vec<u8> {
    [&ip[12..20], &[0, proto], &(length as u16).to_be_bytes()].concat()
}

pub fn pseudo6(ip: &[u8], proto: u8, length: usize) -> Vec<u8> {
    [&ip[8..40], &(length as u32).to_be_bytes(), &[0, 0, 0, proto]].concat()
}

pub fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 2, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5][..], &kind.to_be_bytes(), rest]
        .concat()
}

/// Builds IPv4 from 10.1.2.3 to 192.0.2.77 with a right checksum.
pub fn ipv4(proto: u8, options: &[u8], rest: &[u8]) -> Vec<u8> {
    let length = 20 + options.len();
    let total = ((length + rest.len()) as u16).to_be_bytes();
    let mut p = vec![0x40 | (length / 4) as u8, 0, total[0], total[1], 1, 2, 0, 0, 64, proto, 0, 0];
    p.extend([10, 1, 2, 3, 192, 0, 2, 77]);
    p.extend(options);
    set_sum(&mut p, 10, 0, length, &[]);
    p.extend(rest);
    p
}

pub fn ipv6(proto: u8, rest: &[u8]) -> Vec<u8> {
    let total = (rest.len() as u16).to_be_bytes();
    let mut p = vec![0x60, 0, 0, 0, total[0], total[1], proto, 64];
    p.extend([0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0xb, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
    p.extend([0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0xd, 0, 0, 0, 0, 0, 0, 0x56, 0x78]);
    p.extend(rest);
    p
}

/// Builds TCP from 51234 to 8081 with checksum 0.
pub fn tcp(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0xc8, 0x22, 0x1f, 0x91, 0, 0, 0, 1, 0, 0, 0, 2];
    p.extend([((20 + options.len()) * 4) as u8, 0x18, 1, 0, 0, 0, 0, 0]);
    p.extend(options);
    p.extend(payload);
    p
}

pub fn udp(dport: u16, payload: &[u8]) -> Vec<u8> {
    let (d, n) = (dport.to_be_bytes(), (8 + payload.len() as u16).to_be_bytes());
    [&[0xc8, 0x22, d[0], d[1], n[0], n[1], 0, 0][..], payload].concat()
}

/// Parses a classic capture file in this machine's byte order into link type and packets.
pub fn classic(bytes: &[u8]) -> Option<(LinkType, Vec<Vec<u8>>)> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !matches!(u32_at(0)?, 0xa1b2_c3d4 | 0xa1b2_3c4d) {
        return None;
    }
    let (link, mut at, mut packets) = (LinkType(u32_at(20)? as u16), 24, Vec::new());
    while let Some(len) = u32_at(at + 8) {
        let Some(packet) = bytes.get(at + 16..at + 16 + len as usize) else { break };
        packets.push(packet.to_vec());
        at += 16 + len as usize;
    }
    Some((link, packets))
}

/// Returns the shared captures, of the folder `FLAME_TRACES`, or `None` without them.
pub fn traces() -> Option<Vec<PathBuf>> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    let root = std::env::var_os("FLAME_TRACES").map_or(default, PathBuf::from);
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("open/files")).ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    Some(files)
}
