//! A statement of a holder, over two archives that differ in what the holder does not see: both give the same
//! answer, or the same error.
#![no_main]

use flame_fleet::fuzz::Twins;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Statements that go to the walls of views: files, other names, metadata, plans, conditions that fail.
pub const SEEDS: [&str; 16] = [
    "SELECT * FROM archive.flow.flow",
    "SELECT host FROM shown.flow.flow",
    "SELECT * FROM mine.t PIVOT (max(v) FOR principal IN ('bob'))",
    "SELECT f.host FROM shown.flow.flow AS f(src, dport, rows, bytes)",
    "WITH flow AS (SELECT * FROM shown.flow.flow) SELECT host FROM flow",
    "SELECT count(*) FROM mine.t WHERE k = 7 AND 1 / (k - 7 + CASE WHEN k = 0 THEN 0 ELSE 1 END) >= 0",
    "SELECT count(*) FROM shown.flow.flow WHERE 1 / bytes < 2 AND dport = 53",
    "SELECT count(*) FROM shown.flow.flow WHERE 53 >= dport AND src <> '10.9.9.9' OR rows < 3",
    "SELECT dport, sum(bytes) OVER (PARTITION BY src ORDER BY dport) FROM shown.flow.flow LIMIT 3",
    "SELECT * FROM shown.flow.flow a FULL JOIN mine.t b ON a.dport <> b.k WHERE a.dport IS NULL",
    "EXPLAIN VERBOSE SELECT * FROM shown.flow.flow WHERE dport = 666",
    "SELECT * FROM information_schema.columns WHERE table_name = 't' ORDER BY 1, 2, 3, 4",
    "SELECT arrow_typeof(a), arrow_metadata(a), arrow_cast(k, 'Utf8') FROM mine.t",
    "SELECT * FROM 'data' UNION ALL SELECT * FROM mine.t",
    "COPY mine.t TO 'x.csv'",
    "SELECT k FROM mine.t WHERE EXISTS (SELECT 1 FROM shown.flow.flow WHERE dport = 666) GROUP BY k HAVING k > 0",
];

/// Parts of statements whose answers depend on chance, on a clock, or on the memory of the machine.
const OTHERWISE: [&str; 10] =
    ["random", "uuid", "now", "current", "today", "analyze", "repeat", "series", "pad", "range"];

static TWINS: LazyLock<Twins> = LazyLock::new(Twins::new);

fuzz_target!(|data: &[u8]| {
    let Ok(sql) = std::str::from_utf8(data) else { return };
    let lower = sql.to_lowercase();
    if OTHERWISE.iter().any(|part| lower.contains(part)) {
        return;
    }
    let [one, two] = TWINS.answers(sql);
    assert_eq!(one, two, "{sql}");
});
