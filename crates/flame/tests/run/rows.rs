//! All rows that a module writes come out, however many and in whichever call, and bounds survive.

use crate::built::{build, flame, flame_with, pcap, rows, text};
use flame_module::testing::Traffic;
use serde_json::Value;

/// Writes as an author would who never heard of output areas: 600 KB from a batch and as much at a tick, 16
/// MB and then 48 MB at the end, and more messages than a host takes from one area.
const MANY: &str = r#"
use flame_module::{Batch, Init, Module, Out, Progress, Slow};
flame_module::manifest!();

pub struct Many {
    ticked: bool,
    rows: std::iter::Peekable<std::iter::Map<std::ops::Range<u64>, fn(u64) -> End>>,
}

impl Module for Many {
    fn new(_: &Init) -> Self {
        let row: fn(u64) -> End = |n| End { n, twice: 2 * n };
        Self { ticked: false, rows: (0..2_000_000).map(row).peekable() }
    }
    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            for n in 0..100 {
                out.write(&Packet { ts_ns: packet.ts_ns, n });
            }
        }
    }
    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        if !std::mem::replace(&mut self.ticked, true) {
            (0..10_000u64).for_each(|n| out.message(&n.to_le_bytes()));
            (0..30_000).for_each(|n| { out.write(&Tick { n }); });
        }
        Progress::Done
    }
    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        if std::mem::take(&mut self.ticked) {
            (0..500_000).for_each(|n| { out.write(&Tick { n }); });
        }
        out.write_all(&mut self.rows)
    }
}

pub struct Merge(u64);

impl Slow for Merge {
    fn new(_: &Init) -> Self {
        Self(0)
    }
    fn message(&mut self, _: &[u8], _: &mut Out) {
        self.0 += 1;
    }
    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        // One row if all messages came.
        (9_999..self.0).for_each(|n| { out.write(&Messages { n }); });
        Progress::Done
    }
}

flame_module::export!(Many, slow = Merge);
"#;

const TABLES: &str = r#"
[limits]
packet_budget = 100_000_000
call_budget = 10_000_000_000
[[tables]]
name = "packet"
columns = [{ name = "ts_ns", type = "time" }, { name = "n", type = "u64" }]
[[tables]]
name = "tick"
columns = [{ name = "n", type = "u64" }]
[[tables]]
name = "end"
columns = [{ name = "n", type = "u64" }, { name = "twice", type = "u64" }]
[[tables]]
name = "messages"
columns = [{ name = "n", type = "u64" }]
"#;

#[test]
fn a_module_hands_over_all_rows_however_many_they_are() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("many");
    flame(&["new", folder.to_str().unwrap()]);
    std::fs::write(folder.join("src/lib.rs"), MANY).unwrap();
    let manifest = std::fs::read_to_string(folder.join("module.toml")).unwrap();
    let (head, _) = manifest.split_once("[parameters.port]").unwrap();
    std::fs::write(folder.join("module.toml"), head.to_owned() + TABLES).unwrap();
    let wasm = build(&folder);
    // 600 packets over three seconds.
    let mut traffic = Traffic::default();
    for n in 0..600 {
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").at(n * 5_000_000);
    }
    let capture = temporary.path().join("many.pcap");
    std::fs::write(&capture, pcap(&traffic)).unwrap();
    let run = ["run", &wasm, "-r", capture.to_str().unwrap(), "--format", "json", "--stats", "json"];
    // A host takes no more than this many records a second of packet time, and names the tables of the
    // others.
    let out = flame_with(&run, 5);
    let said = text(&out.stderr);
    let account: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let many = &account["modules"]["many"];
    // All were handed over.
    let given = many["records"].as_u64().unwrap() + many["withheld"].as_u64().unwrap();
    assert_eq!(
        (given, &many["records_lost"]),
        (60_000 + 30_000 + 500_000 + 2_000_000 + 1, &0.into()),
        "{account}"
    );
    assert_eq!(many["messages_lost"], 0, "{account}");
}

/// 1.5 MB of rows from a batch, 11 MB from the end and 1.3 MB from a message, without a look at the room
/// there is, and more than the first output area holds.
const MUCH: &str = r#"
use flame_module::{Batch, Init, Module, Out, Progress, Slow};
flame_module::manifest!();

const TEXT: &str = "a text of so many bytes that fifty of these rows for each packet are more than an area has";

pub struct Much;

impl Module for Much {
    fn new(_: &Init) -> Self {
        Self
    }
    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            for n in 0..50 {
                out.write(&Packet { ts_ns: packet.ts_ns, n, text: TEXT });
            }
        }
    }
    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        (0..100_000).for_each(|n| { out.write(&End { n, text: TEXT }); });
        out.message(b"");
        Progress::Done
    }
}

pub struct Merge;

impl Slow for Merge {
    fn new(_: &Init) -> Self {
        Self
    }
    fn message(&mut self, _: &[u8], out: &mut Out) {
        (0..12_000).for_each(|n| { out.row(2).u64(n).text(TEXT).finish(); });
    }
}

flame_module::export!(Much, slow = Merge);
"#;

const MUCH_C: &str = r#"
#include "flame.h"

static const char text[] = "a text of so many bytes that fifty of these rows for each packet are more than an area has";

static int slow;

static void row(uint16_t table, uint64_t n) {
  flame_row(table);
  flame_u64(n);
  flame_put_text(text, sizeof text - 1);
  flame_finish();
}

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  (void)len;
  slow = init->role == FLAME_SLOW;
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    const struct flame_packet *p = flame_packet(batch, i);
    for (uint64_t n = 0; n < 50; n++) {
      flame_row(0);
      flame_u64(p->ts_ns);
      flame_u64(n);
      flame_put_text(text, sizeof text - 1);
      flame_finish();
    }
  }
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_end) uint64_t flame_end(uint64_t now_ns) {
  (void)now_ns;
  if (slow) return flame_output(FLAME_DONE);
  for (uint64_t n = 0; n < 100000; n++) row(1, n);
  flame_send(text, 0);
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_message) uint64_t flame_message(const uint8_t *bytes, uint32_t len) {
  (void)bytes, (void)len;
  for (uint64_t n = 0; n < 12000; n++) row(2, n);
  return flame_output(FLAME_DONE);
}
"#;

const MUCH_TABLES: &str = r#"
[[tables]]
name = "packet"
columns = [{ name = "ts_ns", type = "time" }, { name = "n", type = "u64" }, { name = "text", type = "text" }]
[[tables]]
name = "end"
columns = [{ name = "n", type = "u64" }, { name = "text", type = "text" }]
[[tables]]
name = "message"
columns = [{ name = "n", type = "u64" }, { name = "text", type = "text" }]
"#;

#[test]
fn a_full_area_is_drained_in_every_call_and_bounds_survive() {
    let temporary = tempfile::tempdir().unwrap();
    // 3000 packets over fifteen seconds, in batches of 256.
    let mut traffic = Traffic::default();
    for n in 0..3000 {
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").at(n * 5_000_000);
    }
    let capture = temporary.path().join("much.pcap");
    std::fs::write(&capture, pcap(&traffic)).unwrap();
    for (language, name, file, source) in
        [("rust", "much", "src/lib.rs", MUCH), ("c", "much-c", "module.c", MUCH_C)]
    {
        let folder = temporary.path().join(name);
        flame(&["new", folder.to_str().unwrap(), "--lang", language]);
        std::fs::write(folder.join(file), source).unwrap();
        let manifest = std::fs::read_to_string(folder.join("module.toml")).unwrap();
        let (head, _) = manifest.split_once("[parameters.port]").unwrap();
        std::fs::write(folder.join("module.toml"), head.to_owned() + MUCH_TABLES).unwrap();
        let wasm = build(&folder);
        for more in [&[][..], &["--metered"]] {
            let rows = rows(&wasm, &capture, "end", more);
            assert!(rows.iter().map(|row| row["n"].as_u64().unwrap()).eq(0..100_000), "{name}");
        }
        let run = ["run", &wasm, "-r", capture.to_str().unwrap(), "--format", "json", "--stats", "json"];
        let account: Value = serde_json::from_str(&text(&flame(&run).stderr)).unwrap();
        let much = &account["modules"][name];
        let of = |key: &str| much[key].as_u64().unwrap();
        let found = (of("records"), of("withheld"), of("records_lost"), of("messages_lost"));
        assert_eq!(found, (3000 * 50 + 100_000 + 12_000, 0, 0, 0), "{account}");
        let checked = flame(&["check", &wasm, "--format", "json"]);
        let last: Value = serde_json::from_str(text(&checked.stdout).lines().last().unwrap()).unwrap();
        assert_eq!(last["bounded"], true, "{name}: {last}");
    }
}
