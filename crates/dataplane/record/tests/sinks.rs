//! Every type in every format, and the destinations of output.

use crate::common::*;
use flame_abi::manifest::ColumnType;
use flame_plan::{Catalog, CatalogEntry};
use flame_record::{Format, Options, SinkError, left_out, open, open_writer};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn one() -> (Catalog, Vec<u8>) {
    let mut output = Vec::new();
    every_row().iter().for_each(|row| record(&mut output, 0, row));
    (catalog(vec![module("probe", vec![every_type()])]), output)
}

fn small(name: &str) -> CatalogEntry {
    module(name, vec![table("n", vec![column("n", ColumnType::U32, None)])])
}

/// Returns the names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn written(format: Format, options: &Options, name: &str) -> String {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(name);
    let (catalog, output) = one();
    let mut sink = open(format, Some(&path), &catalog, options).unwrap();
    assert_eq!(send(&catalog.modules[0], &output, &mut *sink), 4);
    sink.finish().unwrap();
    assert_eq!(names(dir.path()), [name]);
    fs::read_to_string(path).unwrap()
}

#[test]
fn json() {
    let text = written(Format::Json, &Options::default(), "out.json");
    let expected = [
        r#"{"module":"probe","table":"all","ok":true,"ttl":64,"port":8080,"packets":1234,"wire":1234567,"drift":-42,"load":1234.5,"first_ns":1700000000123456789,"rtt_ns":12345678,"mac":"02:00:00:00:00:01","src":"192.0.2.1","note":"größe","end":"fin"}"#,
        r#"{"module":"probe","table":"all","ok":false,"ttl":0,"port":0,"packets":0,"wire":0,"drift":-9223372036854775808,"load":-0.0,"first_ns":0,"rtt_ns":-1500,"mac":"00:00:00:00:00:00","src":"2001:db8::1","note":"","end":"idle"}"#,
        r#"{"module":"probe","table":"all","ok":true,"ttl":255,"port":65535,"packets":4294967295,"wire":18446744073709551615,"drift":9223372036854775807,"load":2.2250738585072014e-308,"first_ns":9223372036854775807,"rtt_ns":0,"mac":"ff:ff:ff:ff:ff:ff","src":"::ffff:192.0.2.9","note":"a,\"b\"\n\u001b[2J\r","end":"rst"}"#,
        r#"{"module":"probe","table":"all","ok":false,"ttl":1,"port":1,"packets":1,"wire":1,"drift":1,"load":null,"first_ns":1,"rtt_ns":1,"mac":"01:01:01:01:01:01","src":"0.0.0.0","note":"\u0000","end":"idle"}"#,
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn csv() {
    let text = written(Format::Csv, &Options::default(), "out.csv");
    let mut lines = text.split('\n');
    assert_eq!(lines.next(), Some("ok,ttl,port,packets,wire,drift,load,first_ns,rtt_ns,mac,src,note,end"));
    let first = "true,64,8080,1234,1234567,-42,1234.5,1700000000123456789,12345678,02:00:00:00:00:01,192.0.2.1,größe,fin";
    assert_eq!(lines.next(), Some(first));
    assert!(text.contains(",\"a,\"\"b\"\"\n\\u{1b}[2J\r\",rst\n"), "{text}");
    assert!(text.contains(",NaN,"), "{text}");
}

#[test]
fn times_as_text_and_as_seconds() {
    use flame_record::TimeFormat::{Ns, Rfc3339, Unix};
    for (time, first, last) in [
        (Ns, "1700000000123456789", "1"),
        (Rfc3339, "2023-11-14T22:13:20.123456789Z", "1970-01-01T00:00:00.000000001Z"),
        (Unix, "1700000000.123456789", "0.000000001"),
    ] {
        let options = Options { time: Some(time), ..Options::default() };
        let json = written(Format::Json, &options, "out.json");
        let quote = if time == Rfc3339 { "\"" } else { "" };
        for (line, expected) in [(json.lines().next(), first), (json.lines().last(), last)] {
            let expected = format!("\"first_ns\":{quote}{expected}{quote},\"rtt_ns\"");
            assert!(line.unwrap().contains(&expected), "{json}");
        }
        let csv = written(Format::Csv, &options, "out.csv");
        assert!(csv.lines().nth(1).unwrap().contains(&format!(",{first},12345678,")), "{csv}");
    }
}

#[test]
fn table_for_people() {
    let text = written(Format::Table, &wide(), "out.txt");
    assert!(text.starts_with("probe.all\n"), "{text}");
    for part in [
        " 1,234,567 ",
        " 8080 ",
        " 65535 ",
        " 2023-11-14 22:13:20.123456 ",
        " 12.346 ms ",
        " -1.5 µs ",
        " 1,234.5 ",
        " 192.0.2.1 ",
        " größe ",
        "\\u{1b}[2J",
        " yes ",
        " ppb ",
        " Mbit/s ",
        " UTC",
        " rtt ",
    ] {
        assert!(text.contains(part), "{part:?} is missing\n{text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains("_ns"), "{text}");
}

#[test]
fn long_tables_are_cut_and_counted_unless_they_are_files() {
    let dir = TempDir::new().unwrap();
    let [file, pipe] = ["file.txt", "pipe.txt"].map(|name| dir.path().join(name));
    let catalog = catalog(vec![small("a"), small("b")]);
    let mut output = Vec::new();
    (0..20_000).for_each(|n| record(&mut output, 0, &[Value::U32(n)]));
    let options = Options::default();
    let writer = Box::new(fs::File::create(&pipe).unwrap());
    for mut sink in [
        open(Format::Table, Some(&file), &catalog, &options).unwrap(),
        open_writer(Format::Table, writer, "pipe", &catalog, &options).unwrap(),
    ] {
        assert_eq!(send(&catalog.modules[0], &output, &mut *sink), 20_000);
        sink.finish().unwrap();
    }
    let text = fs::read_to_string(&pipe).unwrap();
    assert!(text.contains(" 39\n") && !text.contains(" 40\n"), "{text}");
    assert!(text.contains("… and 19,960 more (use --format json)"), "{text}");
    assert!(text.ends_with("b.n\nno records\n\n"), "{text}");
    let text = fs::read_to_string(&file).unwrap();
    let numbers = text.lines().filter_map(|line| line.trim().parse::<u32>().ok());
    assert!(numbers.eq(0..20_000) && !text.contains("more (use"), "all rows, in order");
    assert_eq!((text.matches("a.n\n").count(), text.matches("b.n\n").count()), (1, 1), "one header each");
}

#[test]
fn a_narrow_table_fits() {
    let text = written(Format::Table, &Options { width: Some(100), ..Options::default() }, "out.txt");
    let widest = text.lines().map(|l| l.chars().count()).max().unwrap();
    assert!(widest <= 100, "{widest}\n{text}");
}

#[test]
fn live_tables_show_at_each_flush() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("out.txt");
    let catalog = catalog(vec![small("a"), small("b")]);
    let mut sink = open(Format::Table, Some(&path), &catalog, &Options { live: true, ..wide() }).unwrap();
    for n in [7, 8] {
        let mut output = Vec::new();
        record(&mut output, 0, &[Value::U32(n)]);
        send(&catalog.modules[0], &output, &mut *sink);
        sink.flush().unwrap();
    }
    sink.finish().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!((text.matches("a.n\n").count(), text.matches("b.n").count()), (1, 0), "{text}");
    let numbers: Vec<_> = text.lines().map(str::trim).filter(|line| ["7", "8"].contains(line)).collect();
    assert_eq!((numbers, text.lines().count()), (vec!["7", "8"], 5), "one header for both: {text}");
}

#[test]
fn an_output_of_one_table_has_the_first_of_one_module() {
    let dir = TempDir::new().unwrap();
    let two = module("a", ["n", "b"].map(|t| table(t, vec![column("n", ColumnType::U32, None)])).into());
    let one = catalog(vec![two.clone()]);
    let of = |format, file: Option<&str>, catalog: &Catalog, tables: &[&str]| {
        let options =
            Options { tables: tables.iter().map(|t| (*t).to_owned()).collect(), ..Options::default() };
        let path = file.map(|file| dir.path().join(file));
        let left = left_out(format, path.as_deref(), catalog, &options);
        let opened = open(format, path.as_deref(), catalog, &options).map(|sink| sink.finish().unwrap());
        assert!(opened.is_ok() || left.is_none());
        left.map(|left| (left.written, left.left))
    };
    let expected = Some(("a.n".to_owned(), vec!["a.b".to_owned()]));
    for (format, file) in
        [(Format::Csv, None), (Format::Csv, Some("x.csv")), (Format::Parquet, Some("x.parquet"))]
    {
        assert_eq!(of(format, file, &one, &[]), expected);
        assert_eq!(of(format, file, &one, &["b"]), None);
        assert_eq!(of(format, file, &catalog(vec![two.clone(), small("c")]), &[]), None);
        // Tables that are chosen count as all.
        assert_eq!(of(format, file, &catalog(vec![two.clone(), small("c")]), &["a"]), expected);
    }
    assert_eq!(of(Format::Csv, Some("folder"), &one, &[]), None);
    assert_eq!(of(Format::Json, None, &one, &[]), None);
}

#[test]
fn a_table_a_file() {
    let dir = TempDir::new().unwrap();
    let catalog = catalog(vec![small("a"), small("b")]);
    for (format, extension) in [(Format::Csv, "csv"), (Format::Parquet, "parquet")] {
        let folder = dir.path().join(format!("out-{extension}/deep"));
        let sink = open(format, Some(&folder), &catalog, &Options::default()).unwrap();
        sink.finish().unwrap();
        assert_eq!(names(&folder), [format!("a.n.{extension}"), format!("b.n.{extension}")]);
        let file: PathBuf = dir.path().join(format!("one.{extension}"));
        let error = open(format, Some(&file), &catalog, &Options::default()).err().unwrap().to_string();
        assert!(error.contains("here are 2: a.n, b.n; give a folder"), "{error}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("out-csv/deep/a.n.csv")).unwrap(), "n\n");
}

#[test]
fn what_cannot_be_written_is_refused_before_the_run() {
    let two = catalog(vec![small("a"), small("b")]);
    let error = |format, output: Option<&str>| {
        open(format, output.map(Path::new), &two, &Options::default()).err().unwrap().to_string()
    };
    assert!(
        error(Format::Csv, None)
            .contains("here are 2: a.n, b.n; choose one with --table, add -o FOLDER or use --format json")
    );
    assert!(error(Format::Csv, Some("-")).contains("here are 2"));
    assert!(error(Format::Parquet, None).contains("add -o NAME.parquet"));
    assert!(error(Format::Json, Some("no/such/folder/x")).starts_with("no/such/folder/x: "));
    assert!(error(Format::Json, Some(".")).starts_with(".: "));
    for (format, name) in
        [(Format::Json, "x.json.xz"), (Format::Table, "x.json.bz2"), (Format::Zeek, "x.lz4")]
    {
        let error = error(format, Some(name));
        assert!(error.contains("give a name in .gz or .zst"), "{error}");
    }
    assert!(
        "xml"
            .parse::<Format>()
            .unwrap_err()
            .to_string()
            .contains("\"xml\" is no format: expected table, json")
    );
    assert!(Format::ALL.iter().all(|f| f.name().parse::<Format>().unwrap() == *f));
}

#[test]
fn chosen_tables_alone_are_written() {
    let two =
        |name| module(name, ["n", "b"].map(|t| table(t, vec![column("n", ColumnType::U32, None)])).into());
    let catalog = catalog(vec![two("a"), two("b")]);
    let lines = |wanted: &[&str]| -> Vec<String> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("x");
        let options =
            Options { tables: wanted.iter().map(|w| w.to_string()).collect(), ..Options::default() };
        let mut sink = open(Format::Json, Some(&path), &catalog, &options).unwrap();
        for of in &catalog.modules {
            let mut output = Vec::new();
            (0..2).for_each(|t| record(&mut output, t, &[Value::U32(t.into())]));
            send(of, &output, &mut *sink);
        }
        sink.finish().unwrap();
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|l| [l[11..12].to_owned(), l[23..24].to_owned()].join(".")).collect()
    };
    assert_eq!(lines(&[]), ["a.n", "a.b", "b.n", "b.b"]);
    assert_eq!(lines(&["n"]), ["a.n", "b.n"]);
    assert_eq!(lines(&["a"]), ["a.n", "a.b"]);
    assert_eq!(lines(&["b"]), ["a.b", "b.b"], "the name of a table before that of a module");
    assert_eq!(lines(&["a.b", "b.n"]), ["a.b", "b.n"]);
    let csv = |wish: &str| {
        let options = Options { tables: vec![wish.to_owned()], ..Options::default() };
        open(Format::Csv, None, &catalog, &options).err().map(|e| e.to_string())
    };
    assert_eq!(csv("a.b"), None);
    assert!(csv("n").unwrap().contains("here are 2: a.n, b.n"));
    assert_eq!(csv("a.x").unwrap(), "--table a.x: there is no such table; here are a.n, a.b, b.n, b.b");
}

#[test]
fn an_aborted_run_leaves_no_file_and_keeps_the_old_one() {
    let dir = TempDir::new().unwrap();
    let (catalog, output) = one();
    for (format, name) in [(Format::Json, "x.json"), (Format::Csv, "x.csv"), (Format::Parquet, "x.parquet")] {
        let path = dir.path().join(name);
        fs::write(&path, "old").unwrap();
        let mut sink = open(format, Some(&path), &catalog, &Options::default()).unwrap();
        send(&catalog.modules[0], &output, &mut *sink);
        sink.flush().unwrap();
        assert_eq!(names(dir.path()).len(), 2);
        drop(sink);
        assert_eq!(names(dir.path()), [name]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn flushed_lines_can_be_followed() {
    let dir = TempDir::new().unwrap();
    let (catalog, output) = one();
    let mut sink = open(Format::Json, Some(&dir.path().join("x")), &catalog, &Options::default()).unwrap();
    send(&catalog.modules[0], &output, &mut *sink);
    sink.flush().unwrap();
    let partial = dir.path().join(&names(dir.path())[0]);
    assert_eq!(fs::read_to_string(partial).unwrap().lines().count(), 4);
}

#[cfg(unix)]
#[test]
fn devices_are_written_in_place() {
    let (catalog, output) = one();
    for (format, path) in
        [(Format::Json, "/dev/null"), (Format::Csv, "/dev/null"), (Format::Parquet, "/dev/null")]
    {
        let mut sink = open(format, Some(path.as_ref()), &catalog, &Options::default()).unwrap();
        send(&catalog.modules[0], &output, &mut *sink);
        sink.finish().unwrap();
    }
}

#[test]
fn eve_has_alerts_alone() {
    let columns = [
        ("ts_ns", ColumnType::Time),
        ("gid", ColumnType::U32),
        ("sid", ColumnType::U32),
        ("rev", ColumnType::U32),
        ("msg", ColumnType::Text),
        ("class", ColumnType::Text),
        ("priority", ColumnType::U8),
        ("proto", ColumnType::U8),
        ("src", ColumnType::Ip),
        ("sport", ColumnType::U16),
        ("dst", ColumnType::Ip),
        ("dport", ColumnType::U16),
        ("flow", ColumnType::U32),
        ("packet", ColumnType::U64),
        ("icmp_type", ColumnType::U8),
        ("icmp_code", ColumnType::U8),
        ("app", ColumnType::Text),
        ("metadata", ColumnType::Text),
        ("target", ColumnType::Text),
        ("payload", ColumnType::Text),
    ];
    let alert = table("alert", columns.map(|(name, ty)| column(name, ty, None)).into());
    let other = table("n", vec![column("n", ColumnType::U32, None)]);
    let plan_of = |tables| catalog(vec![module("ids", tables)]);
    let (with, without) = (plan_of(vec![other.clone(), alert]), plan_of(vec![other]));
    let error = open(Format::Eve, None, &without, &Options::default()).err().unwrap();
    assert!(error.to_string().contains("run ids"), "{error}");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("eve.json");
    let mut sink = open(Format::Eve, Some(&path), &with, &Options::default()).unwrap();
    let mut output = Vec::new();
    record(&mut output, 0, &[Value::U32(1)]);
    let ip = |last| Value::Ip(std::net::IpAddr::from([192, 0, 2, last]));
    let row = [
        Value::U64(1_700_000_000_123_456_789),
        Value::U32(1),
        Value::U32(1_000_001),
        Value::U32(2),
        Value::Text("a \"scan\"".into()),
        Value::Text("recon".into()),
        Value::U8(3),
        Value::U8(6),
        ip(1),
        Value::U16(4321),
        ip(7),
        Value::U16(80),
        Value::U32(42),
    ];
    let more = |packet, icmp: (u8, u8), texts: [&str; 4]| {
        let texts = texts.map(|text| Value::Text(text.into()));
        [vec![Value::U64(packet), Value::U8(icmp.0), Value::U8(icmp.1)], texts.into()].concat()
    };
    let metadata = "created_at 2020_01_02, tag a b, tag c";
    record(&mut output, 1, &[&row[..], &more(7, (0, 0), ["tls", metadata, "dst", "aGk="])].concat());
    for proto in [1, 58, 47, 200] {
        let row = [&row[..7], &[Value::U8(proto)], &row[8..]].concat();
        record(&mut output, 1, &[row, more(0, (8, 3), ["", "", "", ""])].concat());
    }
    send(&with.modules[0], &output, &mut *sink);
    sink.finish().unwrap();
    let text = fs::read_to_string(path).unwrap();
    let events: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let expected = serde_json::json!({
        "timestamp": "2023-11-14T22:13:20.123456+0000", "event_type": "alert", "flow_id": 42, "proto": "TCP",
        "src_ip": "192.0.2.1", "src_port": 4321, "dest_ip": "192.0.2.7", "dest_port": 80, "pcap_cnt": 7,
        "app_proto": "tls", "payload": "aGk=", "community_id": events[0]["community_id"],
        "alert": {"action": "allowed", "gid": 1, "signature_id": 1_000_001, "rev": 2,
                  "signature": "a \"scan\"", "category": "recon", "severity": 3,
                  "source": {"ip": "192.0.2.1", "port": 4321}, "target": {"ip": "192.0.2.7", "port": 80},
                  "metadata": {"created_at": ["2020_01_02"], "tag": ["a b", "c"]}},
    });
    assert_eq!(events[0], expected);
    assert!(events.iter().all(|e| e["community_id"].as_str().is_some_and(|id| id.starts_with("1:"))));
    let names: Vec<_> = events.iter().map(|e| e["proto"].as_str().unwrap()).collect();
    assert_eq!(names, ["TCP", "ICMP", "IPv6-ICMP", "GRE", "200"]);
    for event in &events[1..] {
        let keys: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(
            !keys.iter().any(|k| matches!(*k, "src_port" | "pcap_cnt" | "app_proto" | "payload")),
            "{keys:?}"
        );
        assert_eq!(keys.contains(&"icmp_type"), event["proto"].as_str().unwrap().contains("ICMP"));
    }
    assert_eq!((&events[1]["icmp_type"], &events[1]["icmp_code"]), (&8.into(), &3.into()));
}

#[test]
fn a_table_outside_the_plan_is_an_error() {
    let dir = TempDir::new().unwrap();
    let (catalog, mut output) = (catalog(vec![small("a")]), Vec::new());
    record(&mut output, 0, &[Value::U32(1)]);
    let mut rows = flame_record::Rows::new(&catalog.modules[0]);
    assert!(rows.push(0, &output[8..]).is_none());
    let batches: Vec<_> = rows.drain().map(|(t, b)| (t.clone(), b)).collect();
    for format in [Format::Table, Format::Csv, Format::Parquet] {
        let mut sink = open(format, Some(&dir.path().join("o")), &catalog, &Options::default()).unwrap();
        let error = sink.write("z", &batches[0].0, &batches[0].1).unwrap_err();
        assert!(matches!(error, SinkError::Unplanned { .. }), "{error}");
    }
}
