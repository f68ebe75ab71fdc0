//! Statements that no person thought of: from a number each. Two archives differ in what the holder does not
//! see, and in nothing else, so every answer is the same in both, an error or a plan too.
//!
//! FLAME_SEEDS multiplies the number of statements; 1 without it. FLAME_SEED is the only one.

use crate::holder_tests::{GROUPS, HEADERS, Hidden, World};
use crate::query::{pool, session};
use datafusion::prelude::SessionContext;
use fastrand::Rng;

/// What is hidden in the second archive.
const OTHER: Hidden = Hidden {
    src: "10.8.8.8",
    dport: 7,
    bytes: 1_000_000,
    host: "nothing",
    own: "a text",
    key: 77,
    unshown: "never",
};

/// A table, and the columns that it has for the holder.
struct From {
    name: &'static str,
    columns: &'static [&'static str],
}

const SEEN: [From; 4] = [
    From { name: "mine.t", columns: &["a", "k", "node", "principal"] },
    From { name: "shown.flow.flow", columns: &["src", "dport", "rows", "bytes"] },
    From { name: "information_schema.columns", columns: &["table_name", "column_name", "ordinal_position"] },
    From { name: "fleet.losses", columns: &["node", "rows", "principal"] },
];
const HIDDEN_TABLES: [&str; 5] = ["flow.flow", "archive.other.t", "shown.other.t", "shown.mine.t", "other.t"];
const HIDDEN_COLUMNS: [&str; 6] = ["host", "at", "v", "\"HOST\"", "flow", "table_name"];
const LITERALS: [&str; 14] = [
    "0",
    "1",
    "2",
    "53",
    "666",
    "7",
    "77",
    "-1",
    "0.5",
    "'10.9.9.9'",
    "'hidden-host'",
    "'x'",
    "NULL",
    "TRUE",
];
const FUNCTIONS: [&str; 14] = [
    "length",
    "upper",
    "lower",
    "abs",
    "sqrt",
    "to_hex",
    "ascii",
    "reverse",
    "arrow_typeof",
    "trim",
    "signum",
    "octet_length",
    "md5",
    "factorial",
];
const TYPES: [&str; 6] = ["BIGINT", "INT", "DOUBLE", "VARCHAR", "BOOLEAN", "TIMESTAMP"];
const OPERATORS: [&str; 12] = ["+", "-", "*", "/", "%", "=", "<>", "<", ">=", "AND", "OR", "||"];
const AGGREGATES: [&str; 7] = ["count", "min", "max", "sum", "avg", "count(DISTINCT", "median"];
const JOINS: [&str; 5] = ["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"];

fn of<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.usize(..all.len())]
}

/// Returns an expression over the columns of a table.
fn expression(rng: &mut Rng, from: &From, depth: u32) -> String {
    let once_in = |rng: &mut Rng, n: u32| rng.u32(..n) == 0;
    if depth == 0 || once_in(rng, 4) {
        return match rng.u32(..12) {
            0 => of(rng, &HIDDEN_COLUMNS).to_owned(),
            1..=3 => of(rng, &LITERALS).to_owned(),
            _ => of(rng, from.columns).to_owned(),
        };
    }
    let mut inner = |rng: &mut Rng| expression(rng, from, depth - 1);
    let (a, b) = (inner(rng), inner(rng));
    match rng.u32(..10) {
        0..=3 => format!("({a} {} {b})", of(rng, &OPERATORS)),
        4 => format!("{}({a})", of(rng, &FUNCTIONS)),
        5 => format!("CAST({a} AS {})", of(rng, &TYPES)),
        6 => format!("CASE WHEN {a} = {b} THEN 1 / {} ELSE {b} END", inner(rng)),
        7 => format!("coalesce(nullif({a}, {b}), {})", inner(rng)),
        8 => format!("1 / (CASE WHEN {a} = {b} THEN 0 ELSE 1 END)"),
        _ => {
            let other = &SEEN[rng.usize(..2)];
            format!("({a} IN (SELECT {} FROM {}))", expression(rng, other, 0), other.name)
        }
    }
}

fn aggregate(rng: &mut Rng, from: &From) -> String {
    let (name, inner) = (of(rng, &AGGREGATES), expression(rng, from, 1));
    if name.contains('(') { format!("{name} {inner})") } else { format!("{name}({inner})") }
}

fn statement(rng: &mut Rng) -> String {
    // Most are of the two tables with rows.
    let from = &SEEN[if rng.u32(..8) == 0 { rng.usize(..SEEN.len()) } else { rng.usize(..2) }];
    let mut table = match rng.u32(..20) {
        0 => of(rng, &HIDDEN_TABLES).to_owned(),
        1 => format!("(SELECT * FROM {} LIMIT {})", from.name, rng.u32(..3)),
        2 => format!("(SELECT * FROM {0} UNION ALL SELECT * FROM {0})", from.name),
        _ => from.name.to_owned(),
    };
    if rng.u32(..6) == 0 {
        let other = &SEEN[rng.usize(..2)];
        let on = format!("x.{} = y.{}", of(rng, from.columns), of(rng, other.columns));
        table = format!("{table} x {} {} y ON {on}", of(rng, &JOINS), other.name);
    }
    let condition = match rng.u32(..3) {
        0 => String::new(),
        _ => format!(" WHERE {}", expression(rng, from, 3)),
    };
    let select = match rng.u32(..6) {
        0 => format!("SELECT * FROM {table}{condition}"),
        1 | 2 => format!("SELECT {}, {} FROM {table}{condition}", aggregate(rng, from), aggregate(rng, from)),
        3 => {
            let key = expression(rng, from, 1);
            let having =
                if rng.bool() { format!(" HAVING {} > 1", aggregate(rng, from)) } else { String::new() };
            format!("SELECT {key}, {} FROM {table}{condition} GROUP BY {key}{having}", aggregate(rng, from))
        }
        4 => {
            let (value, by) = (of(rng, from.columns), of(rng, from.columns));
            format!("SELECT {value}, count({value}) OVER (PARTITION BY {by}) FROM {table}{condition}")
        }
        _ => format!("SELECT {} FROM {table}{condition}", expression(rng, from, 2)),
    };
    match rng.u32(..12) {
        0 => format!("EXPLAIN {select}"),
        1 => format!("SELECT count(*) FROM ({select}) z"),
        2 => format!("{select} EXCEPT SELECT {} FROM {}", of(rng, from.columns), from.name),
        _ => select,
    }
}

/// Returns an answer with its lines in order: the order of rows is not promised.
fn answer(world: &World, context: &SessionContext, sql: &str) -> Result<String, String> {
    let mut lines: Vec<String> = world.query(context, sql)?.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines.join("\n"))
}

#[test]
fn random_statements_do_not_depend_on_what_is_hidden() {
    let number = |name| std::env::var(name).map(|n| n.parse::<u64>().expect("a number"));
    let seeds = match number("FLAME_SEED") {
        Ok(seed) => seed..seed + 1,
        Err(_) => 0..400 * number("FLAME_SEEDS").unwrap_or(1),
    };
    let is_one = seeds.end - seeds.start == 1;
    let world = World::new();
    let twin = world.twin(&OTHER);
    let [seen, other] = [&world, &twin].map(|world| world.session(HEADERS, GROUPS, &[]));
    // The operator's sessions have all of it: the same statements find differences there.
    let all =
        [&world, &twin].map(|world| world.runtime.block_on(session(&world.store, &pool(None))).unwrap());
    let (mut answered, mut different) = (0, 0);
    for seed in seeds {
        let sql = statement(&mut Rng::with_seed(seed));
        let (one, two) = (answer(&world, &seen, &sql), answer(&twin, &other, &sql));
        assert_eq!(one, two, "{sql}\nplay it again: FLAME_SEED={seed} with the name of this test");
        answered += u32::from(one.is_ok());
        if seed < 100 {
            let sql = sql.replace("shown.flow", "flow");
            different += u32::from(answer(&world, &all[0], &sql) != answer(&twin, &all[1], &sql));
        }
    }
    println!("{answered} statements were answered, and {different} of 100 differ without views");
    assert!(is_one || answered > 100 && different > 10, "{answered} answered, {different} different");
}
