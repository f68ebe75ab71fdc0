//! The shipped rules and those of words.rules on real captures, in both dialects: as many alerts of each as
//! another program finds (expected.py, which made expected.tsv). Captures that it leaves out must give none.

use flame_ids::Ids;
use flame_module::testing::{Native, Parameters};
use std::collections::BTreeMap;

/// Returns the parameters of a run with the shipped rules and those of words.rules.
fn parameters(dialect: &str) -> Parameters {
    let rules = [flame_ids::SHIPPED, include_str!("words.rules")].concat();
    let room = Parameters::of(flame_ids::DEFAULTS).integer("max_connections", 1 << 20);
    room.text("rules", &rules).text("dialect", dialect)
}

fn expected(text: &str) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let mut all: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let numbers: (u32, u64) = (cells[1].parse().expect("a sid"), cells[2].parse().expect("a number"));
        all.entry(cells[0].to_owned()).or_default().extend([numbers]);
    }
    all
}

/// Captures that `expected.py` does not decode as we do: of other link types (PPP, Cisco HDLC, NFLOG, PKTAP,
/// frame relay, switch tags, NSH, MAC in MAC), and with more than sixteen extension headers.
const ONLY_HERE: &[&str] = &[
    "nDPI--BGP_redist.pcap",
    "suricata-verify--decode-dce_input.pcap",
    "suricata-verify--decode-etag-02_input.pcap",
    "suricata-verify--decode-nsh-type2_input.pcap",
    "suricata-verify--defrag_bug-6887-defrag-ppp-ipv4-tcp-syn_frag-ppp-ip-tcp-syn.pcap",
    "suricata-verify--defrag_bug-6887-defrag-ppp-ipv6-tcp_frag-ppp-ipv6-tcp.pcap",
    "suricata-verify--ipv6-evasion_ipv6-malformed-fragments-11_frag-11.pcap",
    "suricata-verify--ipv6-evasion_ipv6-malformed-fragments-12_frag-12.pcap",
    "tcpdump--HDLC.pcap",
    "tcpdump--LINKTYPE_PKTAP.pcap",
    "tcpdump--OSPFv3_multipoint_adjacencies.pcap",
    "tcpdump--edsa-high-vid.pcap",
    "tcpdump--edsa.pcap",
    "tcpdump--icmp-cksum-oobr-2.pcap",
    "tcpdump--icmp-cksum-oobr-4.pcapng",
    "tcpdump--icmp-rfc5837.pcap",
    "tcpdump--lspping-fec-rsvp.pcap",
    "tcpdump--mpls-ldp-hello.pcap",
    "tcpdump--mpls-traceroute.pcap",
    "tcpdump--nflog.pcap",
    "tcpdump--nsh.pcap",
    "tcpdump--wb-oobr.pcap",
    "zeek--nflog-http.pcap",
    "zeek--pbb.pcap",
    "zeek--ppp_quic-interop-retry.pcap",
    "zeek--quic_interop_quic-go_quic-go_handshake.pcap",
    "zeek--vntag_vlan_sandwich_clean.pcap",
];

#[test]
fn real_captures_agree() {
    let fired = agree("suricata", include_str!("expected.tsv"));
    assert!(fired.len() >= 120, "{} rules fire: {fired:?}", fired.len());
}

#[test]
fn real_captures_agree_in_snorts_dialect() {
    let fired = agree("snort", include_str!("expected-snort.tsv"));
    assert!(fired.len() >= 120, "{} rules fire: {fired:?}", fired.len());
}

/// Compares the alerts on all captures and returns how often each rule fires.
fn agree(dialect: &str, expected_text: &str) -> BTreeMap<u32, u64> {
    let Some(folder) = flame_testing::traces() else { return (0..200).map(|sid| (sid, 0)).collect() };
    let mut expected = expected(expected_text);
    let (mut different, mut fired) = (Vec::new(), BTreeMap::<u32, u64>::new());
    for (file, []) in flame_testing::truth(&folder, []) {
        let mut native = Native::<Ids>::new(&parameters(dialect), 0);
        if !flame_testing::blocks(folder.join("files").join(&file), |d, memory| native.packets(d, memory)) {
            continue;
        }
        native.end(0);
        assert_eq!(native.lost, 0, "{file}");
        let mut found: BTreeMap<u32, u64> = BTreeMap::new();
        for row in native.rows.iter().filter(|r| r.table == 0) {
            *found.entry(row.integer(12, 4) as u32).or_default() += 1;
        }
        found.iter().for_each(|(sid, n)| *fired.entry(*sid).or_default() += n);
        let theirs = expected.remove(&file).unwrap_or_default();
        if found != theirs && !ONLY_HERE.contains(&file.as_str()) {
            different.push(format!("{file}:\n  ours     {found:?}\n  expected {theirs:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(expected.is_empty(), "not captures: {expected:?}");
    fired
}
