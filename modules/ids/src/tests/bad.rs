//! Rule sets of every bad kind: bounded, counted, listed.

use super::*;
use crate::rule::start::{BEYOND, BEYOND_MEMORY};

const RULE: &str = "alert tcp any any -> any any";

/// Returns `count` rules, each with its options.
fn rules(count: usize, options: impl Fn(usize) -> String) -> String {
    (1..=count).map(|sid| format!("{RULE} ({} sid:{sid};)\n", options(sid))).collect()
}

/// Returns the reasons for which rules do not run, with their numbers, and checks that none is forgotten.
fn reasons(engine: &Engine) -> Vec<(&str, u64)> {
    let set = &engine.set;
    let refused: u64 = set.kinds.values().sum();
    assert_eq!(engine.rules() as u64 + refused, set.total);
    assert!(set.unsupported.len() as u64 + set.unlisted >= refused);
    set.kinds.iter().map(|(kind, count)| (kind.as_str(), *count)).collect()
}

#[test]
fn a_start_has_an_end_for_rules_of_every_kind() {
    let alternatives: Vec<_> = (0..2000).map(|i| format!("abc{i}")).collect();
    let alternatives = alternatives.join("|");
    let exploding = engine(&rules(3000, |i| format!("pcre:\"/(.{{0,1000}}x){{50}}{i}/s\";")));
    assert_eq!(reasons(&exploding)[0].0, "pcre too large");
    let large = engine(&rules(1500, |i| format!("pcre:\"/(.{{0,100}}x){{20}}{i}/s\";")));
    let found = reasons(&large);
    assert!(matches!(found[..], [(BEYOND, 400..800)]), "{found:?}");
    let wide = engine(&rules(60, |i| format!("pcre:\"/({alternatives}){i}/i\";")));
    let found = reasons(&wide);
    assert!(found.iter().all(|(kind, _)| *kind == "pcre too large" || *kind == BEYOND), "{found:?}");
    // Lists of their own for each rule, and one list for all.
    let ports = |i: usize| (0..500).map(|j| (j * 2 + i % 2).to_string()).collect::<Vec<_>>().join(",");
    let lists: String =
        (1..=5500).map(|i| format!("alert tcp any [{}] -> any any (sid:{i};)\n", ports(i))).collect();
    let found = engine(&lists);
    assert!(found.rules() > 3000, "{:?}", reasons(&found));
    let addresses: Vec<_> = (0..60_000).map(|i| format!("10.{}.{}.1", i >> 8, i & 255)).collect();
    let shared: String = (1..=300).map(|i| format!("alert tcp $ALL any -> any any (sid:{i};)\n")).collect();
    let shared = engine(&format!("ipvar ALL [{}]\n{shared}", addresses.join(",")));
    let found = reasons(&shared);
    assert!(matches!(found[..], [(BEYOND, 200..300)]), "{found:?}");
    let nested: String =
        (0..200).map(|i| format!("alert tcp [$ALL,1.1.{i}.1] any -> any any (sid:{};)\n", i + 1)).collect();
    let nested = engine(&format!("ipvar ALL [{}]\n{nested}", addresses.join(",")));
    let found = reasons(&nested);
    assert!(found.iter().any(|(kind, _)| *kind == "lists too large together"), "{found:?}");
}

#[test]
fn long_lines_and_lists_are_refused_by_name() {
    let list = vec!["1.1.1.1"; 110_000].join(",");
    let text = format!(
        "{RULE} (msg:\"{}\"; sid:1;)\nalert tcp [{list}] any -> any any (sid:2;)\n{RULE} (sid:3;)\n{}\n\
         {RULE} (sid:4;)",
        "x".repeat(2 << 20),
        format!("{RULE} (msg:\"x\"; \\\n").repeat(40_000),
    );
    let engine = engine(&text);
    assert_eq!(reasons(&engine), [("line too long", 2), ("list too large", 1)]);
    let places: Vec<_> = engine.set.unsupported.iter().map(|u| u.line).collect();
    assert_eq!((engine.rules(), places), (2, vec![1, 2, 4]), "{:?}", engine.set.unsupported);
}

#[test]
fn comments_and_names_of_files_are_cheap_and_bounded() {
    let comments = "#\n".repeat(4_500_000);
    let found = engine(&format!("{comments}{RULE} (sid:1;)\n"));
    assert_eq!((found.rules(), found.set.total), (1, 1));
    let files: String = (0..100_000).map(|i| format!("#!file {i}\n")).collect();
    let engine = engine(&format!("{files}{RULE} (sid:1;)\n{RULE} (sid:1;)"));
    assert!(engine.set.files.len() <= 65_536 && engine.rules() == 1);
}

#[test]
fn a_mark_at_the_beginning_of_a_file_is_skipped() {
    let text = format!("\u{feff}{RULE} (sid:1;)\n#!file b\n\u{feff}{RULE} (sid:2;)\n");
    let engine = engine(&text);
    assert_eq!((engine.rules(), engine.set.unsupported.len()), (2, 0), "{:?}", engine.set.unsupported);
}

#[test]
fn classes_may_be_defined_after_their_rules() {
    let text = format!(
        "#!file a\n{RULE} (classtype:mine; sid:1;)\n{RULE} (classtype:trojan-activity; sid:2;)\n\
         {RULE} (classtype:mine; priority:4; sid:3;)\n#!file classification.config\n\
         config classification: mine,My own,2\n"
    );
    let set = parse(&text);
    let found: Vec<_> = set.rules.iter().map(|r| (&*r.class, r.priority)).collect();
    assert_eq!(found, [("My own", 2), ("A Network Trojan was detected", 1), ("My own", 4)]);
}

#[test]
fn lines_of_variables_that_are_not_understood_are_listed() {
    let found = |vars: &str| {
        let set = rule::load(&Source { vars, ..Source::default() });
        set.unsupported.iter().map(|u| u.line).collect::<Vec<_>>()
    };
    assert_eq!(found("A = 1.2.3.4\nB = 1.2.3.4/33\nvars: [1,2\nC = ../rules\nD 80"), [2, 3, 4]);
    let yaml =
        "vars:\n  address-groups:\n    A: \"[1.2.3.4/33]\"\n    nothing\n  port-groups:\n    P: 80\nrest\n";
    assert_eq!(found(yaml), [3, 4]);
}

#[test]
fn address_lists_share_one_index() {
    // As many as a rule set of reputations has; what a packet costs does not depend on their number.
    let cost = |lists: usize| {
        let text: String = (0..lists)
            .map(|i| {
                let list: Vec<_> = (0..50).map(|j| format!("20.{i}.{j}.0/24")).collect();
                format!("alert ip [{}] any -> any any (sid:{};)\n", list.join(","), i + 1)
            })
            .collect();
        let mut engine = engine(&text);
        assert_eq!(run(&mut engine, &[to(80, b"")]), [Vec::<u32>::new()]);
        assert_eq!(engine.rules(), lists);
        engine.spent
    };
    let (few, many) = (cost(2), cost(142));
    assert!(many <= few, "{few} {many}");
}

#[test]
fn lists_are_cut_to_what_an_operator_lets_out() {
    let lines = 100_000;
    let text = "alert tcp any x\n".repeat(lines);
    let parameters = Parameters::of(tables::Params::DEFAULTS).with("rules", text.as_bytes());
    let mut native = Native::<Ids>::new(&parameters, 0);
    native.end(0);
    let numbers: Vec<u16> = native.rows.iter().map(|r| r.table).collect();
    assert_eq!(numbers[..3], [3, 2, 2], "state, summary, what is not listed");
    assert_eq!(numbers.len(), 3 + MOST_LISTED);
    let state: tables::State = native.of()[0];
    assert_eq!(state.unlisted as usize, lines - MOST_LISTED);
    let notices: Vec<tables::Notice> = native.of();
    assert!(notices[1].text.starts_with("67,232 more lines are not listed"), "{}", notices[1].text);
}

#[test]
fn variables_that_stand_for_much_are_charged() {
    let addresses: Vec<_> = (0..60_000).map(|i| format!("10.{}.{}.1", i >> 8, i & 255)).collect();
    let mut text = format!("ipvar ALL [{}]\n", addresses.join(","));
    for i in 1..=400 {
        // A definition clears what was read, so each list is read again.
        text += &format!(
            "ipvar X 1.1.1.1\nalert tcp !$ALL any -> [$ALL,1.1.1.1] any (content:\"a\"; sid:{i};)\n"
        );
    }
    let found = engine(&text);
    assert!(found.set.start.spent() <= rule::start::MOST);
    assert!(found.rules() < 100, "{}", found.rules());
    assert!(reasons(&found).iter().all(|(kind, _)| *kind == "lists too large together" || *kind == BEYOND));
    let vars: String = (0..40_000).rev().map(|i| format!("A{} = $A{i}\n", i + 1)).collect();
    let set = rule::load(&Source { vars: &vars, ..Source::default() });
    assert!(set.start.spent() <= rule::start::MOST && !set.unsupported.is_empty());
}

#[test]
fn rules_that_memory_does_not_hold_are_listed() {
    let options =
        |i: usize| (0..13).map(|j| format!("pkt_data; content:\"{}\";", i * 13 + j)).collect::<String>();
    let engine = engine(&rules(60_000, options));
    let found = reasons(&engine);
    assert!(found.iter().any(|(kind, count)| *kind == BEYOND_MEMORY && *count > 1000), "{found:?}");
    assert!(engine.set.unsupported.iter().any(|u| u.kind == BEYOND_MEMORY));
}

#[test]
fn texts_that_no_record_holds_are_refused() {
    let long = "x".repeat(8193);
    let text = format!(
        "{RULE} (msg:\"{long}\"; sid:1;)\n{RULE} (metadata:{long}; sid:2;)\n{RULE} (classtype:{long}; sid:3;)\n\
         {RULE} (metadata:{0}; metadata:{0}; sid:4;)\n{RULE} (msg:\"{0}\"; metadata:{0}; sid:5;)\n\
         config classification: own,{long},1\n",
        &long[..8000]
    );
    let engine = engine(&text);
    let sids: Vec<_> = engine.set.unsupported.iter().map(|u| (u.line, u.sid)).collect();
    assert_eq!(
        (engine.rules(), sids),
        (1, vec![(1, 1), (2, 2), (3, 3), (4, 4), (6, 0)]),
        "{:?}",
        engine.set.kinds
    );
}

#[test]
fn bytes_that_are_not_utf8_are_refused_where_they_matter() {
    let text = format!(
        "{RULE} (msg:\"caf\u{fffd}\"; content:\"a\"; sid:1;)\n{RULE} (content:\"caf\u{fffd}\"; sid:2;)\n\
         {RULE} (pcre:\"/caf\u{fffd}/\"; sid:3;)\n"
    );
    let engine = engine(&text);
    assert_eq!(reasons(&engine), [("bytes that are no UTF-8", 2)]);
}

#[test]
fn policies_without_effect_are_listed() {
    let rules = "alert ip any any -> any any (sid:7;)";
    let thresholds = "suppress gen_id 0, sig_id 7
suppress gen_id 1, sig_id 99999
threshold gen_id 1, sig_id 7, type limit, track by_src, count 1, seconds 60
threshold gen_id 1, sig_id 7, type limit, track by_src, count 3, seconds 60
event_filter gen_id 0, sig_id 7, type limit, track by_src, count 1, seconds 60
suppress gen_id 1, sig_id 7, track by_src, ip 10.0.0.1
";
    let engine = of(Source { rules, thresholds, ..Source::default() });
    let lines: Vec<_> = engine.set.unsupported.iter().map(|u| u.line).collect();
    assert_eq!(lines, [1, 2, 3, 5], "{:?}", engine.set.unsupported);
}
