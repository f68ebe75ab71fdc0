//! The packets of the SDK's builder have the descriptors that the host would compute.

use flame_abi::{Descriptor, LinkType};
use flame_module::testing::Traffic;
use flame_module::{proto, tcp};

fn traffic() -> Traffic {
    let mut traffic = Traffic::default();
    traffic.tcp("10.0.0.1:1024", "192.0.2.7:443").tcp_flags(tcp::SYN).tcp_options(&[2, 4, 5, 0xb4]);
    traffic.tcp("[fd00::1]:1024", "[fd00::2]:443").payload(b"hello").at(5_000);
    traffic.udp("10.0.0.1:53", "10.0.0.2:5353").payload(b"question");
    traffic.udp("[fd00::1]:53", "[fd00::2]:5353");
    traffic.ip("10.0.0.1", "10.0.0.2", proto::GRE).payload(&[0; 8]);
    traffic.again();
    traffic
}

#[test]
fn the_decoder_finds_what_the_builder_said() {
    let traffic = traffic();
    for d in traffic.descriptors() {
        let bytes = &traffic.memory()[d.addr as usize..][..d.cap_len as usize];
        let decoded =
            flame_decode::decode(LinkType::ETHERNET, bytes, d.wire_len, flame_decode::Options::default());
        // The host computes another hash.
        let decoded = Descriptor { ts_ns: d.ts_ns, addr: d.addr, hash: d.hash, ..decoded };
        assert_eq!(*d, decoded);
    }
    let hashes: Vec<u32> = traffic.descriptors().iter().map(|d| d.hash).collect();
    assert_eq!(hashes[4], hashes[5]);
    let mut there_and_back = Traffic::default();
    there_and_back.udp("10.0.0.1:53", "10.0.0.2:5353");
    there_and_back.udp("10.0.0.2:5353", "10.0.0.1:53");
    assert_eq!(there_and_back.descriptors()[0].hash, there_and_back.descriptors()[1].hash);
}
