//! Tests of the join with constructed logs, and the paths and losses that they contain.

use flame_join::{Joined, Options, join, parse};
use proptest::prelude::*;
use std::fmt::Write;

fn log(out: &mut String, ts_ns: u64, flow: u64, label: u32) {
    let line = format!(
        r#"{{"module":"trajectory","table":"log","ts_ns":{ts_ns},"flow":{flow},"label":{label},"wire_len":100}}"#
    );
    writeln!(out, "{line}").unwrap();
}

fn joined(logs: &[&str]) -> Joined {
    let names = ["a", "b", "c"];
    let inputs = logs.iter().zip(names).map(|(l, n)| (n.to_owned(), l.as_bytes())).collect();
    join(inputs, Options::default()).unwrap()
}

#[test]
fn delay_and_loss_are_what_was_logged() {
    let (mut a, mut b, mut c) = (String::new(), String::new(), String::new());
    a += "{\"module\":\"trajectory\",\"table\":\"flow\",\"ts_ns\":1,\"flow\":1,\"proto\":17,\"src\":\"10.0.0.1\",\"sport\":5,\"dst\":\"10.0.0.2\",\"dport\":53}\n";
    for i in 0..1000u64 {
        let ts = 1_000_000_000 + i * 1_000_000;
        log(&mut a, ts, 1, i as u32);
        // One tenth is lost between a and b, one twentieth of the others between b and c.
        if i % 10 != 0 {
            log(&mut b, ts + 2_000_000, 1, i as u32);
            if i % 20 != 1 {
                log(&mut c, ts + 5_000_000 + i % 2 * 1_000_000, 1, i as u32);
            }
        }
    }
    // A flow in the opposite direction, and a flow that only b sees.
    log(&mut c, 9_000_000_000, 2, 7);
    log(&mut a, 9_004_000_000, 2, 7);
    log(&mut b, 9_500_000_000, 3, 8);
    let all = joined(&[&a, &b, &c]);
    let flow = &all.flows[0];
    assert_eq!((flow.id, flow.path.as_str(), flow.packets, flow.lost), (1, "a > b > c", 850, 150));
    assert_eq!(flow.flow.as_ref().map(|f| (f.src.as_str(), f.dport)), Some(("10.0.0.1", 53)));
    assert_eq!((flow.min_ns, flow.max_ns), (5_000_000, 6_000_000));
    let path = all.paths.iter().find(|p| p.path == "a > b > c").unwrap();
    assert_eq!((path.packets, path.lost, path.max_ns), (850, 150, 6_000_000));
    assert!((path.mean_ns - flow.mean_ns).abs() < 1.0 && path.p50_ns.abs_diff(6_000_000) < 60_000);
    assert!(all.paths.iter().any(|p| p.path == "c > a" && p.packets == 1));
    assert_eq!((all.alone, all.ambiguous, all.logs), (1, 0, 1000 + 900 + 850 + 3));
    let of_path: u64 = all.delays.iter().filter(|d| d.path == "a > b > c").map(|d| d.packets).sum();
    assert_eq!(of_path, 850);
}

#[test]
fn what_is_ambiguous_is_left_out_and_what_comes_too_late_is_lost() {
    let (mut a, mut b) = (String::new(), String::new());
    log(&mut a, 1_000, 1, 1);
    log(&mut a, 2_000, 1, 1);
    log(&mut b, 3_000, 1, 1);
    log(&mut a, 100_000, 1, 2);
    log(&mut b, 200_000, 1, 2);
    log(&mut a, 300_000, 1, 3);
    log(&mut b, 300_000 + 11_000_000_000, 1, 3);
    let all = joined(&[&a, &b]);
    assert_eq!((all.ambiguous, all.flows[0].packets, all.flows[0].lost), (1, 1, 1));
}

#[test]
fn times_in_rfc_3339_and_flows_without_ports_are_read() {
    let mut plain = String::new();
    log(&mut plain, 1_000_000_000, 1, 1);
    let text = plain.replace(":1000000000", r#":"1970-01-01T00:00:00.999999900Z""#);
    let flow = r#"{"module":"trajectory","table":"flow","ts_ns":"1970-01-01T00:00:00Z","flow":1,"proto":1,"src":"10.0.0.1","sport":null,"dst":"10.0.0.2","dport":null}"#;
    let all = joined(&[&format!("{flow}\n{text}"), &plain]);
    let row = &all.flows[0];
    assert_eq!((row.packets, row.max_ns), (1, 100));
    assert_eq!(row.flow.as_ref().map(|f| (f.proto, f.sport, f.dport)), Some((1, 0, 0)));
    let seconds = plain.replace(":1000000000", ":1.000000000");
    let said = join(vec![("a".to_owned(), seconds.as_bytes())], Options::default()).unwrap_err().to_string();
    assert!(said.contains("expected a time in whole nanoseconds since 1970, or of RFC 3339"), "{said}");
}

#[test]
fn a_wrong_line_is_named() {
    for (line, said) in [
        ("{", "line 2: EOF"),
        ("[1]", "line 2: invalid"),
        (r#"{"module":"trajectory","table":"log","ts_ns":-1}"#, "line 2: invalid value"),
        (r#"{"module":"trajectory","table":"log","ts_ns":1}"#, "needs ts_ns, flow, label"),
        (r#"{"module":"trajectory","table":"flow","flow":1}"#, "missing field"),
    ] {
        let text = format!("{{\"module\":\"count\",\"table\":\"count\"}}\n{line}\n");
        let e = join(vec![("here.json".to_owned(), text.as_bytes())], Options::default()).unwrap_err();
        assert!(e.to_string().starts_with("here.json, line 2: ") && e.to_string().contains(said), "{e}");
    }
}

proptest! {
    /// Every packet that the first monitor logged arrived, was lost, or was ambiguous.
    #[test]
    fn nothing_is_forgotten(packets in prop::collection::vec((0u64..5, 0u32..40, any::<bool>()), 1..200)) {
        let (mut a, mut b) = (String::new(), String::new());
        for (i, (flow, label, through)) in packets.iter().enumerate() {
            let ts = i as u64 * 1000;
            log(&mut a, ts, *flow, *label);
            if *through {
                log(&mut b, ts + 500, *flow, *label);
            }
        }
        let all = joined(&[&a, &b]);
        let distinct: std::collections::BTreeSet<_> = packets.iter().map(|(f, l, _)| (f, l)).collect();
        let counted: u64 = all.flows.iter().map(|f| f.packets + f.lost).sum();
        prop_assert_eq!(counted + all.ambiguous + all.alone, distinct.len() as u64);
    }

    #[test]
    fn any_line_is_read_or_refused(line in "[ -~]{0,80}") {
        let _ = parse(&line);
    }
}
