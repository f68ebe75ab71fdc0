//! Tests that a hidden byte is nowhere in a module's memory: the whole pipeline runs, and a module searches
//! everything that it can read, its own memory, the control area and every block of its view.

use crate::common::{self, Memory, install, request, with_manifest};
use flame_abi::layout;
use flame_compile::InstallRequest;
use flame_plan::{Action, Expose, Field, Limits, TrustedFilter, ViewSpec};
use proptest::prelude::*;

/// The canary. Four of these bytes in a row never occur in shown bytes.
const CANARY: u8 = 0xc3;

/// Returns a module that counts runs of four canaries in its own memory, the control area and `bytes` bytes
/// from `VIEW`.
fn searcher(bytes: usize) -> Vec<u8> {
    let wat = format!(
        r#"(module
  (memory (export "memory") 2)
  (global $found (mut i64) (i64.const 0))
  (func $search (param $at i32) (param $end i32)
    (local $run i32)
    (loop $next
      (if (i32.eq (i32.load8_u (local.get $at)) (i32.const {CANARY}))
        (then
          (local.set $run (i32.add (local.get $run) (i32.const 1)))
          (if (i32.eq (local.get $run) (i32.const 4))
            (then (global.set $found (i64.add (global.get $found) (i64.const 1))))))
        (else (local.set $run (i32.const 0))))
      (br_if $next (i32.ne (local.tee $at (i32.add (local.get $at) (i32.const 1))) (local.get $end)))))
  (func (export "flame_batch") (param i32) (result i64)
    (call $search (i32.const 0) (i32.const 0x20000))
    (call $search (i32.const {window}) (i32.const {view}))
    (call $search (i32.const {view}) (i32.const {end}))
    (i64.const 0))
  (func (export "flame_end") (param i64) (result i64)
    (i32.store (i32.const 64) (i32.const 8))
    (i64.store (i32.const 72) (global.get $found))
    (i64.const 0x1000000040)))"#,
        window = layout::WINDOW as i32,
        view = layout::VIEW as i32,
        end = (layout::VIEW as usize + bytes) as u32 as i32,
    );
    let manifest = "abi = 1\nname = \"searcher\"\nversion = \"1\"\ndescription = \"test\"\n[needs]\nexpose = \"all\"\n\
        [limits]\npacket_budget = 1000000000000\ncall_budget = 1000000000000\n\
        [[tables]]\nname = \"t\"\ncolumns = [{ name = \"found\", type = \"u64\" }]\n";
    with_manifest(wat::parse_str(wat).unwrap(), manifest.as_bytes())
}

/// One flag for each field, in the order of [`Field::ALL`]: whether the view changes it.
type Hidden = [bool; 6];

#[derive(Debug, Clone)]
struct Shape {
    tcp: bool,
    six: bool,
    tag: bool,
    payload: usize,
    /// Whether the filter `not port 7` excludes it.
    out: bool,
}

/// Returns a packet in which exactly the hidden bytes are canaries.
fn packet(shape: &Shape, hidden: Hidden, expose: Expose, filtered: bool) -> Vec<u8> {
    let all = expose <= Expose::None || (filtered && shape.out);
    let fill = |field: usize, n: usize| vec![if hidden[field] || all { CANARY } else { 0x11 }; n];
    // Ports that a filter reads have real values. Two bytes are no run of four.
    let (sport, dport) = (fill(4, 2), if shape.out { vec![0, 7] } else { fill(5, 2) });
    let shown = match expose {
        Expose::All => shape.payload,
        Expose::Payload(n) => shape.payload.min(n as usize),
        Expose::Headers | Expose::None | Expose::Count => 0,
    };
    let mut payload = vec![0x22; shape.payload];
    payload[if all { 0 } else { shown }..].fill(CANARY);
    let segment = if shape.tcp {
        [&sport[..], &dport, &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 16, 4, 0, 0, 0, 0, 0], &payload].concat()
    } else {
        let length = (8 + payload.len()) as u16;
        [&sport[..], &dport, &length.to_be_bytes(), &[0, 0], &payload].concat()
    };
    let proto = if shape.tcp { 6 } else { 17 };
    let length = segment.len() as u16;
    let (kind, head, n) = if shape.six {
        let [a, b] = length.to_be_bytes();
        ([0x86, 0xdd], vec![0x60, 0, 0, 0, a, b, proto, 64], 16)
    } else {
        let [a, b] = (length + 20).to_be_bytes();
        ([8, 0], vec![0x45, 0, a, b, 0, 0, 0, 0, 64, proto, 0, 0], 4)
    };
    let tag: &[u8] = if shape.tag { &[0x81, 0, 0, 5] } else { &[] };
    [&fill(1, 6)[..], &fill(0, 6), tag, &kind, &head, &fill(2, n), &fill(3, n), &segment].concat()
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<bool>(), any::<bool>(), any::<bool>(), 0usize..400, any::<bool>())
        .prop_map(|(tcp, six, tag, payload, out)| Shape { tcp, six, tag, payload, out })
}

fn expose() -> impl Strategy<Value = Expose> {
    prop_oneof![
        Just(Expose::Count),
        Just(Expose::None),
        Just(Expose::Headers),
        (1u32..300).prop_map(Expose::Payload),
        Just(Expose::All)
    ]
}

fn found(packets: Vec<Vec<u8>>, view: ViewSpec, per_block: usize, workers: usize) -> u64 {
    let engine = flame_run::Engines::new().unwrap();
    let bytes = flame_block::Pool::new(4).unwrap().window().2;
    let limits = Limits { packet_budget: 1 << 40, call_budget: 1 << 40, ..Limits::default() };
    let request = InstallRequest { view, limits, ..request() };
    let plan = install(&searcher(bytes), &request).unwrap();
    let packets = packets.into_iter().enumerate().map(|(i, p)| (1_000_000_000 + i as u64, p)).collect();
    let source = Memory { packets, per_block };
    let key = flame_view::Key::new([5; 32]);
    let (report, lines) =
        common::run_with(&engine, vec![plan], workers, Box::new(source), 256, Some(&key)).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    lines.iter().map(|l| l.rsplit('=').next().unwrap().parse::<u64>().unwrap()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_view_hides_is_nowhere_in_the_modules_memory(
        shapes in prop::collection::vec(shape(), 1..60),
        expose in expose(),
        changed in prop::array::uniform6(prop::option::of(0usize..3)),
        filtered: bool,
        per_block in 1usize..40,
        workers in 1usize..3,
    ) {
        let mut transforms = std::collections::BTreeMap::new();
        let mut hidden = [false; 6];
        for ((field, action), hidden) in Field::ALL.into_iter().zip(changed).zip(&mut hidden) {
            let is_ip = matches!(field, Field::IpSrc | Field::IpDst);
            let action = match action {
                None => continue,
                Some(0) => Action::Zero,
                Some(1) if is_ip => Action::Prefix,
                Some(1) => Action::Truncate(8),
                Some(_) => Action::Hash,
            };
            *hidden = true;
            transforms.insert(field, action);
        }
        let select = if filtered { vec!["not port 7 and not (vlan and port 7)"] } else { Vec::new() };
        let select = select.into_iter().filter_map(|s| TrustedFilter::parse(s).unwrap()).collect();
        let packets: Vec<_> = shapes.iter().map(|s| packet(s, hidden, expose, filtered)).collect();
        let view = ViewSpec { select, expose, transforms, ..ViewSpec::default() };
        prop_assert_eq!(found(packets, view, per_block, workers), 0);
    }
}

/// The search is effective: without a view that hides it, each canary is found.
#[test]
fn the_searcher_finds_what_is_shown() {
    let shape = Shape { tcp: true, six: false, tag: false, payload: 100, out: false };
    let packets = vec![packet(&shape, [false; 6], Expose::Headers, false); 3];
    let all = ViewSpec { expose: Expose::All, ..ViewSpec::default() };
    assert_eq!(found(packets.clone(), all, 100, 1), 3);
    let none = ViewSpec { expose: Expose::Headers, ..ViewSpec::default() };
    assert_eq!(found(packets, none, 100, 1), 0);
}
