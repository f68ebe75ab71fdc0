//! The SDK's examples build as they stand, are bounded where they state it, and find the expected rows; a
//! module in C has the same getters; and `flame build` names what is wrong.

use crate::built::{build, flame, pcap, rows, rows_with, text};
use crate::common::{eventually, root, script};
use flame_module::testing::Traffic;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

const EXAMPLES: [&str; 17] = [
    "bursts",
    "cache",
    "dns",
    "echo",
    "handshakes",
    "hosts",
    "labels",
    "lengths",
    "names",
    "pairs",
    "resequence",
    "router",
    "routes",
    "scans",
    "steer",
    "talkers",
    "urgent",
];

fn sum(rows: &[Value], column: &str) -> u64 {
    rows.iter().map(|row| row[column].as_u64().unwrap()).sum()
}

#[test]
fn the_examples_find_what_is_there() {
    let folder = root().join("sdk/rust/examples");
    let there: BTreeSet<_> = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(there.iter().eq(EXAMPLES.iter()), "{there:?}");
    let demo = root().join("demo/demo.pcap");
    let built = EXAMPLES.map(|name| build(&folder.join(name)));
    let [
        bursts,
        cache,
        dns,
        echo,
        handshakes,
        hosts,
        labels,
        lengths,
        names,
        pairs,
        resequence,
        router,
        routes,
        scans,
        steer,
        talkers,
        urgent,
    ] = built.each_ref();
    // What `count` finds in the recorded capture.
    assert_eq!(sum(&rows(lengths, &demo, "length", &[]), "packets"), 1244);
    assert_eq!(sum(&rows(lengths, &demo, "length", &["--interval", "100ms"]), "packets"), 1244);
    // Each packet is in one window, the same on any number of workers.
    let windows = |workers: &str| {
        let mut windows = BTreeMap::new();
        for row in rows(bursts, &demo, "burst", &["--workers", workers, "--set", "bursts.least=1"]) {
            *windows.entry(row["end_ns"].to_string()).or_insert(0) += row["packets"].as_u64().unwrap();
        }
        windows
    };
    let alone = windows("1");
    assert!(alone.len() > 20 && alone.values().sum::<u64>() == 1244, "{alone:?}");
    assert_eq!(windows("3"), alone);
    // The plot that its manifest declares, by name.
    let plot = ["--set", "bursts.least=1", "--plot", "bursts"];
    let drawn =
        text(&flame(&[&["run", bursts, "-r", demo.to_str().unwrap(), "-q"][..], &plot].concat()).stdout);
    assert!(drawn.contains("Packets in busy windows") && drawn.contains("a point each 100"), "{drawn}");
    let bytes = sum(&rows(talkers, &demo, "host", &["--set", "talkers.least=0"]), "bytes");
    assert!(bytes > 925_000 && bytes < 925_946, "all but what is not IP: {bytes}");
    let found = rows(scans, &demo, "scan", &["--set", "scans.ports=2"]);
    assert_eq!((found.len(), found[0]["src"].as_str()), (1, Some("10.9.0.1")));
    let found = rows(handshakes, &demo, "answer", &[]);
    // The recorded link delays each way by 10 ms.
    let delayed = |row: &Value| (20_000_000..25_000_000).contains(&row["time_ns"].as_u64().unwrap());
    // One SYN was sent again, after a second.
    let again = found.iter().filter(|row| !delayed(row)).count();
    assert_eq!((found.len(), again), (17, 1), "{found:?}");

    let found = rows(dns, &demo, "question", &["--expose", "payload:256"]);
    let asked: Vec<_> =
        found.iter().map(|row| (row["name"].as_str().unwrap(), row["type"].as_u64().unwrap())).collect();
    assert_eq!(asked, [("demo.test", 1), ("demo.test", 28), ("nothing.test", 1)]);

    // The questions and answers of DNS are apart from the rest.
    let queues = rows(urgent, &demo, "total", &[]);
    let of = |queue: &str| queues.iter().filter(|row| row["queue"] == queue).cloned().collect::<Vec<_>>();
    assert_eq!(sum(&of("dns"), "packets") + sum(&of("rest"), "packets"), 1244);
    let dns = sum(&rows(lengths, &demo, "length", &["port", "53"]), "packets");
    assert!(dns > 0 && sum(&of("dns"), "packets") == dns, "{dns}: {queues:?}");

    assert_eq!(sum(&rows(hosts, &demo, "total", &["--interval", "1h"]), "packets") % 1244, 0);

    // Its memory is less than the capture needs.
    let halved = rows(cache, &demo, "halved", &[]);
    let is_half = |row: &Value| row["parts"].as_u64() > Some(1) && row["free"].as_u64() < Some(3 << 17);
    assert!(!halved.is_empty() && halved.iter().all(is_half), "{halved:?}");
    assert_eq!(sum(&rows(cache, &demo, "total", &[]), "packets"), 1244);

    assert_eq!(sum(&rows(pairs, &demo, "total", &[]), "packets"), 1240);

    // Hosts that were reached, by the names that DNS gave for them before.
    let both = format!("{labels},{names}");
    let found = rows(&both, &demo, "host", &["--expose", "payload:512"]);
    let named = |row: &Value| row["name"] == "demo.test" && row["outcome"] == "replied";
    assert!(!found.is_empty() && found.iter().all(named), "{found:?}");
    assert_eq!(rows(&both, &demo, "host", &["--expose", "payload:512"]), found, "a replay is exact");
    // The same in C.
    let in_c = build(&root().join("sdk/c/examples/labels-c"));
    let both = format!("{in_c},{names}");
    let mut in_c = rows(&both, &demo, "host", &["--expose", "payload:512"]);
    in_c.iter_mut().for_each(|row| row["module"] = "labels".into());
    assert_eq!(in_c, found);
    let alone = rows(labels, &demo, "host", &[]);
    assert!(alone.len() == found.len() && alone.iter().all(|row| row["outcome"] == "nobody"), "{alone:?}");

    // Tables of fixed size are why.
    for wasm in [bursts, echo, handshakes, hosts, lengths, resequence, router, routes, scans, steer, talkers]
    {
        let out = flame(&["check", wasm, "--format", "json"]);
        let last: Value = serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap();
        assert_eq!(last["bounded"], true, "{wasm}: {last}");
    }
}

/// A map that grows has its steps in the budget of a packet, however many keys it has; one of the standard
/// library ended its module at 3,584.
#[test]
fn a_map_of_a_hundred_thousand_keys_grows() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("many.pcap");
    let mut traffic = Traffic::default();
    for n in 0..100_000 {
        traffic.udp(&format!("10.{}.{}.{}:1", n >> 16, n >> 8 & 255, n & 255), "192.0.2.1:9");
    }
    std::fs::write(&capture, pcap(&traffic)).unwrap();
    let pairs = build(&root().join("sdk/rust/examples/pairs"));
    let found = rows(&pairs, &capture, "total", &[]);
    assert_eq!((sum(&found, "pairs"), sum(&found, "packets"), sum(&found, "most")), (100_000, 100_000, 1));
}

/// Runs a graph over the recorded capture.
fn click(graph: &str, more: &[&str]) -> String {
    let graph = format!("FromDump({}, STOP true) -> {graph}", root().join("demo/demo.pcap").display());
    text(&flame(&[&["click", "--simtime", "--format", "json", "-e", &graph][..], more].concat()).stdout)
}

#[test]
fn the_examples_that_forward_do_so() {
    let steer = build(&root().join("sdk/rust/examples/steer"));
    let graph = format!(
        "m :: Module({steer}, port 80); m [0] -> a :: Counter -> Discard; m [1] -> b :: Counter -> Discard"
    );
    let out = click(&graph, &["-h", "a.count", "-h", "b.count"]);
    let count = |name: &str| -> u64 {
        let rest = out.split(&format!("{name}:\n")).nth(1).unwrap_or_else(|| panic!("{out}"));
        rest.lines().next().unwrap().parse().unwrap()
    };
    let rows: Vec<Value> = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let rows: Vec<_> = rows.iter().filter_map(|row| row["packets"].as_u64()).collect();
    assert_eq!((count("a.count") + count("b.count"), rows), (1244, vec![count("a.count"), count("b.count")]));
    assert!(count("a.count") > 0);
    // As the native element does it, byte for byte.
    let dscp = build(&root().join("sdk/c/examples/dscp"));
    let folder = tempfile::tempdir().unwrap();
    let written = |element: &str, name: &str| {
        let path = folder.path().join(name);
        click(&format!("Classifier(12/0800) -> {element} -> ToDump({})", path.display()), &[]);
        std::fs::read(path).unwrap()
    };
    let (module, native) = (written(&format!("Module({dscp}, dscp 10)"), "m"), written("SetIPDSCP(10)", "n"));
    assert!(module.len() > 50_000 && module == native, "{} {}", module.len(), native.len());
}

/// One module learns at which input addresses come, and another forwards by what it finds in the memory that
/// both share.
#[test]
fn the_examples_that_share_memory_route_packets() {
    let [routes, router] =
        ["routes", "router"].map(|name| build(&root().join("sdk/rust/examples").join(name)));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut traffic = Traffic::default();
    for _ in 0..1000 {
        traffic.udp("10.0.0.1:4000", "10.0.0.2:5004").payload(&[0; 22]);
        traffic.udp("10.0.0.2:5004", "10.0.0.1:4000").payload(&[0; 22]);
    }
    traffic.udp("10.0.0.1:4000", "10.0.0.9:53").payload(&[0; 22]);
    std::fs::write(path("in"), pcap(&traffic)).unwrap();
    let graph = format!(
        "FromDump({}, STOP true) -> c :: Classifier(26/0a000001, -); r :: Module({routes}); c [0] -> [0] r;
         c [1] -> [1] r; s :: Module({router}); r [0] -> s; r [1] -> s; s [0] -> ToDump({}) -> Discard;
         s [1] -> ToDump({}) -> Discard; s [2] -> u :: Counter -> Discard",
        path("in"),
        path("to-1"),
        path("to-2")
    );
    let out = flame(&["click", "--simtime", "--format", "json", "-e", &graph]);
    let rows: Vec<Value> = text(&out.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let of = |name: &str, column: &str| -> Vec<u64> {
        let rows = rows.iter().filter(|row| row["module"] == name);
        rows.filter_map(|row| row[column].as_u64()).collect()
    };
    let sent = of("router", "packets");
    assert_eq!((of("routes", "addresses"), sent.iter().sum::<u64>()), (vec![2], 2001), "{rows:?}");
    // The first ones, and the one to an address that never sends, are of unknown ones.
    assert!(sent[0] == 1000 && (500..1000).contains(&sent[1]) && sent[2] > 1, "{sent:?}");
    for (name, address) in [("to-1", [10, 0, 0, 1]), ("to-2", [10, 0, 0, 2])] {
        let packets = crate::forwards::packets(Path::new(&path(name)));
        assert!(!packets.is_empty() && packets.iter().all(|packet| packet[30..34] == address), "{name}");
    }
}

/// A stream whose packets come in pairs of a wrong order leaves in the right one, and the module still holds
/// the packets that wait for a lost one.
#[test]
fn the_example_that_holds_packets_puts_them_in_order() {
    let wasm = build(&root().join("sdk/rust/examples/resequence"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut traffic = Traffic::default();
    let order: Vec<u16> = [0, 1].into_iter().chain((2..1000).map(|n| n ^ 1)).chain([1001, 1003]).collect();
    for sequence in &order {
        let payload = [&[0x80, 0][..], &sequence.to_be_bytes(), &[7; 160]].concat();
        traffic.udp("10.0.0.1:4000", "10.0.0.2:5004").payload(&payload);
    }
    std::fs::write(path("in"), pcap(&traffic)).unwrap();
    let graph = format!(
        "FromDump({}, STOP true) -> m :: Module({wasm}, EXPOSE payload:4) -> ToDump({}) -> Discard",
        path("in"),
        path("out")
    );
    let options = ["click", "--simtime", "--format", "json", "-e", &graph, "-h", "m.held", "-h", "m.account"];
    let out = flame(&options);
    let (out, err) = (text(&out.stdout), text(&out.stderr));
    let sequences: Vec<u16> = crate::forwards::packets(Path::new(&path("out")))
        .iter()
        .map(|packet| u16::from_be_bytes([packet[44], packet[45]]))
        .collect();
    assert_eq!(sequences, (0..1000).collect::<Vec<u16>>(), "{out}{err}");
    assert_eq!(crate::forwards::handler(&out, "m.held"), "2", "{out}");
    assert!(crate::forwards::handler(&out, "m.account").contains("given 1000\nheld 2"), "{out}");
    let row: Value = serde_json::from_str(out.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
    assert_eq!((row["packets"].as_u64(), row["held"].as_u64()), (Some(1002), Some(501)), "{out}");
}

/// A run begins with the state that the one before it kept in a file, in both languages.
#[test]
fn the_examples_that_keep_state_go_on() {
    let demo = root().join("demo/demo.pcap");
    let folder = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for example in ["sdk/rust/examples/hosts", "sdk/c/examples/hosts-c"] {
        let wasm = build(&root().join(example));
        let state = folder.path().join(example.replace('/', "-")).display().to_string();
        let total = |more: &[&str]| {
            let rows = rows(&wasm, &demo, "total", &[&["--state", &state], more].concat());
            let last = rows.last().unwrap();
            (last["packets"].as_u64().unwrap(), last["hosts"].as_u64().unwrap())
        };
        let (packets, hosts) = total(&[]);
        assert!(packets == 1244 && hosts > 3, "{packets} {hosts}");
        assert_eq!(total(&[]), (2 * 1244, hosts));
        assert_eq!(total(&["--metered", "--interval", "100ms"]), (3 * 1244, hosts));
        let error = |more: &[&str]| {
            let usual = ["run", &wasm, "-r", demo.to_str().unwrap(), "--format", "json", "--state"];
            text(&flame(&[&usual[..], more].concat()).stderr)
        };
        // A state of one worker does not fit two.
        let said = error(&[&state, "--workers", "2"]);
        assert!(said.contains("the state is of 1 workers, this run has 2"), "{said}");
        // What is damaged is not used, and replaced.
        let whole = std::fs::read(&state).unwrap();
        std::fs::write(&state, &whole[..whole.len() - 1]).unwrap();
        assert!(error(&[&state]).contains("the file is damaged: all modules begin empty"));
        assert_eq!(total(&[]), (2 * 1244, hosts));
        found.push(hosts);
    }
    assert_eq!(found[0], found[1]);
    // Another file is not replaced.
    let hosts = build(&root().join("sdk/rust/examples/hosts"));
    let other = folder.path().join("other");
    std::fs::write(&other, "mine").unwrap();
    let run = |arguments: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_flame")).args(arguments).output().unwrap();
        (out.status.code(), text(&out.stderr))
    };
    let demo = demo.to_str().unwrap();
    let (status, said) = run(&["run", &hosts, "-r", demo, "--state", other.to_str().unwrap()]);
    assert!(status == Some(1) && said.contains("this is no file of states"), "{said}");
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    // Neither is what is no file; and what cannot be written is known before the run.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for place in ["/dev/null", pipe.to_str().unwrap()] {
        let (status, said) = run(&["run", &hosts, "-r", demo, "--state", place]);
        assert!(status == Some(1) && said.contains("no file of states"), "{place}: {said}");
    }
    let (status, said) = run(&["run", &hosts, "-r", "/nowhere", "--state", "/nowhere/state"]);
    assert!(status == Some(1) && said.contains("--state /nowhere/state"), "{said}");
    // A symbolic link and the permissions stay.
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::fs::write(&file, "").unwrap();
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o640);
    std::fs::set_permissions(&file, mode.clone()).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let (status, said) = run(&["run", &hosts, "-r", demo, "--state", link.to_str().unwrap()]);
    assert!(status == Some(0) && said.contains("the file is empty: all modules begin empty"), "{said}");
    assert!(link.symlink_metadata().unwrap().is_symlink());
    let is_kept = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions()) & 0o777;
    assert_eq!(is_kept, 0o640);
    assert!(std::fs::read(&file).unwrap().starts_with(b"flame states 1 "));
    let lengths = build(&root().join("sdk/rust/examples/lengths"));
    let (status, said) = run(&["run", &lengths, "-r", demo, "--state", other.to_str().unwrap()]);
    assert_eq!(status, Some(1), "{said}");
}

/// Throws of a die, from the seed.
const DICE: &str = r#"
#include "flame.h"
static struct flame_random random;
FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  (void)len;
  random.state = init->seed;
  return flame_output(FLAME_DONE);
}
FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) { (void)batch; return 0; }
FLAME_EXPORT(flame_end) uint64_t flame_end(uint64_t now_ns) {
  (void)now_ns;
  for (int i = 0; i < 3; i++) {
    flame_row(0);
    flame_u64(flame_next(&random));
    flame_u64(flame_below(&random, 6));
    flame_finish();
  }
  return flame_output(FLAME_DONE);
}
"#;

const DICE_MANIFEST: &str = r#"abi = 1
name = "dice"
version = "0.1.0"
description = "random numbers"
[needs]
random = true
[[tables]]
name = "throw"
columns = [{ name = "number", type = "u64" }, { name = "eyes", type = "u64" }]
"#;

#[test]
fn a_run_with_the_seed_that_a_note_states_is_repeated() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("dice");
    flame(&["new", folder.to_str().unwrap(), "--lang", "c"]);
    std::fs::write(folder.join("module.c"), DICE).unwrap();
    std::fs::write(folder.join("module.toml"), DICE_MANIFEST).unwrap();
    let (wasm, demo) = (build(&folder), root().join("demo/demo.pcap").display().to_string());
    let run = |more: &[&str]| {
        let usual = ["run", &wasm, "-r", &demo, "--format", "json", "--stats", "none"];
        let out = flame(&[&usual[..], more].concat());
        (text(&out.stdout), text(&out.stderr))
    };
    let (rows, note) = run(&[]);
    let seed = note.split("seed ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a note");
    assert_eq!(rows.lines().count(), 3, "{rows}");
    assert_eq!(run(&["--seed", seed]).0, rows);
    assert_eq!(run(&["--seed", "5"]), run(&["--seed", "5"]));
    assert_ne!(run(&["--seed", "5"]).0, run(&["--seed", "6"]).0);
}

/// Every getter, parameter, column and table of flame.h, in rows. Every call has a bound.
const GETTERS: &str = r#"
#include "flame.h"

struct ends { uint32_t src, dst; };
FLAME_MAP(pairs, struct ends, uint64_t, 4)
struct flow { uint64_t last_ns; uint32_t seq; };
FLAME_FLOWS(flows, struct flow, last_ns)

static struct flows table, same;
static char greeting[70000];
static uint32_t greeting_len;
static double factor;

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  uint32_t size;
  const char *text = flame_text(init, len, "greeting", &size);
  for (uint32_t i = 0; i < sizeof greeting && greeting_len + size < sizeof greeting; i++) {
    __builtin_memcpy(greeting + greeting_len, text, size & 255);
    greeting_len += size;
  }
  uint32_t number;
  const uint8_t *bytes = flame_parameter(init, len, "number", &number);
  if (number != 8 || bytes[0] != 7 || flame_integer(init, len, "number") != 7) __builtin_trap();
  if (flame_integer(init, len, "a-name-of-thirty-two-characters0") != 1) __builtin_trap();
  factor = flame_number(init, len, "factor");
  flows_init(&table, 16, 1000000);
  flows_init(&same, 16, 1000000);
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    struct flame_ipv4 ip4 = {0};
    struct flame_ipv6 ip6 = {0};
    struct flame_tcp tcp = {0};
    struct flame_udp udp = {0};
    uint32_t len, views = 0;
    views |= flame_ipv4(p, &ip4) << 0 | flame_ipv6(p, &ip6) << 1 | flame_tcp(p, &tcp) << 2 | flame_udp(p, &udp) << 3;
    const uint8_t *payload = flame_payload(p, &len);
    struct ends ends = {ip4.src, ip4.dst};
    uint64_t *seen = pairs_insert(&ends, p->ts_ns);
    ++*seen;
    struct flow *f;
    FLAME_FLOWS_EACH(&table, p->hash, p->ts_ns, last_ns, f)
      if (f->seq == tcp.seq) break;
    int known = f != NULL;
    if (!f) f = flows_insert(&table, p->hash, p->ts_ns);
    *f = (struct flow){p->ts_ns, tcp.seq};
    flame_row(0);
    flame_u8((uint8_t)views);
    flame_i64(flame_sport(p));
    flame_i64(flame_dport(p));
    flame_u32(tcp.seq);
    flame_u32(tcp.ack);
    flame_u8(tcp.flags);
    flame_u8(ip4.ttl | ip6.hop_limit);
    flame_u16(ip4.total_len | ip6.payload_len);
    flame_u16(udp.len);
    flame_put_text((const char *)payload, len);
    flame_bool(len == 5 && memcmp(payload, "hello", 5) == 0 && memcmp(payload, "help!", 5) < 0);
    flame_u64(*seen);
    flame_bool(known);
    flame_f64(factor * 2);
    for (int which = 0; which < 2; which++) {
      struct flame_ip ip = {0};
      flame_bool(flame_address(p, which, &ip));
      flame_put_ip(&ip);
    }
    flame_bool(flame_queue(batch) == 0 && flame_is_ip(p) && p->wire_len == flame_descriptors(batch)[i].wire_len);
    const uint8_t *link = flame_bytes(p, 12, 2);
    flame_u32(link ? flame_be16(link) : 0);
    flame_u32(flame_visible(p, 12, 1u << 20));
    flame_i64(flame_port(p, 1));
    flame_u32(ip4.src == (link ? flame_be32(link + 14) : 0));
    flame_u8(ip4.version | ip6.version);
    flame_i64(flame_payload_len(p));
    const uint8_t *mss = flame_tcp_option(p, 2, &len);
    flame_i64(!mss ? -1 : len < 2 ? len : (int64_t)len << 16 | flame_be16(mss));
    flame_finish();
  }
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_end) uint64_t flame_end(uint64_t now_ns) {
  (void)now_ns;
  flame_row(1);
  flame_put_text(greeting, greeting_len);
  flame_finish();
  /* Longer than any row: lost, and counted. */
  flame_row(1);
  flame_put_text(greeting, greeting_len);
  flame_u64(0);
  flame_finish();
  flame_row(3);
  flame_u64(pairs_evicted + table.evicted);
  flame_finish();
  /* Of six entries of one hash, four stay. */
  for (uint32_t n = 1; n <= 6; n++) *flows_insert(&same, 7, n) = (struct flow){n, n};
  struct flow *f;
  uint64_t kept = 0;
  FLAME_FLOWS_EACH(&same, 7, 6, last_ns, f)
    kept = kept * 10 + f->seq;
  flame_reserve(2 * 16);
  for (int i = 0; i < 2; i++) {
    flame_reserved_row(4);
    flame_u64(i ? same.evicted : kept);
    flame_finish();
  }
  /* Without a look at the room there is. */
  for (uint64_t i = 0; i < 50000; i++) {
    flame_row(2);
    flame_u64(i);
    flame_finish();
  }
  return flame_output(FLAME_DONE);
}
"#;

const GETTERS_TABLES: &str = r#"
[parameters.greeting]
type = "text"
default = "é"
description = "a text"
[parameters.a-name-of-thirty-two-characters0]
type = "integer"
default = 1
description = "before number, or behind"
[parameters.number]
type = "integer"
default = 7
description = "an integer"
[parameters.factor]
type = "number"
default = 0.75
description = "a number"
[[tables]]
name = "packet"
columns = [
  { name = "views", type = "u8" }, { name = "sport", type = "i64" }, { name = "dport", type = "i64" },
  { name = "seq", type = "u32" }, { name = "ack", type = "u32" }, { name = "flags", type = "u8" },
  { name = "ttl", type = "u8" }, { name = "len", type = "u16" }, { name = "udp_len", type = "u16" },
  { name = "payload", type = "text" }, { name = "hello", type = "bool" }, { name = "seen", type = "u64" },
  { name = "known", type = "bool" }, { name = "twice", type = "f64" },
  { name = "has_src", type = "bool" }, { name = "src", type = "ip" },
  { name = "has_dst", type = "bool" }, { name = "dst", type = "ip" },
  { name = "ip", type = "bool" }, { name = "link", type = "u32" }, { name = "visible", type = "u32" },
  { name = "port", type = "i64" }, { name = "same_src", type = "u32" },
  { name = "version", type = "u8" }, { name = "payload_len", type = "i64" }, { name = "mss", type = "i64" },
]
[[tables]]
name = "greeting"
columns = [{ name = "text", type = "text" }]
[[tables]]
name = "many"
columns = [{ name = "n", type = "u64" }]
[[tables]]
name = "state"
columns = [{ name = "evicted", type = "u64" }]
[[tables]]
name = "same"
columns = [{ name = "n", type = "u64" }]
"#;

/// Returns the names of the functions that a part of flame.h defines.
fn functions_of(part: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("sdk/c/flame").join(part)).unwrap();
    let heads = text.lines().filter(|line| line.starts_with("static inline "));
    let names = heads.filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next());
    names.map(str::to_owned).collect()
}

/// Asserts that batches of a module are bounded, and returns the entries that are not proved.
fn unproved(wasm: &str) -> Vec<String> {
    let out = flame(&["check", wasm, "--format", "json"]);
    let lines: Vec<Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["bounded"], true, "{wasm}: {lines:?}");
    let calls = lines.iter().filter(|line| line["entry"].is_string() && line["proved"] != true);
    calls.map(|line| line["entry"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_module_in_c_has_the_same_getters_and_tables() {
    let called = |name: &&String| GETTERS.contains(&format!("{name}("));
    let of_packets = functions_of("packet.h");
    let left_out: Vec<_> = of_packets.iter().filter(|name| !called(name)).collect();
    assert!(of_packets.len() > 15 && left_out.is_empty(), "GETTERS does not call {left_out:?}");
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("getters");
    flame(&["new", folder.to_str().unwrap(), "--lang", "c"]);
    std::fs::write(folder.join("module.c"), GETTERS).unwrap();
    let manifest = std::fs::read_to_string(folder.join("module.toml")).unwrap();
    let (head, _) = manifest.split_once("[parameters.port]").unwrap();
    std::fs::write(folder.join("module.toml"), head.replace("headers\"", "all\"") + GETTERS_TABLES).unwrap();
    let wasm = build(&folder);
    let mut traffic = Traffic::default();
    traffic.tcp("10.0.0.1:1024", "10.0.0.2:80").seq(7).ack(8).payload(b"hello");
    // Behind the datagram comes the link's padding.
    let padded = traffic.tcp("10.0.0.1:1024", "10.0.0.2:80").seq(7).payload(b"hello").bytes().len();
    traffic.last().payload(&[0; 9]).bytes()[16..18].copy_from_slice(&(padded as u16 - 14).to_be_bytes());
    traffic.udp("[fd00::1]:53", "[fd00::2]:5353").payload(b"help!");
    traffic.ip("10.0.0.3", "10.0.0.4", flame_module::proto::ICMP);
    // The second option is the maximum segment size, if what comes before it is an option and not the end.
    let size = 2 << 16 | 1460;
    let options: [(&[u8], i64); 9] = [
        (&[1, 2, 4, 5, 0xb4], size),
        (&[1, 1, 1, 2, 4, 5, 0xb4], size),
        (&[8, 2, 2, 4, 5, 0xb4], size),
        (&[0, 2, 2, 4, 5, 0xb4], -1),
        (&[8, 1, 2, 4, 5, 0xb4], -1),
        (&[8, 0, 2, 4, 5, 0xb4], -1),
        (&[2, 2, 2, 4, 5, 0xb4], 0),
        (&[2, 9], -1),
        (&[1, 1, 1, 2], -1),
    ];
    for (options, _) in options {
        traffic.tcp("10.0.0.3:1", "10.0.0.4:2").tcp_options(options).payload(b"hi");
    }
    // UDP may state less than IP.
    traffic.udp("10.0.0.3:1", "10.0.0.4:2").payload(b"hidden").bytes()[39] = 10;
    // Nineteen pairs more: of the 64 places four are each pair's.
    for host in 0..80 {
        traffic.ip(&format!("10.1.0.{host}"), "10.0.0.4", flame_module::proto::ICMP);
    }
    let capture = temporary.path().join("getters.pcap");
    std::fs::write(&capture, pcap(&traffic)).unwrap();
    // One greeting is too long for a row, and is lost.
    let found = rows_with((&wasm, 5), &capture, "packet", &["--expose", "all"]);
    let row = |n: usize| {
        let columns =
            ["views", "sport", "dport", "seq", "ack", "flags", "ttl", "len", "udp_len", "payload", "hello"];
        let more = ["seen", "known", "twice"];
        columns.iter().chain(&more).map(|c| found[n][c].to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row(0), "5 1024 80 7 8 16 64 45 0 \"hello\" true 1 false 1.5");
    assert_eq!(row(1), "5 1024 80 7 0 16 64 45 0 \"hello\" true 2 true 1.5");
    assert_eq!(row(2), "10 53 5353 0 0 0 64 13 13 \"help!\" false 1 false 1.5");
    assert_eq!(row(3), "1 -1 -1 0 0 0 64 20 0 \"\" false 1 false 1.5");
    let more = |n: usize| ["version", "payload_len", "mss"].map(|c| found[n][c].as_i64().unwrap());
    assert_eq!([0, 1, 2].map(more), [[4, 5, -1], [4, 5, -1], [6, 5, -1]]);
    for (n, (bytes, found)) in options.into_iter().enumerate() {
        assert_eq!(more(4 + n), [4, 2, found], "{bytes:?}");
    }
    assert_eq!((more(13), &found[13]["payload"]), ([4, 2, -1], &"hi".into()));
    let end = &rows_with((&wasm, 5), &capture, "greeting", &["--expose", "all"])[0];
    let text = end["text"].as_str().unwrap();
    assert_eq!((text.len(), text.chars().all(|c| c == 'é')), (65_534, true), "cut at a character");
    let state = &rows_with((&wasm, 5), &capture, "state", &["--expose", "all"])[0];
    assert!(state["evicted"].as_u64().unwrap() > 80 - 64, "{state}");
    assert_eq!(rows_with((&wasm, 5), &capture, "many", &[]).len(), 50_000);
    let same = rows_with((&wasm, 5), &capture, "same", &[]);
    assert_eq!((&same[0]["n"], &same[1]["n"]), (&5634.into(), &2.into()));
    assert_eq!(unproved(&wasm), [""; 0]);
}

#[test]
fn the_examples_and_the_template_in_c_are_proved_in_every_call() {
    let temporary = tempfile::tempdir().unwrap();
    let template = temporary.path().join("template");
    flame(&["new", template.to_str().unwrap(), "--lang", "c"]);
    let examples = std::fs::read_dir(root().join("sdk/c/examples")).unwrap().flatten();
    let all: Vec<_> = examples.map(|entry| entry.path()).chain([template]).collect();
    assert!(all.len() >= 5);
    for folder in all {
        assert_eq!(unproved(&build(&folder)), [""; 0], "{}", folder.display());
    }
}

/// Requests memory in each batch.
const TAKES: &str = r#"
#include "flame.h"
static uint64_t taken;
FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  (void)batch;
  uint8_t *memory = flame_try_take(1000000);
  taken += memory && !memory[999999];
  return flame_output(FLAME_DONE);
}
FLAME_EXPORT(flame_pressure) uint64_t flame_pressure(uint64_t free) {
  flame_row(0);
  flame_u64(free);
  flame_u64(taken);
  flame_finish();
  return flame_output(FLAME_DONE);
}
"#;

const TAKES_MANIFEST: &str = "abi = 1\nname = \"takes\"\nversion = \"1\"\ndescription = \"test\"\n\
    [limits]\nmemory_mib = 4\n[[tables]]\nname = \"pressed\"\n\
    columns = [{ name = \"free\", type = \"u64\" }, { name = \"taken\", type = \"u64\" }]\n";

#[test]
fn a_module_in_c_requests_memory_and_is_told() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("takes");
    flame(&["new", folder.to_str().unwrap(), "--lang", "c"]);
    std::fs::write(folder.join("module.c"), TAKES).unwrap();
    std::fs::write(folder.join("module.toml"), TAKES_MANIFEST).unwrap();
    let wasm = build(&folder);
    let found = rows(&wasm, &root().join("demo/demo.pcap"), "pressed", &[]);
    let last = found.last().unwrap();
    let (free, taken) = (last["free"].as_u64().unwrap(), last["taken"].as_u64().unwrap());
    assert!(free < 1_000_000 && (1..4).contains(&taken), "{found:?}");
}

/// Invalid needs are refused, with their line, when a module is built, not when it is installed.
#[test]
fn build_names_the_line_and_the_remedy() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("probe");
    flame(&["new", folder.to_str().unwrap(), "--lang", "c"]);
    let good = std::fs::read_to_string(folder.join("module.toml")).unwrap();
    for (old, new, said) in [
        (
            "\"headers\"",
            "\"header\"",
            "line 7: needs.expose: \"header\": expected count, none, headers, payload:N or all",
        ),
        ("# select = \"tcp\"", "select = \"porrt 80\"", "line 8: needs.select: \"porrt 80\""),
        ("default = 443", "default = 70000", "line 12: parameters.port.default: 70000 is not in 0 to 65535"),
        ("type = \"u64\"", "type = \"u46\"", "expected one of `bool`"),
        (
            "name = \"bytes\"",
            "name = \"packets\"",
            "line 21: tables.total.packets: appears twice: choose another name",
        ),
        (
            "[[tables]]",
            "[[plot]]\nname = \"p\"\nkind = \"line\"\ntable = \"total\"\nx = \"packets\"\ny = [\"bits\"]\n[[tables]]",
            "line 22: plot.p.y: table total has no column \"bits\": choose one of packets, bytes",
        ),
    ] {
        let text = good.replacen(old, new, 1);
        assert_ne!(text, good, "{old}");
        std::fs::write(folder.join("module.toml"), text).unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_flame")).arg("build").arg(&folder).output().unwrap();
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{new}: {error}");
        assert!(error.contains("module.toml: manifest") && error.contains(said), "{new}: {error}");
    }
}

/// An interrupt ends the compiler and leaves no file: neither its own, nor the module, nor its folder.
#[test]
fn an_interrupted_build_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    std::fs::create_dir_all(path("module")).unwrap();
    std::fs::create_dir_all(path("tmp")).unwrap();
    let manifest = "abi = 1\nname = \"a\"\nversion = \"1\"\ndescription = \"test\"\n";
    std::fs::write(path("module/module.toml"), manifest).unwrap();
    std::fs::write(path("module/a.c"), "").unwrap();
    let begun = path("begun");
    let clang = format!("touch \"$TMPDIR/unfinished\"; echo $$ > '{}'; exec sleep 600", begun.display());
    let mut build = Command::new(env!("CARGO_BIN_EXE_flame"))
        .arg("build")
        .args([path("module"), "--output".into(), path("output")])
        .env("FLAME_CLANG", script(path("clang"), &clang))
        .env("TMPDIR", path("tmp"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = || std::fs::read_to_string(&begun).is_ok_and(|pid| pid.ends_with('\n'));
    eventually("the compiler", || {
        assert!(build.try_wait().unwrap().is_none(), "it ended before its compiler began");
        written()
    });
    let interrupt = Command::new("kill").args(["-TERM", &build.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let out = build.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out.stderr), "flame: interrupted, and nothing was written\n");
    let compiler = std::fs::read_to_string(&begun).unwrap();
    assert!(!Path::new("/proc").join(compiler.trim()).exists(), "the compiler has ended");
    assert_eq!(std::fs::read_dir(path("tmp")).unwrap().count(), 0);
    assert!(!path("output").exists());
}
