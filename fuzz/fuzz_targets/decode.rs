#![no_main]
//! A link type (u16, little-endian), then a packet: every offset lies inside.
use flame_abi::{LinkType, flags};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((link, packet)) = bytes.split_first_chunk::<2>() else { return };
    let link = LinkType(u16::from_le_bytes(*link));
    for decapsulate in [false, true] {
        let d = flame_decode::decode(
            link,
            packet,
            65_535,
            flame_decode::Options { decapsulate, ..Default::default() },
        );
        assert!(u32::from(d.l3) <= d.cap_len && u32::from(d.l4) <= d.cap_len && d.payload() <= d.cap_len);
        assert!(!d.has(flags::TRANSPORT) || d.l4_len > 0);
        assert!(d.is_ip() || d.hash == 0);
    }
    let layers = flame_decode::layers(link, packet);
    assert!(layers.understood <= packet.len() && layers.iter().all(|l| l.end <= packet.len()));
});
