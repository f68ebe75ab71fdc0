//! Signatures in real captures: as many hosts, packets and times as another program finds (expected.py, which
//! made expected.tsv with tshark). Captures that expected.tsv leaves out must give nothing.

use flame_module::testing::{Native, Parameters};
use flame_worm::{Worm, merge::Merge};
use std::collections::{BTreeMap, BTreeSet};

/// Infections, sources, packets, first and last time.
type Totals = [u64; 5];

fn parameters() -> Parameters {
    let list = concat!(include_str!("../worms.txt"), "\n", include_str!("signatures.txt"));
    let room = Parameters::default().integer("max_infections", 65_536).integer("max_pending", 65_536);
    room.with("signatures", list.as_bytes())
}

fn expected() -> BTreeMap<String, BTreeMap<String, Totals>> {
    let mut all: BTreeMap<String, BTreeMap<String, Totals>> = BTreeMap::new();
    for line in include_str!("expected.tsv").lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let totals = std::array::from_fn(|i| cells[i + 2].parse().expect("a number"));
        all.entry(cells[0].to_owned()).or_default().insert(cells[1].to_owned(), totals);
    }
    all
}

#[test]
fn real_captures_agree() {
    let Some(folder) = flame_testing::traces() else { return };
    let mut expected = expected();
    let mut different = Vec::new();
    for (file, []) in flame_testing::truth(&folder, []) {
        let mut native = Native::<Worm, Merge>::with_slow(&parameters(), 0);
        if !flame_testing::blocks(folder.join("files").join(&file), |d, memory| native.packets(d, memory)) {
            continue;
        }
        native.end(0);
        assert_eq!(native.lost, 0, "{file}");
        let mut found: BTreeMap<String, Totals> = BTreeMap::new();
        let mut sources = BTreeSet::new();
        for row in native.rows.iter().filter(|r| r.table == 1) {
            let len = row.integer(0, 2) as usize;
            let name = String::from_utf8(row.bytes[2..2 + len].to_vec()).expect("a name");
            let src = row.bytes[2 + len..19 + len].to_vec();
            let [packets, first, last] = [38, 46, 54].map(|at| row.integer(at + len, 8));
            let t = found.entry(name.clone()).or_insert([0, 0, 0, u64::MAX, 0]);
            *t = [t[0] + 1, t[1], t[2] + packets, t[3].min(first), t[4].max(last)];
            t[1] += u64::from(sources.insert((name, src)));
        }
        let theirs = expected.remove(&file).unwrap_or_default();
        if found != theirs {
            different.push(format!("{file}:\n  ours     {found:?}\n  expected {theirs:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(expected.is_empty(), "not captures: {expected:?}");
}
