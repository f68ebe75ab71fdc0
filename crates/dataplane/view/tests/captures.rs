//! Passes every shared capture through the strictest view: nothing panics, right checksums stay right, and
//! the decoder still understands the packet.
//!
//! Needs the shared captures (`FLAME_TRACES`); reports and passes without them.

use crate::common::*;
use flame_abi::{Descriptor, flags};
use flame_decode::{Options, decode};
use flame_plan::{Action, Expose};

/// Returns whether the checksum of the outermost transport header is right, or `None` if that is unknown.
fn transport_is_right(bytes: &[u8], d: &Descriptor) -> Option<bool> {
    let plain = d.has(flags::TRANSPORT) && !d.has(flags::FRAGMENT | flags::TRUNCATED | flags::MALFORMED);
    let ip = bytes.get(usize::from(d.l3)..)?;
    let (version, l4) = (ip.first()? >> 4, usize::from(d.l4 - d.l3));
    // Routing headers and home addresses change the contents of a pseudo-header.
    if !plain || (version == 6 && l4 != 40) || (version == 4 && l4 != 20) {
        return None;
    }
    let end = match version {
        4 => usize::from(u16::from_be_bytes([ip[2], ip[3]])),
        _ => 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])),
    };
    let segment = ip.get(l4..end)?;
    let pseudo = match version {
        4 => pseudo4(ip, d.proto, segment.len()),
        _ => pseudo6(ip, d.proto, segment.len()),
    };
    match d.proto {
        17 if segment.get(6..8)? == [0, 0] => None,
        1 => Some(word_sum(&[segment]) == 0xffff),
        6 | 17 | 58 => Some(word_sum(&[&pseudo, segment]) == 0xffff),
        _ => None,
    }
}

#[test]
fn all_of_them() {
    let Some(files) = traces() else {
        eprintln!("skipped: no captures, set FLAME_TRACES");
        return;
    };
    let all = [("mac", Action::Hash), ("ip", Action::Prefix), ("port", Action::Hash)];
    let mut v = view(Expose::All, &all);
    let (mut compared, mut cut) = (0u64, 0u64);
    for file in files.iter().filter(|f| f.metadata().is_ok_and(|m| m.len() < 400_000)) {
        let Some((link, packets)) = classic(&std::fs::read(file).unwrap()) else { continue };
        let packets: Vec<Vec<u8>> = packets.into_iter().take(200).collect();
        let seen = see(&mut v, link, &packets);
        for (i, (bytes, d)) in packets.iter().zip(&seen.descriptors).enumerate() {
            let before = decode(link, bytes, bytes.len() as u32, Options::default());
            let shown = seen.packet(i);
            let after = decode(link, shown, shown.len() as u32, Options::default());
            assert_eq!((d.proto, d.tcp_flags, d.wire_len), (before.proto, before.tcp_flags, before.wire_len));
            if let Some(right) = transport_is_right(bytes, &before) {
                match transport_is_right(shown, &after) {
                    // The packet is complete: right stays right, wrong stays wrong.
                    Some(now) => {
                        assert_eq!(now, right, "packet {i} of {}", file.display());
                        assert_eq!(d.hash, after.hash, "packet {i} of {}", file.display());
                        compared += 1;
                    }
                    None => cut += 1,
                }
            }
        }
    }
    println!("{compared} checksums compared, {cut} packets not shown to their end");
    assert!(compared > 5_000);
}
