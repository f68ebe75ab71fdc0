//! What a holder sees of an archive, and what attacks find there.

use crate::query::{pool, session};
use crate::world::{ALL, GROUPS, HEADERS, NOW, World};
use datafusion::prelude::SessionContext;
use flame_trust::{Credential, Field, Secret};

/// Texts and an address that no holder of the tests may see.
const SECRETS: [&str; 4] = ["hidden-host", "bobs-own", "unshown", "10.9.9.9"];

const ROWS: &str = "[shows.reader.\"flow.flow\"]\ncolumns = [\"node\", \"dport\", \"at\", \"host\"]";

#[test]
fn a_holder_sees_its_own_rows_and_what_its_role_shows() {
    let world = World::new();
    let context = world.session(ALL, ROWS, &[]);
    assert_eq!(
        world.rows(&context, "SELECT count(*), sum(k), min(v), min(a) FROM mine.t"),
        ["2 14 x 10.2.2.2"]
    );
    let columns = "SELECT table_catalog, table_schema, table_name, column_name \
                   FROM information_schema.columns \
                   WHERE table_schema NOT IN ('information_schema', 'fleet') ORDER BY 1, 2, 3, 4";
    let own = ["a", "k", "node", "principal", "v"].map(|name| format!("archive mine t {name}"));
    let shown = ["at", "dport", "host", "node"].map(|name| format!("shown flow flow {name}"));
    assert_eq!(world.rows(&context, columns), [&own[..], &shown[..]].concat());
    assert_eq!(
        world.rows(&context, "SELECT dport, count(*) FROM shown.flow.flow GROUP BY 1 ORDER BY 1"),
        ["53 8", "666 2"]
    );
    // Without a statement of the policy, nothing of the operator.
    let context = world.session(ALL, "", &[]);
    assert!(world.query(&context, "SELECT * FROM shown.flow.flow").unwrap_err().contains("not found"));
    // The operator sees all.
    let all = world.runtime.block_on(session(&world.store, &pool(None))).unwrap();
    assert_eq!(world.rows(&all, "SELECT count(*), count(DISTINCT principal) FROM mine.t"), ["3 2"]);
}

#[test]
fn exposure_transforms_resolution_and_nodes_narrow() {
    let world = World::new();
    let columns = |context: &SessionContext, table: &str| {
        let sql = format!(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = '{table}' ORDER BY 1"
        );
        world.rows(context, &sql).join(" ")
    };
    let shows = "[shows.reader.\"flow.flow\"]\ncolumns = [\"src\", \"dport\", \"bytes\", \"host\", \"at\"]";
    let context = world.session(HEADERS, shows, &[]);
    assert_eq!(columns(&context, "flow"), "at bytes dport src");
    assert_eq!(columns(&context, "mine"), "a k node principal");
    let context = world.session(HEADERS, shows, &[(Field::Expose, "count")]);
    assert_eq!(columns(&context, "flow"), "at bytes dport");
    assert_eq!(columns(&context, "mine"), "k node principal");
    let context = world.session(ALL, shows, &[(Field::Transform, "ip=prefix,port=zero")]);
    assert_eq!(columns(&context, "flow"), "at bytes");

    let context = world.session(ALL, shows, &[(Field::Resolution, "1s")]);
    let nanoseconds = "SELECT count(*) FROM shown.flow.flow WHERE at <> date_trunc('second', at)";
    assert_eq!(world.rows(&context, nanoseconds), ["0"]);
    // A comparison that the rounded value fulfils and the hidden one does not, and the other way round.
    let at = "SELECT count(*) FROM shown.flow.flow WHERE at";
    assert_eq!(world.rows(&context, &format!("{at} <= to_timestamp_seconds({NOW})")), ["10"]);
    assert_eq!(world.rows(&context, &format!("{at} > to_timestamp_seconds({NOW})")), ["0"]);

    let context = world.session(ALL, shows, &[(Field::Node, "archive,n2")]);
    assert_eq!(world.rows(&context, "SELECT count(*) FROM shown.flow.flow"), ["5"]);
    assert_eq!(world.rows(&context, "SELECT DISTINCT node FROM mine.t"), ["n2"]);
    // Records do not state which packets a filter selects.
    let context = world.session(ALL, shows, &[(Field::Select, "port 53")]);
    assert_eq!(columns(&context, "flow"), "");
}

#[test]
fn a_group_has_its_least_size() {
    let world = World::new();
    let context = world.session(ALL, GROUPS, &[]);
    let all = "SELECT src, dport, rows, bytes FROM shown.flow.flow";
    assert_eq!(world.rows(&context, all), ["10.1.1.1 53 8 200"]);
    // A comparison selects groups, and makes no smaller ones.
    assert_eq!(world.rows(&context, &format!("{all} WHERE dport = 53")), ["10.1.1.1 53 8 200"]);
    assert_eq!(world.rows(&context, &format!("{all} WHERE dport = 666 OR bytes < 100")), [""; 0]);
    assert!(world.query(&context, &format!("{all} WHERE node = 'n1'")).unwrap_err().contains("node"));
    // The role's own size, and a credential's, count if they are larger.
    let context = world.session(ALL, GROUPS, &[(Field::Group, "9")]);
    assert_eq!(world.rows(&context, all), [""; 0]);
    let context = world.session("expose = \"all\"\ngroup = 9", ROWS, &[]);
    assert_eq!(world.rows(&context, "SELECT * FROM shown.flow.flow"), [""; 0]);
}

/// Statements of a tenant who wants more than its views. Each fails, or yields nothing of the secrets.
#[test]
fn attacks_find_nothing() {
    let world = World::new();
    let archive = world.path("archive").display().to_string();
    let file = walk(&world.path("archive/data")).into_iter().find(|path| path.contains("bob")).unwrap();
    let out = world.path("out.csv").display().to_string();
    let by_file = [
        format!("SELECT * FROM '{file}'"),
        format!("SELECT * FROM \"{file}\""),
        format!("SELECT * FROM read_parquet('{file}')"),
        format!("SELECT * FROM parquet_metadata('{file}')"),
        format!("CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{file}'"),
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'archive://fleet/data/'".to_owned(),
        format!("COPY (SELECT * FROM mine.t) TO '{out}'"),
        format!("COPY mine.t TO '{archive}/manifest/change-9.json' STORED AS JSON"),
        "INSERT INTO mine.t SELECT * FROM mine.t".to_owned(),
        "DELETE FROM mine.t".to_owned(),
        "DROP TABLE mine.t".to_owned(),
        "CREATE VIEW fleet.v AS SELECT 1".to_owned(),
        "CREATE TABLE fleet.v AS SELECT 1".to_owned(),
        "SET datafusion.catalog.information_schema = false".to_owned(),
        "SET datafusion.optimizer.max_passes = 0".to_owned(),
        "PREPARE p AS SELECT 1".to_owned(),
        "BEGIN".to_owned(),
        "CREATE FUNCTION f() RETURNS INT RETURN 1".to_owned(),
    ];
    let refused = [
        "SELECT * FROM flow.flow",
        "SELECT * FROM archive.flow.flow",
        "SELECT * FROM archive.other.t",
        "SELECT * FROM shown.other.t",
        "SELECT * FROM datafusion.public.t",
        "SELECT * FROM \"SHOWN\".\"flow\".\"flow\"",
        "SELECT * FROM mine.\"T\"",
        "SELECT * FROM shown.mine.t",
        "SELECT host FROM shown.flow.flow",
        "SELECT \"HOST\" FROM shown.flow.flow",
        "SELECT f.host FROM shown.flow.flow AS f(src, dport, rows, bytes)",
        "SELECT node FROM shown.flow.flow",
        "SELECT * FROM mine.t PIVOT (max(v) FOR principal IN ('bob'))",
        "SELECT * FROM mine.t FOR SYSTEM_TIME AS OF '2020-01-01'",
        "SELECT arrow_cast(host, 'Binary') FROM shown.flow.flow",
        "WITH flow AS (SELECT * FROM shown.flow.flow) SELECT host FROM flow",
        "SELECT k FROM mine.t WHERE EXISTS (SELECT 1 FROM other.t)",
        "SELECT (SELECT max(v) FROM other.t)",
        "SELECT * FROM mine.t UNION ALL SELECT v FROM other.t",
    ];
    // Hidden rows have the values 0 and 10.9.9.9: an expression that fails on them states that they exist.
    let errors = [
        "SELECT max(1 / k) FROM mine.t",
        "SELECT count(*) FROM mine.t WHERE 1 / k > 10",
        "SELECT count(*) FROM mine.t WHERE k = 7 AND 1 / (k - 7 + CASE WHEN k = 0 THEN 0 ELSE 1 END) >= 0",
        "SELECT max(1 / bytes) FROM shown.flow.flow",
        "SELECT count(*) FROM shown.flow.flow WHERE 1 / bytes < 2",
        "SELECT count(*) FROM shown.flow.flow WHERE CAST(replace(src, '10.9.9.9', 'x') AS VARCHAR) <> src",
        "SELECT count(*) FROM shown.flow.flow WHERE CAST(CASE dport WHEN 666 THEN 'x' ELSE 1 END AS INT) = 1",
        "SELECT 1 / (CASE WHEN src = '10.9.9.9' THEN 0 ELSE 1 END) FROM shown.flow.flow",
    ];
    let harmless = [
        "SELECT * FROM shown.flow.flow",
        "SELECT * FROM mine.t",
        "TABLE mine.t",
        "SELECT * FROM mine.t WHERE 1 = 1 OR principal LIKE '%bob%'",
        "SELECT * FROM mine.t WHERE principal <> 'x' UNION ALL SELECT * FROM mine.t",
        "SELECT * FROM shown.flow.flow WHERE src = '10.9.9.9' OR true",
        "SELECT * FROM shown.flow.flow WHERE dport = 666",
        "SELECT * FROM shown.flow.flow a FULL JOIN shown.flow.flow b ON a.dport <> b.dport",
        "SELECT src, sum(bytes) OVER () FROM shown.flow.flow",
        "SELECT approx_distinct(src), array_agg(src), min(src), max(src) FROM shown.flow.flow",
        "SELECT * FROM fleet.losses",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM information_schema.columns",
        "SELECT * FROM information_schema.views",
        "SELECT * FROM information_schema.df_settings",
        "SELECT * FROM information_schema.schemata",
        "EXPLAIN SELECT * FROM mine.t",
        "EXPLAIN VERBOSE SELECT * FROM shown.flow.flow WHERE dport = 666",
        "EXPLAIN ANALYZE SELECT count(*) FROM shown.flow.flow WHERE dport = 666",
        "EXPLAIN FORMAT TREE SELECT * FROM shown.flow.flow",
        "DESCRIBE mine.t",
        "SHOW TABLES",
        "SHOW COLUMNS FROM mine.t",
        "SELECT arrow_typeof(a), arrow_metadata(a) FROM mine.t",
    ];
    for groups in [true, false] {
        let context = match groups {
            true => world.session(HEADERS, GROUPS, &[]),
            false => world.session(HEADERS, "", &[]),
        };
        for sql in by_file.iter().map(String::as_str).chain(refused) {
            assert!(world.query(&context, sql).is_err(), "{sql} was accepted");
        }
        for sql in by_file.iter().map(String::as_str).chain(refused).chain(errors).chain(harmless) {
            let answer = world.query(&context, sql).unwrap_or_else(|error| error);
            // What the tenant states itself may come back in an error.
            let found = SECRETS.iter().find(|secret| !sql.contains(**secret) && answer.contains(**secret));
            assert_eq!(found, None, "{sql}:\n{answer}");
            let place = ["parquet", "data/date", &archive].into_iter().find(|place| {
                !sql.contains("information_schema") && !sql.contains(place) && answer.contains(*place)
            });
            assert_eq!(place, None, "{sql}:\n{answer}");
        }
        for sql in errors.iter().filter(|sql| groups || sql.contains("mine.t")) {
            world.query(&context, sql).unwrap_or_else(|e| panic!("{sql} fails on a hidden row: {e}"));
        }
    }
    assert!(!std::path::Path::new(&out).exists());
}

/// Returns all files below a folder.
fn walk(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] })
        .collect()
}

#[test]
fn a_credential_without_its_key_or_its_time_sees_nothing() {
    let world = World::new();
    world.holder(ALL, ROWS, &[]).unwrap();
    Secret::generate().write_new(&world.path("other.key")).unwrap();
    assert!(world.open("other.key").unwrap_err().contains("another key was shown"));
    let error = world.holder(ALL, ROWS, &[(Field::Expires, "2026-01-01T00:00:00Z")]).unwrap_err();
    assert!(error.contains("expired"), "{error}");
    let error = world.holder(ALL, ROWS, &[(Field::Node, "n1")]).unwrap_err();
    assert!(error.contains("node"), "{error}");
    for (shows, expected) in [
        ("[shows.reader.\"flow\"]\ncolumns = [\"a\"]", "expected MODULE.TABLE"),
        ("[shows.reader.\"flow.flow\"]\ncolumns = []", "columns is empty"),
        ("[shows.reader.\"flow.flow\"]\ncolumns = [\"a\"]\nsums = [\"b\"]", "sums are of groups"),
        ("[shows.reader.\"flow.flow\"]\ncolumns = [\"a\", \"a\"]", "stated twice"),
        ("[shows.absent.\"flow.flow\"]\ncolumns = [\"a\"]", "no such role"),
    ] {
        let error = world.holder(ALL, shows, &[]).unwrap_err();
        assert!(error.contains(expected), "{shows}: {error}");
    }
}

#[test]
fn queries_under_a_credential_are_in_the_audit_log() {
    let world = World::new();
    let holder = world.holder(ALL, ROWS, &[]).unwrap();
    holder.audit("SELECT 1", "1 rows").unwrap();
    holder.audit("SELECT\n2", "error: none").unwrap();
    let log = std::fs::read_to_string(world.path("audit.log")).unwrap();
    let text = std::fs::read_to_string(world.path("alice.cred")).unwrap();
    let id = Credential::parse(&text).unwrap().blocks().unwrap().pop().unwrap().id;
    let lines: Vec<_> = log.lines().collect();
    assert!(lines.len() == 2 && id.len() > 32, "{log}");
    for (line, query) in lines.iter().zip(["1 rows: SELECT 1", "error: none: SELECT\\n2"]) {
        let expected = format!("\"text\":\"credential {id}: {query}\"");
        assert!(
            line.contains(&expected) && line.contains("\"event\":\"query\",\"principal\":\"alice\""),
            "{line}"
        );
    }
    let key = Secret::from_file(&world.path("node.key")).unwrap().public();
    let counter = flame_trust::counter_of(&world.path("node.key"));
    assert_eq!(flame_trust::verify_audit(&world.path("audit.log"), Some(&counter), &key, |_| {}).unwrap(), 2);
    // A log that cannot be written is no reason to answer without one.
    std::fs::remove_file(counter).unwrap();
    assert!(holder.audit("SELECT 1", "1 rows").unwrap_err().to_string().contains("is missing"));
}
