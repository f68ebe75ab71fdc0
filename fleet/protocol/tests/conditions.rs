//! Conditions over labels.

use flame_fleet_protocol::{Condition, Label, Labels};

fn labels() -> Labels {
    let text = |text: &str| Label::Text(text.to_owned());
    [("site", text("penn")), ("speed", Label::Number(10_000_000_000)), ("rack.row", Label::Number(3))]
        .map(|(name, label)| (name.to_owned(), label))
        .into()
}

#[test]
fn conditions_hold_as_they_read() {
    for (text, holds) in [
        ("", true),
        ("site = \"penn\" and speed >= 10G", true),
        ("site = \"penn\" and speed > 10G", false),
        ("site != \"mit\"", true),
        // `and` binds more than `or`, and `not` more than both.
        ("site = \"mit\" and speed > 1 or rack.row = 3", true),
        ("site = \"mit\" and (speed > 1 or rack.row = 3)", false),
        ("not site = \"mit\" and rack.row < 3", false),
        ("not (site = \"mit\" or rack.row < 3)", true),
        // What the node lacks, or has as another kind, is false.
        ("color != \"red\"", false),
        ("not color = \"red\"", true),
        ("site != 3", false),
        ("speed = 10000M", true),
    ] {
        assert_eq!(Condition::parse(text).unwrap().holds(&labels()), holds, "{text}");
    }
}

#[test]
fn faults_have_a_column_and_a_remedy() {
    for (text, error) in [
        ("site", "column 5: found the end, expected =, !=, <, <=, > or >="),
        ("site = penn", "column 8: found \"penn\", expected a number, or a text in \"\""),
        ("speed >= \"10G\"", "column 10: found the text \"10G\", expected a number, as 10G: only = and"),
        ("speed >= 10g", "column 10: found \"10g\", expected a whole number below 2^64"),
        ("speed >= 99999999999999999999", "column 10: found \"99999999999999999999\", expected a whole"),
        ("(a = 1", "column 7: found the end, expected and, or, or )"),
        ("a = 1 b = 2", "column 7: found \"b\", expected and, or, or the end"),
        ("a = \"x", "column 5: found a text without an end"),
        ("ä = 1", "column 1: found 'ä'"),
        ("and = 1", "column 1: found \"and\", expected the name of a label"),
    ] {
        let found = Condition::parse(text).unwrap_err().to_string();
        assert!(found.starts_with(error), "{text}: {found}");
    }
}

#[test]
fn conditions_are_bounded() {
    let deep = format!("{}a = 1{}", "(".repeat(17), ")".repeat(17));
    let nots = format!("{} a = 1", "not ".repeat(400));
    let wide = vec!["a = 1"; 65].join(" or ");
    let long = "a = 1 ".repeat(1000);
    for text in [deep, nots, wide, long] {
        let error = Condition::parse(&text).unwrap_err().to_string();
        assert!(error.contains("at most"), "{error}");
    }
    assert!(Condition::parse(&vec!["a = 1"; 64].join(" or ")).is_ok());
}
