//! The module `scan` against sets of what each source touched, made from fields of tshark 4.0.

use super::tshark::{captures, name};
use crate::common::{for_each, module};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const LEAST: u64 = 8;
/// Captures with sources that touch as many hosts or ports; there are eighteen more.
const SCANS: [&str; 12] = [
    "nDPI--agora-sd-rtn.pcap",
    "nDPI--ethereum.pcap",
    "nDPI--fuzz-2006-06-26-2594.pcap",
    "nDPI--gnutella.pcap",
    "nDPI--quic_interop_V.pcapng",
    "nDPI--srvloc.pcap",
    "nDPI--synscan.pcap",
    "nDPI--teams.pcap",
    "suricata-verify--smb2-ntlmssp-negotiateflags_input.pcap",
    "tcpdump--mpls-traceroute.pcap",
    "zeek--ntp_ntp.pcap",
    "zeek--rpc-portmap-sadmind.pcap",
];
/// The time after which a datagram of UDP begins another conversation.
const SILENCE: f64 = 120.0;
const FIELDS: [&str; 11] = [
    "frame.time_epoch",
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "tcp.flags",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "icmp.type",
    "icmpv6.type",
];

/// Numbers of hosts by source, and of ports by source and host.
type Touched = BTreeMap<String, u64>;

fn ours(capture: &Path) -> Touched {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    flame.args(["run", "scan", "-q", "--format", "json", "--table", "scan.scan"]);
    // One window, which no time of a capture ends.
    for parameter in ["window=9000000000s", &format!("hosts={LEAST}"), &format!("ports={LEAST}")] {
        flame.args(["--set", &format!("scan.{parameter}")]);
    }
    let output = flame.arg("-r").arg(capture).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| {
        let text = |column: &str| row[column].as_str().unwrap().to_owned();
        match row["kind"] == "hosts" {
            true => (text("src"), row["hosts"].as_u64().unwrap()),
            false => (format!("{} {}", text("src"), text("dst")), row["ports"].as_u64().unwrap()),
        }
    })
    .collect()
}

fn theirs(capture: &Path) -> Touched {
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-E", "occurrence=a", "-o", "ip.defragment:FALSE"]);
    tshark.args(["-o", "ipv6.defragment:FALSE"]);
    FIELDS.iter().for_each(|field| _ = tshark.args(["-e", field]));
    let output = tshark.arg("-r").arg(capture).output().unwrap();
    let mut touched = BTreeMap::<String, BTreeSet<String>>::new();
    let mut talks = BTreeMap::<[(String, String); 2], f64>::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let values: Vec<&str> = line.split('\t').collect();
        let [time, v4, v6, to_v4, to_v6, flags, tcp, from, udp, icmp, icmpv6] = values[..] else { continue };
        let (src, dst) = (format!("{v4}{v6}"), format!("{to_v4}{to_v6}"));
        // With several, one is inside a tunnel or an error of ICMP.
        if src.is_empty() || [&src, &dst].iter().any(|ip| ip.contains(',')) {
            continue;
        }
        let port = match flags.strip_prefix("0x").map(|digits| u16::from_str_radix(digits, 16).unwrap()) {
            // Without ACK and RST.
            Some(flags) if flags & 0x14 == 0 => format!("tcp {tcp}"),
            None if !udp.is_empty() => {
                let mut ends = [(src.clone(), from.to_owned()), (dst.clone(), udp.to_owned())];
                ends.sort();
                // Records of some formats have no time.
                let now = time.parse().unwrap_or(0.0);
                if talks.insert(ends, now).is_some_and(|last| now - last < SILENCE) {
                    continue;
                }
                format!("udp {udp}")
            }
            None if icmp == "8" || icmpv6 == "128" => String::new(),
            _ => continue,
        };
        touched.entry(src.clone()).or_default().insert(dst.clone());
        if !port.is_empty() && !port.ends_with(" 0") {
            touched.entry(format!("{src} {dst}")).or_default().insert(port);
        }
    }
    touched.into_iter().map(|(key, set)| (key, set.len() as u64)).collect()
}

#[test]
fn scans_are_those_of_tshark() {
    if module("scan").is_none() {
        return;
    }
    let Some(captures) = captures(|_, name| SCANS.contains(&name)) else { return };
    let results = for_each(&captures, |capture| {
        let (ours, theirs) = (ours(capture), theirs(capture));
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let wrong = keys.into_iter().filter_map(|key| {
            let count = |touched: &Touched| touched.get(key).copied().unwrap_or(0);
            let (estimate, exact) = (count(&ours), count(&theirs));
            // Four to five standard errors.
            let is_near = |a: u64| (exact * 3 / 4..=exact * 5 / 4).contains(&a);
            let is_right = if estimate == 0 { exact < LEAST || is_near(LEAST) } else { is_near(estimate) };
            (!is_right).then(|| format!("{}: {key}: {estimate}, tshark {exact}", name(capture)))
        });
        (ours.len(), wrong.collect::<Vec<_>>())
    });
    let rows: usize = results.iter().map(|(rows, _)| rows).sum();
    let wrong = results.into_iter().flat_map(|(_, wrong)| wrong).collect::<Vec<_>>();
    assert!(rows >= 20 && wrong.is_empty(), "{rows} rows; wrong:\n{}", wrong.join("\n"));
}
