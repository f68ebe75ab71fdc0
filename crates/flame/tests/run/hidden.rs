//! Tests of everything, besides the module, that a user of a grant could learn from hidden packets: whole
//! commands.

use crate::commands::{done, flame, text};
use crate::common::{Pcap, eventually, tcp_packet, with_manifest};
use crate::network::{Ended, Net, ipv4};
use std::path::Path;
use std::process::{Command, Stdio};

const UNDER: [&str; 4] = ["--policy", "policy.toml", "--credential", "alice.cred"];

/// Creates a node that shows headers of TCP to port 80, and a module that reports for each batch its number
/// of packets and of those lost before it, after a computation of `iterations`.
fn node(of_node: &str, expose: &str, iterations: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = done(folder.path(), &["key", "new", "root.key"]);
    done(folder.path(), &["key", "new", "node.key"]);
    let policy = format!(
        "[node]\nname = \"tap1\"\nkey = \"node.key\"\n{of_node}\n[roots]\noperator = \"{root}\"\n[roles.all]\n\
         select = \"tcp port 80\"\nexpose = \"{expose}\"\ncalls = \"records\"\ncode = \"any\"\npacket_budget = 100_000_000\n"
    );
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    let mint = ["grant", "mint", "--key", "root.key", "--to", "alice", "--role", "all", "--code", "any"];
    done(folder.path(), &[&mint[..], &["-o", "alice.cred"]].concat());
    let wasm = format!(
        r#"(module (memory (export "memory") 1)
          (func (export "flame_batch") (param $b i32) (result i64) (local $i i32)
            (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {iterations}))))
            (i64.store (i32.const 64) (i64.const 16))
            (i64.store (i32.const 72) (i64.extend_i32_u (i32.load offset=4 (local.get $b))))
            (i64.store (i32.const 80) (i64.load offset=8 (local.get $b)))
            (i64.const 0x1800000040)))"#
    );
    let manifest = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[limits]\n\
        packet_budget = 100_000_000\n[[tables]]\nname = \"t\"\n\
        columns = [{ name = \"count\", type = \"u64\" }, { name = \"lost\", type = \"u64\" }]\n";
    let wasm = with_manifest(wat::parse_str(wasm).unwrap(), manifest.as_bytes());
    std::fs::write(folder.path().join("m.wasm"), wasm).unwrap();
    folder
}

/// Writes a capture of one link type. Packets have a time in milliseconds, within one second, and bytes.
fn capture(path: &Path, link: u32, packets: &[(u32, Vec<u8>)]) {
    let packets =
        packets.iter().map(|(ms, packet)| ((1_700_000_000_000 + u64::from(*ms)) * 1_000_000, packet));
    Pcap::new(link).with(packets).write(path);
}

fn seven(path: &Path) {
    capture(path, 1, &(0..7).map(|i| (i, tcp_packet(7, 80))).collect::<Vec<_>>());
}

#[test]
fn options_that_look_at_packets_as_they_are_need_the_policys_leave() {
    let folder = node("", "headers", 1);
    seven(&folder.path().join("c.pcap"));
    let run = |more: &[&str]| flame(folder.path(), &[&["run", "./m.wasm", "-r", "c.pcap"], more].concat());
    for option in [&["--count", "3"][..], &["--decapsulate"]] {
        assert!(run(option).status.success());
        let refused = run(&[option, &UNDER].concat());
        assert!(
            text(&refused.stderr).contains("this runs under a policy")
                || text(&refused.stderr).contains("the policy does not let it"),
            "{}",
            text(&refused.stderr)
        );
        assert_eq!(refused.status.code(), Some(1));
    }
    let lets = node("decapsulate = true", "headers", 1);
    seven(&lets.path().join("c.pcap"));
    done(lets.path(), &[&["run", "./m.wasm", "-r", "c.pcap", "--decapsulate"], &UNDER[..]].concat());
}

/// The progress line would count every packet.
#[test]
fn no_progress_is_shown_under_a_grant() {
    if !Command::new("script").arg("--version").output().is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: needs script (util-linux)");
        return;
    }
    let folder = node("", "headers", 1);
    // More packets than are read before the first one is processed.
    capture(
        &folder.path().join("c.pcap"),
        1,
        &(0..100_000).map(|i| (i / 200, tcp_packet(7, 80))).collect::<Vec<_>>(),
    );
    let late = 1_700_000_000_500_000_000;
    let more = Pcap::default().with((0..100).map(|_| (late, tcp_packet(7, 80)))).bytes().split_off(24);
    std::fs::write(folder.path().join("more"), more).unwrap();
    // Once the capture is read, more packets follow until the file `stop` is there. The file `parts` has a
    // byte for each part of them.
    let feed = "cat c.pcap; while [ ! -e stop ]; do cat more; echo >> parts; sleep 0.1; done";
    let parts = || std::fs::metadata(folder.path().join("parts")).map_or(0, |parts| parts.len());
    let shown = |options: &[&str], until: &dyn Fn(&str) -> bool| {
        let (flame, options) = (env!("CARGO_BIN_EXE_flame"), options.join(" "));
        let run = format!("({feed}) | {flame} run ./m.wasm -r - -s 200 --format json --stats none {options}");
        ["stop", "parts"].iter().for_each(|name| drop(std::fs::remove_file(folder.path().join(name))));
        let mut script = Command::new("script");
        script.args(["-qefc", &run, "shown"]).current_dir(folder.path()).stdout(Stdio::null());
        let mut script = Ended(script.spawn().unwrap());
        let shown = || text(&std::fs::read(folder.path().join("shown")).unwrap_or_default());
        eventually("what is shown", || until(&shown()));
        std::fs::write(folder.path().join("stop"), "").unwrap();
        assert!(script.0.wait().unwrap().success());
        shown()
    };
    // The operator sees progress after some parts, and a holder after twice as many none.
    shown(&[], &|shown| shown.contains(" packets  "));
    let seen = parts();
    let granted = shown(&UNDER, &|_| parts() > 2 * seen + 5);
    assert!(!granted.contains("packets") && granted.contains("\"count\":"), "{granted}");
}

/// The place of the damage would be the sum of the lengths of all packets before it.
#[test]
fn damage_has_no_place_in_bytes_under_a_grant() {
    let folder = node("", "headers", 1);
    let run = |hidden: usize, more: &[&str]| {
        let mut packets: Vec<_> = (0..5).map(|i| (i, tcp_packet(7, 80))).collect();
        packets.extend((0..hidden).map(|_| (6, tcp_packet(7, 443))));
        let path = folder.path().join("c.pcap");
        capture(&path, 1, &packets);
        let mut file = std::fs::read(&path).unwrap();
        file.truncate(file.len() - 3);
        std::fs::write(&path, file).unwrap();
        let out = flame(folder.path(), &[&["run", "./m.wasm", "-r", "c.pcap"], more].concat());
        assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    // The last packet, which is cut, is hidden as well. The operator sees the difference.
    let (few, many) = (run(1, &[]), run(20, &[]));
    assert!(few != many && few.contains("damaged at byte") && few.contains("5 packets read"), "{few}");
    let (few, many) = (run(1, &UNDER), run(20, &UNDER));
    assert_eq!(few, many);
    assert!(few.contains("c.pcap: the capture is damaged; the packets before the damage were read"), "{few}");
    assert!(few.contains("5 packets shown\n"), "{few}");
}

#[test]
fn hidden_packets_are_not_counted_and_end_no_block() {
    for expose in ["none", "headers", "all"] {
        let folder = node("", expose, 1);
        let run = |hidden: usize| {
            let each = |i| {
                vec![
                    (i, tcp_packet(7, if i % 2 == 0 { 80 } else { 443 }));
                    if i % 2 == 0 { 1 } else { hidden }
                ]
            };
            capture(&folder.path().join("c.pcap"), 1, &(0..100).flat_map(each).collect::<Vec<_>>());
            let run = ["run", "./m.wasm", "-r", "c.pcap", "--format", "json", "--stats", "json"];
            let out = flame(folder.path(), &[&run[..], &UNDER].concat());
            (text(&out.stdout), text(&out.stderr))
        };
        assert_eq!(run(0), run(60), "{expose}");
    }
}

#[test]
fn hidden_packets_of_another_link_type_end_no_block() {
    let folder = node("", "headers", 1);
    let path = |name: &str| folder.path().join(name);
    capture(&path("a.pcap"), 1, &(0..50).map(|i| (2 * i, tcp_packet(7, 80))).collect::<Vec<_>>());
    let run = |raw: &[(u32, Vec<u8>)]| {
        capture(&path("b.pcap"), 101, raw);
        let run = ["run", "./m.wasm", "-r", "a.pcap", "-r", "b.pcap", "-q", "--format", "json"];
        done(folder.path(), &[&run[..], &UNDER].concat())
    };
    let raw = |ms: u32, port: u16| (ms, tcp_packet(7, port)[14..].to_vec());
    let without = run(&[]);
    assert_eq!(without, run(&(0..40).map(|i| raw(2 * i + 1, 443)).collect::<Vec<_>>()));
    // Shown packets have an effect, because a batch has one link type. None is missing.
    let with = run(&[raw(11, 443), raw(21, 80), raw(21, 80), raw(31, 443)]);
    let counts: Vec<_> = with
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["count"].clone())
        .collect();
    assert_eq!(counts, [11, 2, 39].map(serde_json::Value::from), "{with}");
}

#[test]
fn packets_that_were_not_to_be_shown_are_not_lost_either() {
    let Some(net) = Net::new() else { return };
    let folder = node("", "headers", 16_000_000);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (policy, credential, module) = (path("policy.toml"), path("alice.cred"), path("m.wasm"));
    let under = ["--policy", &policy, "--credential", &credential];
    let run = [&module, "--metered", "--interval", "1ms", "--format", "json"];
    // More packets than fit the blocks that may wait.
    let mut frames = vec![ipv4(&[], 6, (1, 1024), (2, 80), 74); 1];
    frames.extend(vec![ipv4(&[], 17, (1, 1024), (2, 53), 300); 4]);
    let measure = || {
        let capture = net.capture(&[&run[..], &under].concat(), 1);
        net.send(&frames, 10_000);
        // Its first batch takes longer than that. The packets after it must be read before the end.
        std::thread::sleep(std::time::Duration::from_secs(3));
        let out = capture.interrupt();
        let said = text(&out.stderr);
        let account: serde_json::Value = serde_json::from_str(&said[said.find("{\"").unwrap()..]).unwrap();
        (out, account)
    };
    let is_behind =
        |account: &serde_json::Value| account["modules"]["m"]["shed"]["overrun"].as_u64() > Some(0);
    // On a busy machine, packets can come more slowly than that.
    let mut measured = std::iter::repeat_with(measure).take(5);
    let (out, account) = measured.find(|(_, account)| is_behind(account)).expect("it fell behind");
    let m = &account["modules"]["m"];
    assert!(m["offered"].as_u64() <= Some(10_000) && m["adds_up"] == true, "{account}");
    let lost = |l: &str| serde_json::from_str::<serde_json::Value>(l).unwrap()["lost"].as_u64().unwrap();
    let lost: u64 = text(&out.stdout).lines().map(lost).sum();
    assert!(lost <= 10_000, "{lost}");
}
