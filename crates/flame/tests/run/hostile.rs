//! Tests of harmful modules: they are contained and named, and their neighbour sees every packet.
//!
//! A case is a file of `tests/hostile/`. Its first lines describe the harm, state whether the module is
//! refused at install or ended while running, and give a part of the expected error. Cases that are not valid
//! text are below.

use crate::common::{MANIFEST, Memory, install, request, root, run, with_manifest};
use flame_plan::{Limits, OnFault};

/// A neighbour in plain Wasm: counts its packets and reports them at the end.
const NEIGHBOUR: &str = r#"(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\00\00\00\00")
  (func (export "flame_batch") (param i32) (result i64)
    (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load32_u offset=4 (local.get 0))))
    (i64.const 0))
  (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;

const PACKETS: usize = 3000;

fn neighbour() -> Vec<u8> {
    let manifest = MANIFEST.replace("hostile", "neighbour");
    with_manifest(wat::parse_str(NEIGHBOUR).unwrap(), manifest.as_bytes())
}

#[test]
fn every_case_is_contained_and_named() {
    let engine = flame_run::Engines::new().unwrap();
    let neighbour = install(&neighbour(), &request()).unwrap();
    let mut cases = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/hostile")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "wat") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let word = |key: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(&format!(";; {key}:")));
            line.unwrap_or_else(|| panic!("{name}: no line `;; {key}:`")).trim().to_owned()
        };
        let (stage, expect) = (word("stage"), word("expect"));
        let wasm = with_manifest(
            wat::parse_str(&text).unwrap_or_else(|e| panic!("{name}: {e}")),
            MANIFEST.as_bytes(),
        );
        cases += 1;
        match (stage.as_str(), install(&wasm, &request())) {
            ("install", Err(error)) => {
                if !error.to_string().to_lowercase().contains(&expect.to_lowercase()) {
                    wrong.push(format!("{name}: expected {expect:?} in: {error}"));
                }
            }
            ("install", Ok(_)) => wrong.push(format!("{name}: was installed")),
            (_, Err(error)) => wrong.push(format!("{name}: not installed: {error}")),
            (_, Ok(plan)) => {
                for workers in [1, 2] {
                    let modules = vec![plan.clone(), neighbour.clone()];
                    let (report, records) =
                        run(&engine, modules, workers, Box::new(Memory::tcp(PACKETS, 50)), 256).unwrap();
                    let seen: u64 = records
                        .iter()
                        .filter_map(|r| r.strip_prefix("neighbour.t packets="))
                        .map(|n| n.parse::<u64>().unwrap())
                        .sum();
                    if seen != PACKETS as u64 {
                        wrong.push(format!("{name}: its neighbour saw {seen} packets"));
                    }
                    let named = |t: &str| t.to_lowercase().contains(&expect.to_lowercase());
                    if !report.faults.iter().any(|f| f.module == "hostile" && named(&f.text)) {
                        wrong.push(format!("{name}: expected {expect:?} in: {:?}", report.faults));
                    }
                    assert_eq!(report.accounts[1].1.processed, PACKETS as u64, "{name}");
                }
            }
        }
    }
    assert!(cases >= 25, "only {cases} cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Outputs of kinds, besides counts of packets.
const KINDS: &str = "abi = 1\nname = \"hostile\"\nversion = \"1\"\ndescription = \"test\"\n\
    [[tables]]\nname = \"t\"\ncolumns = [{ name = \"packets\", type = \"u64\" }]\n\
    [[tables]]\nname = \"b\"\ncolumns = [{ name = \"x\", type = \"bool\" }]\n\
    [[tables]]\nname = \"e\"\ncolumns = [{ name = \"x\", type = \"enum\", values = [\"one\", \"two\"] }]\n\
    [[tables]]\nname = \"i\"\ncolumns = [{ name = \"x\", type = \"ip\" }]\n\
    [[tables]]\nname = \"s\"\ncolumns = [{ name = \"x\", type = \"text\" }]\n";

/// A kind of harm.
struct Kind {
    name: String,
    expect: Vec<String>,
    calls: Vec<&'static str>,
    fields: String,
    body: String,
    result: String,
}

/// The calls in which harm is done.
const CALLS: [&str; 5] = ["batch", "tick", "end", "message", "pressure"];

fn kinds() -> Vec<Kind> {
    let text = std::fs::read_to_string(root().join("tests/hostile/kinds.txt")).unwrap();
    let kind = |section: &str| {
        let mut lines = section.lines();
        let mut kind = Kind {
            name: lines.next().unwrap().trim().to_owned(),
            expect: Vec::new(),
            calls: CALLS.to_vec(),
            fields: String::new(),
            body: String::new(),
            result: "(i64.const 0)".to_owned(),
        };
        for line in lines {
            if let Some(expect) = line.strip_prefix(";; expect:") {
                kind.expect = expect.trim().split('|').map(str::to_owned).collect();
            } else if let Some(calls) = line.strip_prefix(";; in:") {
                kind.calls.retain(|call| calls.split_whitespace().any(|c| c == *call));
            } else if let Some(field) = line.strip_prefix('+') {
                kind.fields += field;
            } else if let Some(result) = line.strip_prefix('=') {
                kind.result = result.to_owned();
            } else {
                kind.body += line;
            }
        }
        kind
    };
    text.split(";; kind:").skip(1).map(kind).collect()
}

impl Kind {
    /// Returns the module that does harm in this call and nothing in the others.
    fn module(&self, call: &str) -> String {
        let harm = |of: &str| if of == call { "(call $harm)" } else { "(i64.const 0)" };
        // A batch sends a message, with which the slow instance then does harm.
        let (sends, slow) = match call {
            "message" => (
                "(i64.const 0x90000fa00)",
                "(data (i32.const 64000) \"\\01\\00\\00\\00\\ff\\ff\\00\\00x\")\
                 (func (export \"flame_message\") (param i32 i32) (result i64) (call $harm))",
            ),
            // More memory is refused to a batch, after which the module is informed.
            "pressure" => (
                "(drop (memory.grow (i32.const 65535))) (i64.const 0)",
                "(func (export \"flame_pressure\") (param i64) (result i64) (call $harm))",
            ),
            _ => (harm("batch"), ""),
        };
        let (imports, fields) = match self.fields.strip_prefix("IMPORT") {
            Some(rest) => ("(import \"flame\" \"packet\" (func $packet (param i32)))", rest),
            None => ("", self.fields.as_str()),
        };
        format!(
            "(module {imports} (memory (export \"memory\") 1) {fields} {slow}
              (func $harm (result i64) (local $i i32) (local $n i64) (local $f f64) {} {})
              (func (export \"flame_batch\") (param i32) (result i64) {sends})
              (func (export \"flame_tick\") (param i64) (result i64) {})
              (func (export \"flame_end\") (param i64) (result i64) {}))",
            self.body,
            self.result,
            harm("tick"),
            harm("end"),
        )
    }
}

/// Runs a kind in a call. Returns a description if it is not contained.
fn contained(
    engine: &flame_run::Engines,
    neighbour: &flame_plan::ModulePlan,
    kind: &Kind,
    call: &str,
) -> Option<String> {
    let name = format!("{} in {call}", kind.name);
    // The name is printed by the harness if the test fails, or does not end.
    eprintln!("{name}");
    let wasm = match wat::parse_str(kind.module(call)) {
        Ok(wasm) => with_manifest(wasm, KINDS.as_bytes()),
        Err(e) => return Some(format!("{name}: {e}")),
    };
    // A smaller budget makes endless loops end sooner.
    let limits = Limits { packet_budget: 10_000, call_budget: 1_000_000, ..Limits::default() };
    let plan = match install(&wasm, &flame_compile::InstallRequest { limits, ..request() }) {
        Ok(plan) => plan,
        // A refusal for the expected harm is containment, too.
        Err(e) if kind.expect.iter().any(|expected| e.to_string().contains(expected.as_str())) => {
            return None;
        }
        Err(e) => return Some(format!("{name}: not installed: {e}")),
    };
    let source = Box::new(Memory::tcp(PACKETS, 50));
    let (report, _) = run(engine, vec![plan, neighbour.clone()], 1, source, 256).unwrap();
    if report.accounts[1].1.processed != PACKETS as u64 {
        return Some(format!("{name}: its neighbour saw {} packets", report.accounts[1].1.processed));
    }
    let as_expected =
        |text: &str| kind.expect.iter().any(|e| text.to_lowercase().contains(&e.to_lowercase()));
    let by_name = |text: &str| text.starts_with(&format!("flame_{call}: "));
    let named =
        report.faults.iter().any(|f| f.module == "hostile" && by_name(&f.text) && as_expected(&f.text));
    (!named).then(|| format!("{name}: expected {:?} in: {:?}", kind.expect, report.faults))
}

/// A hundred kinds, each in a batch, a tick, the end, a message and under pressure.
#[test]
fn every_kind_is_contained_wherever_it_is_done() {
    let engine = flame_run::Engines::new().unwrap();
    let neighbour = install(&neighbour(), &request()).unwrap();
    let kinds = kinds();
    assert!(kinds.len() >= 100, "only {} kinds", kinds.len());
    let wrong: Vec<_> = kinds
        .iter()
        .flat_map(|kind| kind.calls.iter().filter_map(|call| contained(&engine, &neighbour, kind, call)))
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn malformed_files_are_refused_with_the_reason() {
    let good = neighbour();
    let plain = wat::parse_str(NEIGHBOUR).unwrap();
    let mut long_section = plain.clone();
    long_section.extend([0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    let mut twice = good.clone();
    twice = with_manifest(twice, MANIFEST.as_bytes());
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "empty"),
        ("elf", b"\x7fELF\x02\x01\x01".to_vec(), "compiled code is never taken"),
        ("text", NEIGHBOUR.as_bytes().to_vec(), "text format"),
        ("component", b"\0asm\x0d\0\x01\0".to_vec(), "component"),
        ("no manifest", plain.clone(), "manifest"),
        ("two manifests", twice, "manifest"),
        ("manifest of 100 MB", with_manifest(plain.clone(), &vec![b'#'; 100 << 20]), ""),
        ("manifest not text", with_manifest(plain.clone(), b"\xff\xfe"), "UTF-8"),
        (
            "manifest of another abi",
            with_manifest(plain.clone(), MANIFEST.replace("abi = 1", "abi = 9").as_bytes()),
            "abi = 9",
        ),
        (
            "manifest with an unknown key",
            with_manifest(plain.clone(), MANIFEST.replace("version", "colour").as_bytes()),
            "colour",
        ),
        (
            "name that is a path",
            with_manifest(plain.clone(), MANIFEST.replace("hostile", "../../etc").as_bytes()),
            "not a name",
        ),
        ("section longer than the file", long_section, ""),
    ];
    for (name, wasm, expect) in cases {
        let error = match install(&wasm, &request()) {
            Ok(_) => panic!("{name}: was installed"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expect), "{name}: expected {expect:?} in: {error}");
    }
    // A file cut anywhere is refused, and never causes a panic.
    for end in 0..good.len() {
        assert!(install(&good[..end], &request()).is_err(), "cut at {end}");
    }
}

#[test]
fn a_budget_cuts_off_at_the_same_packet_whatever_the_batches() {
    // The thousandth packet, by its source port, loops forever. Marks give each packet its budget.
    let text = r#"(module
      (import "flame" "packet" (func $packet (param i32)))
      (memory (export "memory") 1)
      (func (export "flame_batch") (param $b i32) (result i64) (local $i i32) (local $d i32)
        (local.set $d (i32.load (local.get $b)))
        (loop $next
          (call $packet (local.get $i))
          (if (i64.eq (i64.load (local.get $d)) (i64.const 2000000000))
            (then (loop $for_ever (br $for_ever))))
          (local.set $d (i32.add (local.get $d) (i32.const 32)))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $i) (i32.load offset=4 (local.get $b)))))
        (i64.const 0)))"#;
    let engine = flame_run::Engines::new().unwrap();
    let wasm = with_manifest(wat::parse_str(text).unwrap(), MANIFEST.as_bytes());
    for batch in [1, 7, 64, 256] {
        for (on_fault, processed) in [(OnFault::Stop, 1000), (OnFault::Restart(1), PACKETS as u64 - 1)] {
            let plan = install(&wasm, &flame_compile::InstallRequest { on_fault, ..request() }).unwrap();
            let (report, _) = run(&engine, vec![plan], 1, Box::new(Memory::tcp(PACKETS, 9)), batch).unwrap();
            let account = &report.accounts[0].1;
            assert_eq!(account.processed, processed, "batches of {batch}");
            assert_eq!(account.shed_by(flame_plan::Shed::Budget), 1);
            assert_eq!(report.faults[0].packet, Some(1000));
        }
    }
}
