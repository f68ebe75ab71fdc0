//! Breaks of confidentiality that were found by attackers: each as its steps were, by the command.

use crate::common::Pcap;
use crate::credentials::{ALL, demo, done, in_folder, mint, modules, node, rows};
use crate::network::{Net, ipv4};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// Returns the number of packets that `count` counts under a credential of a folder.
fn packets(folder: &Path, credential: &str) -> u64 {
    let under = ["--policy", "policy.toml", "--credential", credential];
    rows(folder, "count", &under)[0]["packets"].as_u64().unwrap()
}

fn narrow(folder: &Path, from: &str, to: &str, more: &[&str]) {
    done(folder, &[&["grant", "narrow", from, "-o", to][..], more].concat());
}

/// A credential that excludes packets does not give them back when it hides what excludes them.
#[test]
fn what_a_holder_excludes_stays_excluded_under_later_transforms() {
    if modules().is_none() {
        return;
    }
    let node = node(ALL);
    let folder = node.path();
    mint(folder, "alice", &[]);
    let all = packets(folder, "alice.cred");
    // The first packet's source, so that the filter concerns some packets.
    let capture = std::fs::read(demo()).unwrap();
    let mac: Vec<String> = capture[40 + 6..40 + 12].iter().map(|byte| format!("{byte:02x}")).collect();
    let mac = format!("not ether host {}", mac.join(":"));
    for (filter, transforms) in [
        ("not host 10.9.0.1", &["ip=zero", "ip=hash", "ip=prefix", "ip=truncate:8", "ip.src=zero"][..]),
        ("not port 80", &["port=zero", "port=hash", "ip=zero"]),
        (&mac, &["mac=zero", "mac=hash"]),
    ] {
        mint(folder, "truth", &["--select", filter]);
        let expected = packets(folder, "truth.cred");
        assert!(0 < expected && expected < all, "{filter}: {expected} of {all}");
        narrow(folder, "alice.cred", "bob.cred", &["--select", filter]);
        assert_eq!(packets(folder, "bob.cred"), expected, "{filter}");
        for transform in transforms {
            // By a block, with and without a new holder, and in the same block as the filter.
            narrow(folder, "bob.cred", "carol.cred", &["--transform", transform]);
            narrow(folder, "bob.cred", "dave.cred", &["--transform", transform, "--to", "dave"]);
            narrow(folder, "alice.cred", "erin.cred", &["--select", filter, "--transform", transform]);
            for credential in ["carol.cred", "dave.cred", "erin.cred"] {
                assert_eq!(packets(folder, credential), expected, "{filter} {transform} {credential}");
            }
            // By the command, which narrows as well.
            let under = ["--policy", "policy.toml", "--credential", "alice.cred"];
            let more = ["--select", filter, "--transform", transform];
            let counted = rows(folder, "count", &[&under[..], &more].concat());
            assert_eq!(counted[0]["packets"], expected, "{filter} {transform}");
        }
    }
}

/// A pseudonym names the host that its author saw under it, also for holders with another key, and a cosigner
/// cannot name one.
#[test]
fn filters_on_pseudonyms_mean_what_their_author_saw() {
    if modules().is_none() {
        return;
    }
    let node = node(&format!("{ALL}\ntransform = \"ip=prefix\""));
    let folder = node.path();
    mint(folder, "alice", &[]);
    let all = packets(folder, "alice.cred");
    let under = ["--policy", "policy.toml", "--credential", "alice.cred"];
    let pseudonym = rows(folder, "flow", &under)[0]["src"].as_str().unwrap().to_owned();
    narrow(folder, "alice.cred", "less.cred", &["--select", &format!("not host {pseudonym}")]);
    let expected = packets(folder, "less.cred");
    assert!(0 < expected && expected < all, "{expected} of {all}");
    narrow(folder, "less.cred", "bob.cred", &["--to", "bob"]);
    assert_eq!(packets(folder, "bob.cred"), expected, "under bob's key it is another host's");
    let explained =
        done(folder, &["grant", "verify", "bob.cred", "--policy", "policy.toml", "--module", "count"]);
    assert!(explained.contains(&format!("not host {pseudonym} {{packets with expose=all")), "{explained}");

    done(folder, &["key", "new", "privacy.key"]);
    let cosign =
        ["grant", "cosign", "alice.cred", "--key", "privacy.key", "--name", "privacy", "-o", "c.cred"];
    let run = ["run", "count", "-r", &demo(), "--policy", "policy.toml", "--credential", "c.cred"];
    let refused = |filter: &str| {
        done(folder, &[&cosign[..], &["--select", filter]].concat());
        let out = in_folder(folder, &run);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains("may read what ip.src=prefix changes"), "{error}");
    };
    ["not host 10.9.0.1", "not src 168361985", "not ether host 1:0:5e:1:2:3", "not ip[12:4] = 168361985"]
        .into_iter()
        .for_each(refused);
    done(folder, &[&cosign[..], &["--select", "not port 80"]].concat());
    assert!(packets(folder, "c.cred") < all, "ports are shown as they are");
}

/// All that see a sample see the same one, by whatever workers, starts and narrower filters.
#[test]
fn a_credential_has_one_sample() {
    if modules().is_none() {
        return;
    }
    let node = node(&format!("{ALL}\nsample = 10\nresolution = \"1h\"\nmemory = \"8GiB\""));
    let folder = node.path();
    mint(folder, "alice", &[]);
    narrow(folder, "alice.cred", "bob.cred", &["--select", "tcp", "--transform", "ip=zero", "--to", "bob"]);
    narrow(folder, "alice.cred", "less.cred", &["--sample", "20"]);
    // Packets of one connection each, whose port identifies it; the same behind hidden ones.
    let frame = |n: u16, is_udp: bool| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend([
            0x45,
            0,
            0,
            40,
            0,
            0,
            0,
            0,
            64,
            if is_udp { 17 } else { 6 },
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        frame.extend((1000 + n).to_be_bytes());
        frame.extend([0, 80]);
        frame.extend(if is_udp {
            &[0, 20, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1][..]
        } else {
            &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0]
        });
        frame
    };
    let write = |name: &str, frames: &[Vec<u8>]| {
        let time = |n: u64| (1_700_000_000 + n / 1000) * 1_000_000_000 + n % 1000 * 1000;
        let packets = (0..).map(time).zip(frames);
        Pcap::default().with(packets).write(&folder.join(name));
    };
    let tcp: Vec<Vec<u8>> = (0..2000).map(|n| frame(n, false)).collect();
    write("all.pcap", &tcp);
    write("late.pcap", &tcp[700..]);
    let mixed: Vec<Vec<u8>> = (0..2000).flat_map(|n| [frame(n, true), frame(n, false)]).collect();
    write("mixed.pcap", &mixed);
    let ports = |capture: &str, credential: &str, workers: &str| {
        let run = ["run", "flow", "-r", capture, "-q", "--format", "json", "--workers", workers];
        let out =
            done(folder, &[&run[..], &["--policy", "policy.toml", "--credential", credential]].concat());
        let rows = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let tcp = rows.filter(|row| row["proto"] == 6 || row["proto"] == "tcp");
        tcp.map(|row| row["sport"].as_u64().unwrap()).collect::<BTreeSet<u64>>()
    };
    let sample = ports("all.pcap", "alice.cred", "1");
    assert!((140..270).contains(&sample.len()), "{} of 2000 at one in ten", sample.len());
    for workers in ["2", "3", "8", "32"] {
        assert_eq!(ports("all.pcap", "alice.cred", workers), sample, "{workers} workers");
    }
    assert_eq!(ports("all.pcap", "bob.cred", "1"), sample, "a narrower credential of another");
    assert_eq!(ports("mixed.pcap", "bob.cred", "1"), sample, "with 2000 hidden packets");
    assert_eq!(ports("mixed.pcap", "alice.cred", "2"), sample, "beside others");
    let late = ports("late.pcap", "alice.cred", "1");
    assert_eq!(late, sample.iter().copied().filter(|port| *port >= 1700).collect(), "a later start");
    // The length up to which a holder asks to see packets decides nothing.
    for length in ["35", "60", "128"] {
        let run =
            ["run", "flow", "-r", "all.pcap", "-q", "--format", "json", "--stats", "json", "-s", length];
        let out = in_folder(
            folder,
            &[&run[..], &["--policy", "policy.toml", "--credential", "alice.cred"]].concat(),
        );
        let rows = String::from_utf8_lossy(&out.stdout).lines().count();
        assert!(out.status.success() && (length == "35" || rows == sample.len()), "{length}: {rows} rows");
    }
    let counted = |credential: &str, length: &str| {
        let run = ["run", "count", "-r", "all.pcap", "-q", "--format", "json", "-s", length];
        done(folder, &[&run[..], &["--policy", "policy.toml", "--credential", credential]].concat())
    };
    let packets = |row: &str| serde_json::from_str::<Value>(row).unwrap()["packets"].clone();
    narrow(folder, "alice.cred", "zero.cred", &["--select", "tcp[16:2] = 0 and tcp[13] = 2"]);
    for (credential, length) in
        [("alice.cred", "20"), ("alice.cred", "64"), ("zero.cred", "40"), ("zero.cred", "53")]
    {
        let shown = packets(&counted(credential, length));
        assert_eq!(shown, sample.len() as u64, "{credential} up to {length} bytes");
    }
    let less = ports("all.pcap", "less.cred", "1");
    assert!(less.is_subset(&sample) && less.len() < sample.len(), "{}", less.len());
}

/// Captures of one link at the same time have the same sample, since the kernel states one time for a packet.
#[test]
fn captures_of_one_link_have_one_sample() {
    if modules().is_none() {
        return;
    }
    let Some(net) = Net::new() else { return };
    let node = node(&format!("{ALL}\nsample = 10"));
    mint(node.path(), "alice", &[]);
    let file = |name: &str| node.path().join(name).display().to_string();
    let (policy, credential) = (file("policy.toml"), file("alice.cred"));
    let run = ["flow", "-q", "--format", "json", "--policy", &policy, "--credential", &credential];
    let captures: Vec<_> = (1..=3).map(|sockets| net.capture(&run, sockets)).collect();
    net.send(&(0..2000).map(|n| ipv4(&[], 17, (1, 1000 + n), (2, 53), 122)).collect::<Vec<_>>(), 1);
    std::thread::sleep(Duration::from_millis(300));
    let ports = |out: Output| {
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let rows = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| row["sport"].as_u64().unwrap()).collect::<BTreeSet<u64>>()
    };
    let samples: Vec<_> = captures.into_iter().map(|capture| ports(capture.interrupt())).collect();
    assert!((140..270).contains(&samples[0].len()), "{} of 2000 at one in ten", samples[0].len());
    assert!(samples.iter().all(|sample| *sample == samples[0]), "{samples:?}");
}
