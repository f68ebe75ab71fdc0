//! The fleet with real processes: a server (NATS_SERVER, or nats-server of PATH), nodes (FLAME, or the
//! command of `make build`), agents and an archive. Without server, command or modules, tests are skipped
//! with a message.

mod members;
mod world;

use std::time::{Duration, Instant};
use world::{World, wait_for};

/// Each row of each node is archived once, although agents, server and writer are killed while rows come.
#[test]
fn every_row_arrives_once_although_all_are_killed() {
    let Some(mut world) = World::start(&["one", "two", "three"]) else { return };
    wait_for("rows of all nodes", || world.archived().len() == 3);
    for round in 0..4 {
        let begun = Instant::now();
        for victim in ["one", "archive", "server", "two", "three"] {
            world.kill(victim);
            // Meanwhile the others work on without it.
            std::thread::sleep(Duration::from_millis(100 * (round % 3)));
            world.begin(victim);
            std::thread::sleep(Duration::from_millis(300));
        }
        println!("round {round}: {:?}, {:?} rows", begun.elapsed(), world.archived());
    }
    let made = world.stop_modules();
    assert!(made.values().all(|rows| *rows > 100), "{made:?}");
    wait_for(format!("exactly these rows: {made:?}"), || {
        let archived = world.archived();
        let more = archived.iter().find(|(node, rows)| **rows > made[*node]);
        assert!(more.is_none(), "{more:?} were archived, the nodes have {made:?}");
        archived == made
    });
    // Rows of `count` differ by their time, so a row that came twice in the place of another is seen.
    let sql =
        "SELECT node, count(*) AS rows, count(DISTINCT end_ns) AS times FROM count.interval GROUP BY node";
    for row in world.query(sql) {
        assert_eq!(row["rows"], row["times"], "{row}");
    }
    assert_eq!(world.query("SELECT * FROM fleet.losses"), Vec::<serde_json::Value>::new());
    wait_for("spools that are cut", || world.kept() == 0);
}

/// The forms of a result, and errors that state what is wrong.
#[test]
fn queries_write_each_format() {
    let Some(world) = World::start(&["one"]) else { return };
    wait_for("rows", || world.archived().contains_key("one"));
    let sql = "SELECT node, principal, sum(packets) AS packets FROM count.interval GROUP BY ALL";
    let table = world.run(&["query", sql]).unwrap();
    assert!(table.contains("| node | principal | packets |") && table.contains("| one  |"), "{table}");
    let csv = world.run(&["query", sql, "--format", "csv"]).unwrap();
    assert!(csv.starts_with("node,principal,packets\none,,"), "{csv}");
    let file = world.path("result.parquet").display().to_string();
    world.run(&["query", sql, "--format", "parquet", "-o", &file]).unwrap();
    assert_eq!(&std::fs::read(&file).unwrap()[..4], b"PAR1");
    let tables = world.run(&["query", "SELECT * FROM information_schema.tables"]).unwrap();
    assert!(tables.contains("interval") && tables.contains("losses"), "{tables}");
    for (sql, expected) in [
        ("SELECT * FROM nothing.at_all", "nothing.at_all"),
        ("SELEC", "SELEC"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "not supported"),
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'", "not supported"),
        ("SELECT * FROM '/etc/passwd'", "/etc/passwd"),
    ] {
        let error = world.run(&["query", sql]).unwrap_err();
        assert!(error.starts_with("flame: ") && error.contains(expected), "{sql}: {error}");
    }
}
