//! Tests of every chart, with records of any values, for every target. Pictures must show the records'
//! values.

use flame_plot::{Format, Plotter, ROWS, chart, render, text};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Returns the pictures of JSON records of one module, drawn next to an empty run.
fn pictures(module: &str, records: &[Value]) -> (Vec<flame_plot::Picture>, Vec<String>) {
    let mut plotter = Plotter::new([module]).unwrap();
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
    let error = Plotter::new(["http", "anonymize"]).err().unwrap().to_string();
    assert!(error.contains("http, anonymize") && error.contains("rtt.histogram"), "{error}");
    let (none, missing) = pictures("count", &[]);
    assert!(none.is_empty() && missing[0].contains("--interval"), "{missing:?}");
    let mut plotter = Plotter::new(["rtt"]).unwrap();
    let wrong = "{\"module\":\"rtt\",\"table\":\"histogram\",\"lower_ns\":\"x\"}\n";
    let error = plotter.beside("old", wrong.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with("old:1: "), "{error}");
    assert!(Format::of("x.jpg".as_ref()).is_err());
}

#[test]
fn more_rows_than_are_kept_are_counted_in_the_picture() {
    let line = format!("{}\n", json!({"module": "worm", "table": "first", "ts_ns": 1, "worm": "w"}));
    let mut plotter = Plotter::new(["worm"]).unwrap();
    plotter.beside("run", line.repeat(ROWS + 3).as_bytes()).unwrap();
    let (all, _) = plotter.pictures();
    assert!(all[0].notes.iter().any(|n| n.contains("3 more")), "{:?}", all[0].notes);
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
        which in 0usize..chart::ALL.len(),
        rows in prop::collection::vec((prop::collection::vec(any_number(), 12), "\\PC{0,12}"), 0..12),
        columns in 0usize..200,
    ) {
        let chart = &chart::ALL[which];
        let words = ["path", "worm", "msg", "series", "src", "dst", "end"];
        let records: Vec<Value> = rows
            .iter()
            .flat_map(|(numbers, word)| chart.tables.iter().map(move |table| {
                let mut row = json!({"module": chart.module, "table": table.name});
                for (column, number) in table.columns.iter().zip(numbers) {
                    row[*column] = if words.contains(column) { word.as_str().into() } else { number.clone() };
                }
                row
            }))
            .collect();
        let (all, _) = pictures(chart.module, &records);
        let picture = String::from_utf8(render(&all, Format::Svg).unwrap()).unwrap();
        prop_assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        prop_assert!(!picture.contains("NaN") && !picture.contains("inf\""));
        text(&all, columns, true);
    }
}
