//! Statements that no person thought of: from a number each. Two archives differ in what the holder does not
//! see, and in nothing else, so every answer is the same in both, an error or a plan too.
//!
//! FLAME_SEEDS multiplies the number of statements; 1 without it. FLAME_SEED is the only one.

use crate::fuzz::{Twins, answer};
use crate::query::{pool, session};
use fastrand::Rng;

/// A table, and the columns of numbers and of texts that it has for the holder.
struct From {
    name: &'static str,
    numbers: &'static [&'static str],
    texts: &'static [&'static str],
}

const SEEN: [From; 4] = [
    From { name: "mine.t", numbers: &["k"], texts: &["a", "node", "principal"] },
    From { name: "shown.flow.flow", numbers: &["dport", "rows", "bytes"], texts: &["src"] },
    From {
        name: "information_schema.columns",
        numbers: &["ordinal_position"],
        texts: &["table_name", "column_name"],
    },
    From { name: "fleet.losses", numbers: &["rows"], texts: &["node", "principal"] },
];
const HIDDEN_TABLES: [&str; 5] = ["flow.flow", "archive.other.t", "shown.other.t", "shown.mine.t", "other.t"];
const HIDDEN_COLUMNS: [&str; 5] = ["host", "at", "v", "\"HOST\"", "flow"];
const NUMBERS: [&str; 9] = ["0", "1", "2", "53", "666", "7", "77", "-1", "NULL"];
const TEXTS: [&str; 6] = ["'10.9.9.9'", "'hidden-host'", "'x'", "'n1'", "'10.1.1.1'", "NULL"];
const OF_TEXTS: [&str; 5] = ["upper", "lower", "reverse", "initcap", "btrim"];
const TO_NUMBERS: [&str; 4] = ["length", "ascii", "octet_length", "bit_length"];
const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];
const AGGREGATES: [&str; 6] = ["count(", "min(", "max(", "sum(", "count(DISTINCT ", "avg("];
const JOINS: [&str; 5] = ["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"];

fn of<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.usize(..all.len())]
}

fn once_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(..n) == 0
}

/// A generator of expressions over a table, each of at most this depth.
struct Over<'a> {
    rng: &'a mut Rng,
    from: &'a From,
}

impl Over<'_> {
    fn leaf(&mut self, columns: &[&str], literals: &[&str]) -> String {
        match self.rng.u32(..60) {
            0 => of(self.rng, &HIDDEN_COLUMNS).to_owned(),
            1..=20 => of(self.rng, literals).to_owned(),
            _ => of(self.rng, columns).to_owned(),
        }
    }

    fn number(&mut self, depth: u32) -> String {
        if depth == 0 || once_in(self.rng, 4) {
            return self.leaf(self.from.numbers, &NUMBERS);
        }
        match self.rng.u32(..8) {
            0..=2 => {
                let operator = of(self.rng, &["+", "-", "*", "/", "%"]);
                format!("({} {operator} {})", self.number(depth - 1), self.number(depth - 1))
            }
            3 => format!("{}({})", of(self.rng, &TO_NUMBERS), self.text(depth - 1)),
            4 => format!("CAST({} AS {})", self.number(depth - 1), of(self.rng, &["BIGINT", "DOUBLE"])),
            5 => {
                let (when, other) = (self.condition(depth - 1), self.number(depth - 1));
                format!("(CASE WHEN {when} THEN {} ELSE {other} END)", self.number(depth - 1))
            }
            6 => format!("1 / (CASE WHEN {} THEN 0 ELSE 1 END)", self.condition(depth - 1)),
            _ => format!("coalesce(nullif({}, {}), 5)", self.number(depth - 1), self.number(depth - 1)),
        }
    }

    fn text(&mut self, depth: u32) -> String {
        if depth == 0 || once_in(self.rng, 4) {
            return self.leaf(self.from.texts, &TEXTS);
        }
        match self.rng.u32(..5) {
            0 => format!("({} || {})", self.text(depth - 1), self.text(depth - 1)),
            1 => format!("CAST({} AS VARCHAR)", self.number(depth - 1)),
            2 => format!("coalesce(nullif({}, {}), 'z')", self.text(depth - 1), self.text(depth - 1)),
            _ => format!("{}({})", of(self.rng, &OF_TEXTS), self.text(depth - 1)),
        }
    }

    fn condition(&mut self, depth: u32) -> String {
        let comparison = of(self.rng, &COMPARISONS);
        if depth == 0 {
            return format!("{} {comparison} {}", self.number(0), of(self.rng, &NUMBERS));
        }
        match self.rng.u32(..9) {
            0..=2 => format!("{} {comparison} {}", self.number(depth - 1), self.number(depth - 1)),
            3..=4 => format!("{} {comparison} {}", self.text(depth - 1), self.text(depth - 1)),
            5 => format!("{} LIKE '%{}%'", self.text(depth - 1), of(self.rng, &["1", "9", "h", "b"])),
            6 => format!("NOT ({})", self.condition(depth - 1)),
            7 => {
                let both = of(self.rng, &["AND", "OR"]);
                format!("({} {both} {})", self.condition(depth - 1), self.condition(depth - 1))
            }
            _ => {
                let (of_here, other) = (self.text(depth - 1), &SEEN[self.rng.usize(..2)]);
                format!("{of_here} IN (SELECT {} FROM {})", of(self.rng, other.texts), other.name)
            }
        }
    }

    fn any(&mut self, depth: u32) -> String {
        if self.rng.bool() { self.number(depth) } else { self.text(depth) }
    }

    fn aggregate(&mut self) -> String {
        let name = of(self.rng, &AGGREGATES);
        let is_of_any = !matches!(name, "sum(" | "avg(");
        let inner = if is_of_any { self.any(1) } else { self.number(1) };
        format!("{name}{inner})")
    }
}

pub fn statement(rng: &mut Rng) -> String {
    // Most are of the two tables with rows.
    let from = &SEEN[if once_in(rng, 8) { rng.usize(..SEEN.len()) } else { rng.usize(..2) }];
    let mut table = match rng.u32(..20) {
        0 => of(rng, &HIDDEN_TABLES).to_owned(),
        1 => format!("(SELECT * FROM {} LIMIT {})", from.name, [0, 9][rng.usize(..2)]),
        2 => format!("(SELECT * FROM {0} UNION ALL SELECT * FROM {0})", from.name),
        _ => from.name.to_owned(),
    };
    let is_joined = once_in(rng, 8);
    if is_joined {
        let on = Over { rng, from }.condition(1);
        let alias = "(SELECT 1 AS one, src AS other FROM shown.flow.flow) y";
        table = format!("{table} x {} {alias} ON y.one = 1 AND ({on})", of(rng, &JOINS));
    }
    let mut over = Over { rng, from };
    let condition =
        if once_in(over.rng, 3) { String::new() } else { format!(" WHERE {}", over.condition(3)) };
    let select = match over.rng.u32(..6) {
        0 => format!("SELECT * FROM {table}{condition}"),
        1 | 2 => format!("SELECT {}, {} FROM {table}{condition}", over.aggregate(), over.aggregate()),
        3 => {
            let having = match over.rng.bool() {
                true => format!(" HAVING count(*) > {}", over.rng.u32(..4)),
                false => String::new(),
            };
            let (key, value) = (over.any(1), over.aggregate());
            format!("SELECT {key} AS key, {value} FROM {table}{condition} GROUP BY {key}{having}")
        }
        4 => {
            let (value, by) = (over.any(0), over.any(0));
            format!("SELECT {value}, count({value}) OVER (PARTITION BY {by}) FROM {table}{condition}")
        }
        _ => format!("SELECT {}, {} FROM {table}{condition}", over.any(2), over.any(2)),
    };
    match over.rng.u32(..12) {
        0 => format!("EXPLAIN {select}"),
        1 => format!("SELECT count(*) FROM ({select}) z"),
        _ => select,
    }
}

#[test]
fn random_statements_do_not_depend_on_what_is_hidden() {
    let number = |name| std::env::var(name).map(|n| n.parse::<u64>().expect("a number"));
    let seeds = match number("FLAME_SEED") {
        Ok(seed) => seed..seed + 1,
        Err(_) => 0..400 * number("FLAME_SEEDS").unwrap_or(1),
    };
    let is_one = seeds.end - seeds.start == 1;
    let twins = Twins::new();
    let [world, twin] = &twins.worlds;
    // The operator's sessions have all of it: the same statements find differences there.
    let all = [world, twin].map(|world| world.runtime.block_on(session(&world.store, &pool(None))).unwrap());
    let (mut answered, mut different) = (0, 0);
    for seed in seeds {
        let sql = statement(&mut Rng::with_seed(seed));
        let [one, two] = twins.answers(&sql);
        assert_eq!(one, two, "{sql}\nplay it again: FLAME_SEED={seed} with the name of this test");
        answered += u32::from(one.is_ok());
        if seed < 100 {
            let sql = sql.replace("shown.flow", "flow");
            different += u32::from(answer(world, &all[0], &sql) != answer(twin, &all[1], &sql));
        }
    }
    println!("{answered} statements were answered, and {different} of 100 differ without views");
    assert!(is_one || answered > 100 && different > 10, "{answered} answered, {different} different");
}
