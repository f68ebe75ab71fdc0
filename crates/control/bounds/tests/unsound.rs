//! Modules whose bounds were once below the executed instructions, or that never ended: each is rejected, or
//! ends within its bound. Each file explains the error in its former bound.

use crate::generate::hold::{Kind, Oracle, bounds_of};
use crate::generate::packets::{Call, END};
use crate::generate::{Export, hold};
use flame_abi::{Descriptor, layout};
use flame_bounds::Bound;
use flame_meter::{Metering, rewrite};
use std::path::Path;

/// The host's default budget for a call that is not a batch.
const CALL_BUDGET: u128 = 1_000_000_000;

/// Returns the arguments with which a file is called, besides many usual ones.
fn arguments(name: &str) -> &'static [u32] {
    match name {
        "minimum-with-a-flag" => &[0, 1, 2, 1_000_001],
        "condition-of-parts" | "select-by-part-of-a-condition" => &[0, 1, 5, 7, 1_000_000],
        _ => &[0, 1, 2, 255],
    }
}

fn exports(wasm: &[u8]) -> Vec<(String, Export)> {
    let claims = bounds_of(wasm);
    let export =
        |name: &str| [Export::Plain, Export::Batch, Export::Tick].into_iter().find(|e| e.name() == name);
    claims.bounds.iter().filter_map(|(name, _)| Some((name.clone(), export(name)?))).collect()
}

/// Returns the claims about a file.
fn shown(path: &Path) -> String {
    let bounds = bounds_of(&wat::parse_str(std::fs::read_to_string(path).unwrap()).unwrap()).bounds;
    let one = |(name, bound): &(String, Option<Bound>)| match bound {
        Some(bound) => format!("{name} {} + {} for each packet", bound.call, bound.packet),
        None => format!("{name} has no bound"),
    };
    bounds.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the violations of a file.
fn faults(oracle: &Oracle, path: &Path) -> Vec<String> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let declared = wat::parse_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    // As in the generator: memory where the window is.
    let pages = format!("(memory (export \"memory\") {})", END / 65_536);
    let wasm = wat::parse_str(text.replace("(memory (export \"memory\") 1)", &pages)).unwrap();
    let claims = bounds_of(&declared);
    let mut out = Vec::new();
    for (entry, export) in exports(&declared) {
        let bound = claims.bounds.iter().find(|(n, _)| *n == entry).and_then(|(_, b)| *b);
        for argument in arguments(&name) {
            let packet = Descriptor { addr: layout::VIEW, cap_len: 64, ..Descriptor::default() };
            let packets = if export == Export::Batch { vec![packet; 1] } else { Vec::new() };
            let call = Call { a: *argument, b: 1, q: 7, fill: 1, packets };
            let bound = bound.and_then(|b| b.at(call.packets.len() as u64, call.length()));
            let text = |kind: Kind| format!("{name}: {entry}({argument}): {kind:?}, bound {bound:?}");
            // Unmodified: a bound holds.
            if let Some(bound) = bound.filter(|b| *b < CALL_BUDGET / 10)
                && claims.diverging.is_empty()
                && let Some(kind) = oracle.passes(&wasm, export, &call, bound as u64)
            {
                out.push(text(kind));
            }
            // As the node runs it, and with counters everywhere.
            let most = bound.filter(|b| *b < CALL_BUDGET / 10).unwrap_or(0) as u64;
            for (how, count) in [("mixed", claims.count()), ("counted", Metering::All)] {
                let rewritten = rewrite(&wasm, count).unwrap();
                if how == "mixed"
                    && most > 0
                    && let Some(kind) = oracle.diverges(&rewritten, export, &call, most)
                {
                    out.push(format!("{} with fuel", text(kind)));
                }
                if let Some(kind) = oracle.goes_on(&rewritten, export, &call, most) {
                    out.push(format!("{} {how}", text(kind)));
                }
            }
        }
    }
    out
}

#[test]
fn every_unsound_module_is_refused_or_ends_within_its_bound() {
    let oracle = hold::Oracle::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unsound");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "modules are missing");
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let faults = faults(&oracle, path);
        match faults.first() {
            None => println!("{name} holds: {}", shown(path)),
            Some(fault) => wrong.push(fault.clone()),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
