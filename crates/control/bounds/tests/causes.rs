//! The reasons of missing and of too large bounds, and their remedies: one case for each reason. A case is a
//! module as text (`causes/NAME.wat`), and the expected report beside it (`causes/NAME.expected`).
//! `FLAME_WRITE_EXPECTED=1` writes the reports.

use flame_bounds::{Analysis, Reason, Rules, analyse, analyse_exports};
use std::fmt::Write;
use std::path::PathBuf;

/// The budget of a packet that dominant loops are fitted to.
const BUDGET: u64 = 1_000_000;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/causes")
}

fn analysis(text: &str) -> Analysis {
    let wasm = wat::parse_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let is_module = text.contains("flame_batch");
    let all = if is_module { analyse(&wasm, &Rules::default(), None) } else { analyse_exports(&wasm) };
    all.unwrap()
}

/// Returns the report about a module: causes with remedies, and the part that costs most.
fn report(text: &str) -> String {
    let analysis = analysis(text);
    let mut out = String::new();
    for entry in &analysis.entries {
        match &entry.why {
            None => writeln!(out, "{}: {} a packet", entry.name, entry.bound.at(1, 1500).unwrap()).unwrap(),
            Some(why) => {
                let place = if why.offset > 0 { "a place" } else { "the whole" };
                writeln!(out, "{}: {} (in {}, {place})", entry.name, why.reason, why.function).unwrap();
                let remedy = why.reason.remedy();
                writeln!(out, "Rust: {}\nC: {}", remedy.rust, remedy.c).unwrap();
            }
        }
        if let Some(dominant) = analysis.dominant.as_ref().filter(|_| entry.name == "flame_batch") {
            let share = 100.0 * dominant.share(entry.bound, 1500);
            let fits = dominant.fits(entry.bound, 1500, BUDGET);
            let (kind, trips) = (dominant.kind, dominant.trips);
            writeln!(out, "{kind:?} of {trips}: {share:.2} % of the bound; {fits:?} fit").unwrap();
        }
    }
    for l in analysis.loops.iter().filter(|l| l.why.is_some()) {
        writeln!(out, "loop in {}: {}", l.function, l.why.as_ref().unwrap()).unwrap();
    }
    out
}

/// Returns the names and texts of all cases, and the expected reports.
fn cases() -> Vec<(String, String, String)> {
    let files = std::fs::read_dir(folder()).unwrap().map(|f| f.unwrap().path());
    let mut all: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "wat")).collect();
    all.sort();
    let read = |path: PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let case = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, read(path.clone()), read(path.with_extension("expected")))
    };
    all.into_iter().map(case).collect()
}

#[test]
fn each_reason_is_reported_with_its_remedy() {
    let mut wrong = Vec::new();
    for (name, text, expected) in cases() {
        let found = report(&text);
        if std::env::var_os("FLAME_WRITE_EXPECTED").is_some() {
            std::fs::write(folder().join(&name).with_extension("expected"), &found).unwrap();
        }
        if found != expected {
            wrong.push(format!("{name} is expected to be\n{expected}but is\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The number of iterations that a report states does fit, and one tenth more does not.
#[test]
fn the_trip_count_that_fits_is_the_largest() {
    for (name, written) in [("over-budget-loop", "0x1000000"), ("over-budget-nested", "100000")] {
        let text = std::fs::read_to_string(folder().join(name).with_extension("wat")).unwrap();
        let most = |text: &str| analysis(text).entries[0].bound.at(1, 1500).unwrap();
        let first = analysis(&text);
        let fits = first.dominant.unwrap().fits(first.entries[0].bound, 1500, BUDGET).unwrap();
        // The loop is tested at its end: one iteration more than back edges.
        let with = |iterations: u64| most(&text.replace(written, &iterations.to_string()));
        assert!(with(fits + 1) <= BUDGET.into(), "{name}: {fits}");
        assert!(with(fits + fits / 10) > BUDGET.into(), "{name}: {fits}");
    }
}

/// Every reason occurs in a case. The match fails to compile if a reason is added without a name here.
#[test]
fn every_reason_has_a_case() {
    let name = |reason: &Reason| match reason {
        Reason::NoExit => "NoExit",
        Reason::NoCounter => "NoCounter",
        Reason::Step => "Step",
        Reason::LimitChanges => "LimitChanges",
        Reason::Limit { .. } => "Limit",
        Reason::Equality => "Equality",
        Reason::Allocator => "Allocator",
        Reason::Product => "Product",
        Reason::Recursion(_) => "Recursion",
        Reason::Table(_) => "Table",
        Reason::Calls(_) => "Calls",
        Reason::Nesting => "Nesting",
        Reason::Work => "Work",
        Reason::Certificate(_) => "Certificate",
        Reason::Diverges => "Diverges",
        Reason::Unsupported => "Unsupported",
        Reason::Caller => "Caller",
    };
    let mut found = std::collections::BTreeSet::new();
    for (_, text, _) in cases() {
        let analysis = analysis(&text);
        let entries = analysis.entries.iter().filter_map(|e| e.why.as_ref().map(|why| &why.reason));
        found.extend(entries.chain(analysis.loops.iter().filter_map(|l| l.why.as_ref())).map(name));
    }
    // Too large for files: 2.1 million instructions before a loop, and one 2,000 calls deep.
    let end = "(loop (br_if 0 (i32.load (local.get 0))))";
    let long = "(nop)".repeat(2_100_000);
    let deep: String =
        (0..2000).map(|n| format!("(func (param i32) (call {} (local.get 0)))", n + 2)).collect();
    for text in [
        format!("(module (memory 1) (func (export \"f\") (param i32) {long} {end}))"),
        format!(
            "(module (memory 1) (func (export \"f\") (param i32) (call 1 (local.get 0))) {deep} \
             (func (param i32) {end}))"
        ),
    ] {
        let entries = analysis(&text).entries;
        found.extend(entries.iter().filter_map(|e| e.why.as_ref().map(|why| name(&why.reason))));
    }
    let all = [
        "Allocator",
        "Caller",
        "Calls",
        "Certificate",
        "Diverges",
        "Equality",
        "Limit",
        "LimitChanges",
        "Nesting",
        "NoCounter",
        "NoExit",
        "Product",
        "Recursion",
        "Step",
        "Table",
        "Unsupported",
        "Work",
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), all);
}
