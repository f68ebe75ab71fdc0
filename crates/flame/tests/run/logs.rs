//! Texts of modules for the operator: delivered and escaped, limited in rate, counted, and granted.

use crate::common::{modules_target, root};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn flame(folder: &Path, args: &[&str]) -> Output {
    let mut flame = Command::new(env!("CARGO_BIN_EXE_flame"));
    let out =
        flame.args(args).current_dir(folder).env("CARGO_TARGET_DIR", modules_target()).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "flame {args:?}: {}", text(&out.stderr));
    out
}

/// Logs a text with a terminal's controls and a line in another's name when it begins, and one for each
/// packet.
const TALK: &str = r#"
use flame_module::{Batch, Init, Module, Out, log};

pub struct Talk;

impl Module for Talk {
    fn new(_: &Init) -> Self {
        log!("begins\u{1b}[2J\nflame: forged");
        Self
    }
    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            log!("{} bytes", packet.wire_len);
        }
    }
}

flame_module::export!(Talk);
"#;

const TALK_C: &str = r#"
#include "flame.h"

static const char begins[] = "begins\x1b[2J\nflame: forged";

FLAME_EXPORT(flame_init) uint64_t flame_init(const struct flame_init *init, uint32_t len) {
  (void)init, (void)len;
  flame_log(begins, sizeof begins - 1);
  return flame_output(FLAME_DONE);
}

FLAME_EXPORT(flame_batch) uint64_t flame_batch(const struct flame_batch *batch) {
  for (uint32_t i = 0; i < batch->count; i++) {
    flame_packet(batch, i);
    flame_log("some bytes", 10);
  }
  return flame_output(FLAME_DONE);
}
"#;

fn build(folder: &Path, name: &str, (language, file, source): (&str, &str, &str), log: &str) -> String {
    flame(folder, &["new", name, "--lang", language]);
    let folder = folder.join(name);
    std::fs::write(folder.join(file), source).unwrap();
    let manifest = std::fs::read_to_string(folder.join("module.toml")).unwrap();
    let (head, _) = manifest.split_once("[needs]").unwrap();
    std::fs::write(folder.join("module.toml"), format!("{head}{log}\n")).unwrap();
    flame(&folder, &["build", "."]);
    folder.join(name.to_owned() + ".wasm").display().to_string()
}

fn demo() -> PathBuf {
    root().join("demo/demo.pcap").canonicalize().unwrap()
}

/// Runs a module over the recorded capture: the lines that it logged, and its account.
fn run(folder: &Path, wasm: &str, more: &[&str]) -> (Vec<String>, Value, String) {
    let capture = demo();
    let args = ["run", wasm, "-r", capture.to_str().unwrap(), "--stats", "json"];
    let said = text(&flame(folder, &[&args[..], more].concat()).stderr);
    let name = Path::new(wasm).file_stem().unwrap().to_str().unwrap();
    let lines = said.lines().filter(|line| line.starts_with(&format!("{name}: ")));
    let account = said.lines().find(|line| line.starts_with('{')).unwrap_or("{}");
    let account: Value = serde_json::from_str(account).unwrap();
    (lines.map(str::to_owned).collect(), account["modules"][name].clone(), said)
}

#[test]
fn texts_reach_the_operator_escaped_and_few() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    for (name, sources, usual) in
        [("talk", ("rust", "src/lib.rs", TALK), "bytes"), ("talk-c", ("c", "module.c", TALK_C), "some bytes")]
    {
        let wasm = build(folder, name, sources, "log = true");
        let mut first = None;
        for workers in ["1", "2"] {
            let (lines, account, said) = run(folder, &wasm, &["--workers", workers]);
            // A line end and an escape sequence are told, not obeyed.
            assert_eq!(lines[0], format!("{name}: begins\\u{{1b}}[2J\\u{{a}}flame: forged"), "{said}");
            assert!(!said.contains("\nflame: forged"), "{said}");
            assert!(lines.last().unwrap().ends_with(usual), "{said}");
            let (logged, dropped) =
                (account["logged"].as_u64().unwrap(), account["logs_dropped"].as_u64().unwrap());
            assert_eq!(lines.len() as u64, logged, "{said}");
            // Eight seconds of packets, and 32 texts of each.
            assert!(logged > 32 && logged <= 32 * 10 && dropped > 100, "{account}");
            assert_eq!((&account["records"], &account["faults"]), (&0.into(), &0.into()), "{account}");
            if workers == "1" {
                assert_eq!(*first.get_or_insert_with(|| lines.clone()), lines, "packet time, not the clock");
            }
        }
        assert!(run(folder, &wasm, &["-q"]).0.is_empty());
        // The same run says the same.
        assert_eq!(Some(run(folder, &wasm, &[]).0), first);
    }
}

/// Formatting has no bound, but a text without values has one, and so have timers in C.
#[test]
fn a_text_without_values_leaves_a_module_bounded() {
    let temporary = tempfile::tempdir().unwrap();
    let plain = TALK.replace("\"{} bytes\", packet.wire_len", "\"a packet\"");
    let timed =
        TALK_C.replace("flame_packet(batch, i);", "uint64_t at = flame_packet(batch, i)->ts_ns;").replace(
            "flame_log(\"some bytes\", 10);",
            "static struct flame_timer timer = FLAME_EVERY(100000000);\n    \
         if (flame_poll(&timer, at, &at)) flame_log(\"some bytes\", 10);",
        );
    for (name, sources, expected) in [
        ("plain", ("rust", "src/lib.rs", &plain[..]), true),
        ("talk", ("rust", "src/lib.rs", TALK), false),
        ("timed", ("c", "module.c", &timed[..]), true),
    ] {
        let wasm = build(temporary.path(), name, sources, "log = true");
        let out = flame(temporary.path(), &["check", &wasm, "--format", "json"]);
        let last: Value = serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap();
        assert_eq!(last["bounded"], expected, "{name}: {last}");
    }
}

#[test]
fn a_manifest_that_does_not_declare_texts_has_none() {
    let temporary = tempfile::tempdir().unwrap();
    let wasm = build(temporary.path(), "quiet", ("c", "module.c", TALK_C), "");
    let capture = demo();
    let run = ["run", &wasm, "-r", capture.to_str().unwrap()];
    let out = Command::new(env!("CARGO_BIN_EXE_flame")).args(run).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("a text for the operator, but the manifest lacks `log = true`"), "{said}");
}

#[test]
fn a_grant_drops_texts_unless_it_lets_them_out() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let wasm = build(folder, "talk-c", ("c", "module.c", TALK_C), "log = true");
    let key = |name: &str| text(&flame(folder, &["key", "new", name]).stdout).trim().to_owned();
    let root = key("root.key");
    key("node.key");
    let policy = |file: &str, calls: &str| {
        let policy = format!(
            "[node]\nname = \"tap1\"\nkey = \"node.key\"\n[roots]\noperator = \"{root}\"\n\
             [roles.all]\nselect = \"\"\nexpose = \"headers\"\ncode = \"any\"\ncalls = \"{calls}\"\n"
        );
        std::fs::write(folder.join(file), policy).unwrap();
    };
    policy("without.toml", "records, messages, packets");
    policy("with.toml", "records, log");
    let mint = ["grant", "mint", "--key", "root.key", "--role", "all", "--code", "any", "--to", "alice"];
    flame(folder, &[&mint[..], &["-o", "all.cred"]].concat());
    flame(folder, &[&mint[..], &["--calls", "records", "-o", "records.cred"]].concat());
    let under = |policy: &str, credential: &str| {
        run(folder, &wasm, &["--policy", policy, "--credential", credential])
    };
    let (lines, account, said) = under("with.toml", "all.cred");
    assert!(lines.len() > 32 && lines.len() as u64 == account["logged"].as_u64().unwrap(), "{said}");
    for (policy, credential) in [("without.toml", "all.cred"), ("with.toml", "records.cred")] {
        let (lines, account, said) = under(policy, credential);
        assert!(
            lines.is_empty() && said.contains("talk-c logs, and its grant does not let that out"),
            "{said}"
        );
        assert_eq!((&account["logged"], &account["faults"]), (&0.into(), &0.into()), "{said}");
        // Rounded, as all numbers that a module under a grant could choose.
        assert!(account["logs_dropped"].as_u64().unwrap().is_power_of_two(), "{account}");
    }
}
