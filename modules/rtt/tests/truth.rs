//! Handshakes in real captures: as many, and as long, as another program finds. Where they differ,
//! docs/truth-rtt.md explains why.

use flame_module::testing::{Native, Parameters};
use flame_rtt::{Histogram, Rtt};

fn parameters() -> Parameters {
    Parameters::default()
        .integer("max_handshakes", 16_384)
        .integer("max_connections", 1024)
        .integer("handshake_timeout", 120_000_000_000)
        .integer("require_synack", 0)
        .integer("samples", 1)
}

#[test]
fn handshakes_and_their_median_agree() {
    let Some(folder) = flame_testing::traces() else { return };
    let mut exceptions = exceptions();
    let mut different = Vec::new();
    for (file, expected) in flame_testing::truth(&folder, ["handshakes", "rtt_median_s"]) {
        let mut native = Native::<Rtt, Histogram>::with_slow(&parameters(), 0);
        if !flame_testing::blocks(folder.join("files").join(&file), |d, memory| native.packets(d, memory)) {
            continue;
        }
        native.end(0);
        assert_eq!(native.lost, 0, "{file}");
        let mut values: Vec<u64> =
            native.rows.iter().filter(|r| r.table == 0).map(|r| r.integer(46, 8)).collect();
        values.sort_unstable();
        let n = values.len();
        let median = if n == 0 { 0.0 } else { (values[(n - 1) / 2] + values[n / 2]) as f64 / 2e9 };
        let theirs = (expected[0].parse().unwrap_or(usize::MAX), expected[1].parse().unwrap_or(0.0));
        let agrees = |(count, of): (usize, f64)| n == count && (median - of).abs() <= of * 0.01;
        let found = exceptions.iter().position(|(name, _)| *name == file);
        let exception = found.map(|at| exceptions.swap_remove(at).1);
        if !agrees(exception.unwrap_or(theirs)) || (exception.is_some() && agrees(theirs)) {
            different
                .push(format!("{file}: {n} of {median:.9} s, expected {theirs:?}, exception {exception:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    assert!(exceptions.is_empty(), "not captures: {exceptions:?}");
}

/// Captures of docs/truth-rtt.md with our handshakes and median.
fn exceptions() -> Vec<(String, (usize, f64))> {
    let text = include_str!("../../../docs/truth-rtt.md");
    let lines = text.lines().filter(|l| l.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let number = |at: usize| cells[at].parse::<f64>().expect("a number");
            (cells[1].trim_matches('`').to_owned(), (number(2) as usize, number(3)))
        })
        .collect()
}
