//! Compares the number of matching packets with `tcpdump -r FILE -w - EXPRESSION`, for common expressions
//! over public captures.
//!
//! Needs tcpdump and the shared captures (`FLAME_TRACES`); reports and passes without them.

use flame_abi::LinkType;
use flame_filter::Filter;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXPRESSIONS: [&str; 20] = [
    "ip",
    "ip6",
    "tcp",
    "udp port 53",
    "tcp dst port 80",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "icmp[icmptype] == icmp-unreach",
    "net 10.0.0.0/8",
    "src net 192.168.0.0/16 and not dst net 192.168.0.0/16",
    "portrange 1024-2048",
    "ip6 and tcp",
    "ip[6:2] & 0x3fff != 0",
    "greater 1000",
    "less 64",
    "icmp6",
    "sctp",
    "ip proto 47",
    "host 10.0.0.1 or host 192.168.1.1",
    "ip broadcast or ip multicast",
];
/// Expressions for Ethernet only.
const ETHERNET: [&str; 6] =
    ["vlan", "arp", "mpls", "pppoes and ip", "ether[0] & 1 = 1", "vlan and tcp port 80"];

struct Capture {
    link: u16,
    /// The captured bytes and the length on the wire of each packet.
    packets: Vec<(Vec<u8>, u32)>,
}

/// Parses a classic capture file in this machine's byte order, the only form that tests read.
fn classic(bytes: &[u8]) -> Option<Capture> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !matches!(u32_at(0)?, 0xa1b2_c3d4 | 0xa1b2_3c4d) {
        return None;
    }
    let (link, mut at, mut packets) = (u32_at(20)? as u16, 24, Vec::new());
    while at < bytes.len() {
        let (len, wire) = (u32_at(at + 8)? as usize, u32_at(at + 12)?);
        packets.push((bytes.get(at + 16..at + 16 + len)?.to_vec(), wire));
        at += 16 + len;
    }
    Some(Capture { link, packets })
}

fn traces() -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    let root = std::env::var_os("FLAME_TRACES").map_or(default, PathBuf::from);
    Some(root.join("open/files")).filter(|p| p.is_dir())
}

#[test]
fn as_many_packets_as_tcpdump() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        eprintln!("skipped: no tcpdump");
        return;
    }
    let Some(folder) = traces() else {
        eprintln!("skipped: no captures, set FLAME_TRACES");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut filters: HashMap<(&str, u16), Option<Filter>> = HashMap::new();
    let (mut compared, mut matched) = (0, 0u64);
    // Every 8th file keeps the test to seconds. The files are sorted by suite, so all suites are covered.
    for file in files.iter().step_by(8).filter(|f| f.metadata().is_ok_and(|m| m.len() < 2_000_000)) {
        let Some(capture) = classic(&std::fs::read(file).unwrap()) else { continue };
        let link = LinkType(capture.link);
        if !link.is_decoded() {
            continue;
        }
        // Two expressions per file, so that each expression is tried on dozens of files.
        let all: Vec<&str> = match link {
            LinkType::ETHERNET => EXPRESSIONS.iter().chain(&ETHERNET).copied().collect(),
            _ => EXPRESSIONS.to_vec(),
        };
        for n in 0..2 {
            let expr = all[(compared + n * 7) % all.len()];
            compared += 1;
            let filter =
                filters.entry((expr, capture.link)).or_insert_with(|| Filter::compile(expr, link).ok());
            let output =
                Command::new("tcpdump").arg("-r").arg(file).args(["-w", "-", expr]).output().unwrap();
            let Some(filter) = filter else {
                assert!(!output.status.success(), "{expr} on {link:?} compiles for tcpdump");
                continue;
            };
            let theirs = classic(&output.stdout).map_or(0, |c| c.packets.len());
            let ours = capture.packets.iter().filter(|(b, wire)| filter.matches(b, *wire)).count();
            assert_eq!(ours, theirs, "{expr} over {}", file.display());
            matched += ours as u64;
        }
    }
    println!("{compared} comparisons, {matched} packets matched");
    assert!(compared > 100 && matched > 100);
}
