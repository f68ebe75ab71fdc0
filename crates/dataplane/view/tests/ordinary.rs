//! Payload of shared captures that is no packet is shown.

use crate::common::*;
use flame_abi::Descriptor;
use flame_plan::{Action, Expose};
use std::collections::BTreeSet;

/// The captures with packets in payload: tunnels over ICMP, GRE over UDP, AYIYA and Teredo on other ports,
/// lawful interception, captures that are copied over TCP, samples of sFlow.
const TUNNELS: [&str; 9] = [
    "libtrace--test_traces_etsi_10_pings.pcap",
    "nDPI--icmp-tunnel.pcap",
    "nDPI--sflow.pcap",
    "suricata-verify--detect-filestore-config-04_test.pcap",
    "suricata-verify--filestore-5408_input.pcap",
    "tcpdump--kday4.pcap",
    "zeek--tunnels_ayiya3.pcap",
    "zeek--tunnels_gre-over-udp-4754.pcap",
    "zeek--tunnels_teredo_bubble_with_payload.pcap",
];

#[test]
fn ordinary_payload_is_shown() {
    let Some(files) = traces() else {
        eprintln!("skipped: no captures, set FLAME_TRACES");
        return;
    };
    let (mut all, mut found) = (0u64, BTreeSet::new());
    for file in files {
        let Some((link, packets)) = classic(&std::fs::read(&file).unwrap()) else { continue };
        let mut view = view(Expose::All, &[("mac", Action::Zero)]);
        let (descriptors, data) = block(link, &packets);
        let (mut out, mut out_data) = (vec![Descriptor::default(); packets.len()], vec![0; data.len()]);
        let written = view.copy(&descriptors, |_| link, &data, &mut out, &mut out_data, BASE).unwrap();
        all += packets.len() as u64;
        if written.cut > 0 {
            found.insert(file.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    // A packet that a test of another project made of text.
    found.remove("zeek--tunnels_teredo-udp-in-udp.pcap");
    assert_eq!(found, TUNNELS.map(str::to_owned).into(), "of {all} packets");
    assert!(all > 100_000, "{all}");
}
