//! The fleet with real processes: a server (NATS_SERVER, or nats-server of PATH), nodes (FLAME, or the
//! command of `make build`), agents and an archive. Without server, command or modules, tests are skipped
//! with a message.

mod members;
#[path = "../../nats/tests/program.rs"]
mod program;
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

/// A query has a limit of its time and of its memory.
#[test]
fn a_query_ends_at_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("manifest")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
        world::output(command.arg("query").args(arguments).env("FLAME_ARCHIVE", folder.path()))
    };
    let long = "SELECT count(*) FROM generate_series(1, 1000000000000) t(n) WHERE n % 7 = 9";
    let error = run(&[long, "--time", "1s"]).unwrap_err();
    assert!(error.contains("no result after 1s") && error.contains("--time"), "{error}");
    let large = "SELECT n FROM generate_series(1, 20000000) t(n) ORDER BY n % 1000, n DESC LIMIT 10000000";
    let error = run(&[large, "--memory", "1MiB"]).unwrap_err();
    assert!(error.contains("Resources exhausted") || error.contains("memory"), "{error}");
    assert!(run(&["SELECT 1", "--memory", "some"]).unwrap_err().contains("expected a size"));
}

/// Delays are stated from the records on their way, before the archive has any.
#[test]
fn delays_follow_the_streams() {
    let Some(mut world) = World::start(&["one", "two"]) else { return };
    world.kill("archive");
    for node in ["one", "two"] {
        let module = world.module("trajectory.wasm");
        world.flame(node, &["install", &module, "--set", "sampling=1"]).unwrap();
    }
    let config = world.path("archive.toml").display().to_string();
    // Both nodes replay the same packets again and again, so each label is seen more than once.
    world.until(&["fleet", "delay", "--follow", &config, "--format", "json"], |line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        (&row["from"], &row["to"]) == (&"one".into(), &"two".into()) && row["ambiguous"].as_u64() > Some(0)
    });
}
