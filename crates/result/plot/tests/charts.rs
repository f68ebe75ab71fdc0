//! Tests of every chart, with records of any values, for every target. Pictures must show the records'
//! values.

use flame_abi::manifest::Manifest;
use flame_plot::{Format, Plotter, ROWS, chart, render, text};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A module with a plot of each kind, with and without what is optional.
const KINDS: &str = r#"
    abi = 1
    name = "kinds"
    version = "1"
    description = "d"
    [[tables]]
    name = "t"
    description = "of all kinds"
    columns = [{ name = "ts_ns", type = "time" }, { name = "path", type = "text" },
      { name = "n", type = "u64", unit = "bytes" }, { name = "m", type = "f64" }, { name = "d", type = "duration" }]
    [[plot]]
    name = "grouped"
    kind = "line"
    table = "t"
    x = "ts_ns"
    y = ["d"]
    group = "path"
    unit = "delay"
    [[plot]]
    name = "points"
    kind = "points"
    table = "t"
    x = "d"
    y = ["n", "m"]
    [[plot]]
    name = "events"
    kind = "events"
    table = "t"
    x = "ts_ns"
    [[plot]]
    name = "sizes"
    kind = "histogram"
    table = "t"
    x = "n"
    x_end = "m"
    y = ["m"]
    [[plot]]
    name = "numbers"
    kind = "histogram"
    table = "t"
    x = "m"
    x_end = "n"
    y = ["n"]
"#;

/// Returns the manifest of a module that declares plots.
fn manifest(module: &str) -> Option<Manifest> {
    let text = match module {
        "rtt" => include_str!("../../../../modules/rtt/module.toml"),
        "count" => include_str!("../../../../modules/count/module.toml"),
        "worm" => include_str!("../../../../modules/worm/module.toml"),
        "ids" => include_str!("../../../../modules/ids/module.toml"),
        "kinds" => KINDS,
        _ => return None,
    };
    Some(Manifest::parse(text.as_bytes()).unwrap())
}

fn plotter(module: &str) -> Plotter {
    Plotter::new([(module, manifest(module).as_ref())]).unwrap()
}

/// Returns the pictures of JSON records of one module, drawn next to an empty run.
fn pictures(module: &str, records: &[Value]) -> (Vec<flame_plot::Picture>, Vec<String>) {
    let mut plotter = plotter(module);
    let lines: String = records.iter().map(|r| format!("{r}\n")).collect();
    plotter.beside("run", lines.as_bytes()).unwrap();
    plotter.pictures()
}

fn svg(module: &str, records: &[Value]) -> String {
    let (pictures, missing) = pictures(module, records);
    assert_eq!((pictures.len(), missing.len()), (1, 0), "{missing:?}");
    String::from_utf8(render(&pictures, Format::Svg).unwrap()).unwrap()
}

/// Returns the number in an attribute of an SVG element.
fn number(element: &str, name: &str) -> f64 {
    let from = element.find(&format!("{name}=\"")).unwrap() + name.len() + 2;
    let text = &element[from..];
    text[..text.find('"').unwrap()].parse().unwrap()
}

fn bin(lower: u64, upper: u64, connections: u64) -> Value {
    json!({"module": "rtt", "table": "histogram", "lower_ns": lower, "upper_ns": upper, "connections": connections})
}

#[test]
fn a_bar_is_as_high_as_its_record() {
    let picture = svg("rtt", &[bin(1_000_000, 2_000_000, 100), bin(2_000_000, 4_000_000, 25)]);
    let blue = |e: &&str| e.starts_with("rect") && e.contains("fill=\"#0072B2\"");
    // The box in the legend is the smallest.
    let mut heights: Vec<f64> = picture.split('<').filter(blue).map(|e| number(e, "height")).collect();
    heights.sort_by(f64::total_cmp);
    assert_eq!(heights.len(), 3, "{picture}");
    assert!((heights[2] / heights[1] - 4.0).abs() < 0.1, "{heights:?}");
    for text in ["Round-trip times of TCP handshakes", "125 connections", "1 ms"] {
        assert!(picture.contains(text), "{text}: {picture}");
    }
}

fn handshake(rtt_ns: i64) -> Value {
    json!({"module": "rtt", "table": "handshake", "rtt_ns": rtt_ns})
}

#[test]
fn bins_without_a_place_on_a_logarithmic_axis_are_at_its_edge() {
    let bins = [bin(0, 4096, 10_257), bin(4096, 8192, 20_000), bin(1 << 36, i64::MAX as u64, 3)];
    let (all, _) = pictures("rtt", &bins);
    let flame_plot::Shape::Boxes(boxes) = &all[0].series[0].shape else { panic!("no bars") };
    let heights: Vec<_> = boxes.iter().map(|[_, low, _, high]| high - low).collect();
    assert_eq!(heights, [10_257.0, 20_000.0, 3.0]);
    let [left, middle, right] = boxes[..] else { panic!("{boxes:?}") };
    assert!(left[2] <= middle[0] && middle[2] <= right[0], "{boxes:?}");
    let widths: Vec<_> = boxes.iter().map(|b| b[2] - b[0]).collect();
    assert!(widths.iter().all(|width| (width - widths[1]).abs() < 1e-9), "{widths:?}");
    assert_eq!(
        all[0].notes,
        [
            "leftmost bar: 10,257 connections from 0 to 4.096 µs",
            "rightmost bar: 3 connections from 1 min 8.719 s on"
        ]
    );
    assert_eq!(all[0].series[0].name, "run: 30,260 connections, median between 4.096 µs and 8.192 µs");
    // Bins without a place on the axis are counted in a note.
    let (all, _) = pictures("rtt", &[bin(10, 20, 5), bin(30, 20, 7)]);
    let expected = "run: not in the picture: 1 bins with 7 connections, which have no place on this axis";
    assert_eq!(all[0].notes, [expected]);
    // One bin alone is drawn.
    let (all, _) = pictures("rtt", &[bin(0, 4096, 9)]);
    assert_eq!(all[0].notes, ["leftmost bar: 9 connections from 0 to 4.096 µs"]);
}

#[test]
fn statistics_come_from_the_records() {
    let bins = [bin(16_777_216, 33_554_432, 4)];
    let values = [20_210_000, 20_300_000, 25_000_000, 33_000_000].map(handshake);
    let (all, _) = pictures("rtt", &[&bins[..], &values[..]].concat());
    // As DuckDB: median 22.65 ms, quantile_cont(0.99) 32.76 ms.
    assert_eq!(all[0].series[0].name, "run: 4 connections, median 22.65 ms, 99 % up to 32.76 ms");
    let (all, _) = pictures("rtt", &[&bins[..], &values[..3]].concat());
    assert!(all[0].series[0].name.contains("median 20.3 ms"), "{}", all[0].series[0].name);
}

#[test]
fn values_that_are_no_numbers_are_counted() {
    let row = |ts_ns: Value, n: Value| json!({"module": "kinds", "table": "t", "ts_ns": ts_ns, "path": "p", "n": n, "m": 1.0, "d": 5});
    let rows = [row(1.into(), 1.into()), row(Value::Null, 2.into()), row(3.into(), Value::Null)];
    let (all, _) = pictures("kinds", &rows);
    let expected = "1 values are no numbers and not in the picture".to_owned();
    let of = |title: usize| &all[title].notes;
    assert!(of(0).contains(&expected) && of(1).contains(&expected) && of(2).contains(&expected), "{all:?}");
    assert!(of(2).contains(&"3 in all, each bar 16.667 ms".to_owned()), "{:?}", of(2));
    let series = &all[2].series[0];
    assert_eq!(series.name, "t: 2");
}

#[test]
fn png_has_its_size_and_the_series_colours() {
    let (all, _) = pictures("rtt", &[bin(1_000_000, 2_000_000, 100)]);
    let file = render(&all, Format::Png).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), (1840, 1000));
    let near = |p: &&[u8]| p[0] < 40 && p[1].abs_diff(120) < 20 && p[2].abs_diff(185) < 20;
    assert!(pixels.chunks(3).filter(near).count() > 10_000);
    assert_eq!(render(&all, Format::Png).unwrap(), file, "the same records, the same bytes");
}

#[test]
fn a_terminal_is_never_overrun() {
    let (all, _) = pictures("rtt", &[bin(1_000_000, 2_000_000, 100), bin(2_000_000, 4_000_000, 25)]);
    for columns in [40, 80, 133] {
        let plain = text(&all, columns, false);
        assert!(plain.lines().all(|l| l.chars().count() <= columns), "{columns}: {plain}");
        assert!(!plain.contains('\u{1b}') && plain.contains('█'), "{plain}");
    }
    assert!(text(&all, 80, true).contains('\u{1b}'));
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let error = Plotter::new([("http", None), ("anonymize", None)]).err().unwrap().to_string();
    assert!(error.contains("http, anonymize") && error.contains("[[plot]] in module.toml"), "{error}");
    let error = plotter("kinds").only("pie").err().unwrap().to_string();
    assert_eq!(error, "there is no plot \"pie\"; there are grouped, points, events, sizes, numbers");
    let (none, missing) = pictures("count", &[]);
    assert!(none.is_empty() && missing[0].contains("--interval"), "{missing:?}");
    let mut plotter = plotter("rtt");
    let wrong = "{\"module\":\"rtt\",\"table\":\"histogram\",\"lower_ns\":\"x\"}\n";
    let error = plotter.beside("old", wrong.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("old:1: "), "{error}");
    assert!(Format::of("x.jpg".as_ref()).is_err());
}

#[test]
fn more_rows_than_are_kept_are_counted_in_the_picture() {
    let line = format!("{}\n", json!({"module": "worm", "table": "first", "ts_ns": 1, "worm": "w"}));
    let mut plotter = plotter("worm");
    plotter.beside("run", line.repeat(ROWS + 3).as_bytes()).unwrap();
    let (all, _) = plotter.pictures();
    assert!(all[0].notes.iter().any(|n| n.contains("3 more")), "{:?}", all[0].notes);
}

#[test]
fn a_declared_line_has_its_columns_its_words_and_its_groups() {
    let row = |end_ns: u64, tcp: u64| {
        json!({"module": "count", "table": "interval", "end_ns": end_ns * 1_000_000_000, "packets": 5,
            "tcp": tcp, "udp": 0, "icmp": 0, "sctp": 0})
    };
    let (all, _) = pictures("count", &[row(10, 0), row(20, 3), row(30, 4)]);
    let names: Vec<_> = all[0].series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["all", "TCP"], "protocols without packets need no line");
    assert_eq!((&all[0].title[..], &all[0].y.label[..]), ("Packets over time", "packets"));
    assert_eq!(all[0].notes, ["always 0: UDP, ICMP, SCTP", "a point each 10 s (median)"]);
    let row = |ts_ns: u64, path: &str| {
        let (n, m) = (3, 10.0);
        json!({"module": "kinds", "table": "t", "ts_ns": ts_ns, "path": path, "n": n, "m": m, "d": 2_000_000})
    };
    let rows: Vec<_> = (0..16).map(|n| row(n, &format!("p{}", n % 8))).collect();
    let (all, missing) = pictures("kinds", &rows);
    assert_eq!((all.len(), missing.len()), (4, 1), "bins from 10 to 3 are none: {missing:?}");
    assert_eq!((all[0].series.len(), &all[0].y.label[..]), (6, "delay (ms)"));
    assert!(all[0].notes.contains(&"the 6 with most records; 2 more are not in the picture".to_owned()));
    assert_eq!((all[1].series.len(), &all[1].x.label[..], &all[1].title[..]), (2, "d (ms)", "of all kinds"));
    assert_eq!(all[2].series[0].name, "t: 16");
    assert_eq!(
        (&all[3].x.label[..], &all[3].series[0].name[..]),
        ("bytes", "run: 160 m, median between 3 and 10")
    );
    let mut plotter = plotter("kinds").only("events").unwrap();
    plotter.beside("run", format!("{}\n", rows[0]).as_bytes()).unwrap();
    assert_eq!(plotter.pictures().0.len(), 1);
}

/// Returns numbers as records have them, and others.
fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0u64..5).prop_map(Value::from),
        Just(Value::Null),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Numbers of any size and texts of any kind give a picture or none, and never a panic.
    #[test]
    fn any_records_are_drawn(
        which in 0usize..chart::ALL.len() + 5,
        rows in prop::collection::vec((prop::collection::vec(any_number(), 12), "\\PC{0,12}"), 0..12),
        columns in 0usize..200,
    ) {
        let declared = which.checked_sub(chart::ALL.len()).map(|n| ["rtt", "count", "worm", "ids", "kinds"][n]);
        let module = declared.unwrap_or_else(|| chart::ALL[which].module);
        let tables: Vec<(String, Vec<String>)> = match declared.and_then(manifest) {
            Some(m) => {
                let columns = |t: &flame_abi::manifest::Table| t.columns.iter().map(|c| c.name.clone()).collect();
                m.tables.iter().map(|t| (t.name.clone(), columns(t))).collect()
            }
            None => {
                let columns = |t: &chart::Table| t.columns.iter().map(|c| (*c).to_owned()).collect();
                chart::ALL[which].tables.iter().map(|t| (t.name.to_owned(), columns(t))).collect()
            }
        };
        let words = ["path", "worm", "msg", "series", "src", "dst", "end"];
        let records: Vec<Value> = rows
            .iter()
            .flat_map(|(numbers, word)| tables.iter().map(move |(table, columns)| {
                let mut row = json!({"module": module, "table": table});
                for (column, number) in columns.iter().zip(numbers.iter().cycle()) {
                    let is_word = words.contains(&column.as_str());
                    row[column] = if is_word { word.as_str().into() } else { number.clone() };
                }
                row
            }))
            .collect();
        let (all, _) = pictures(module, &records);
        let picture = String::from_utf8(render(&all, Format::Svg).unwrap()).unwrap();
        prop_assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        prop_assert!(!picture.contains("NaN") && !picture.contains("inf\""));
        text(&all, columns, true);
    }
}
