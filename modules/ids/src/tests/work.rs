//! Rule sets that use up the work of a packet by each kind of step. What they cost in WebAssembly is tested
//! by `crates/flame/tests/run/ids_budget.rs`.

use super::*;
use crate::engine::MOST_WORK;

#[path = "../../tests/shapes/mod.rs"]
mod shapes;

fn rules(count: usize, options: impl Fn(usize) -> String) -> String {
    (1..=count).map(|i| format!("alert tcp any any -> any any ({} sid:{i};)\n", options(i))).collect()
}

/// Returns the engine after one packet with this payload.
fn after(text: &str, payload: &[u8]) -> Engine {
    let mut engine = engine(text);
    run(&mut engine, &[to(80, payload)]);
    assert!(engine.spent <= MOST_WORK);
    engine
}

#[test]
fn work_of_every_kind_ends_the_packet_and_not_the_module() {
    let letters = [b'a'; 60_000];
    let x = [b"GET ".as_slice(), &[b'x'; 2000]].concat();
    let cases: [(&str, String, &[u8]); 9] = [
        ("states", rules(45, |i| format!("pcre:\"/(.{{0,100}}x){{20}}{i}/s\";")), &x),
        ("wide states", rules(64, |i| format!("pcre:\"/[\\x00-\\xff]{{1000}}{i}/\";")), &x),
        ("caches", rules(3000, |i| format!("pcre:\"/abc{i}/\";")), b"GET / HTTP/1.1"),
        ("bytes", rules(300, |i| format!("pcre:\"/abc{i}/\";")), &letters),
        ("starts", rules(20, |i| format!("pcre:\"/a/\"; pcre:\"/b{i}/R\";")), &letters),
        ("candidates", rules(24_000, |i| format!("content:\"GET\"; content:\"z{}\";", i % 10)), b"GET / z0"),
        ("hits", rules(24_000, |i| format!("content:\"a\"; fast_pattern; content:\"z{i}\";")), &letters),
        (
            "places",
            rules(50, |_| "content:\"a\"; content:\"a\"; distance:0; content:\"z\"; distance:0;".into()),
            &letters,
        ),
        ("compared", rules(50, |i| format!("content:\"{}b{i}\"; nocase;", "a".repeat(2000))), &letters),
    ];
    for (name, text, payload) in cases {
        let engine = after(&text, payload);
        assert_eq!(engine.counts.given_up, 1, "{name}");
    }
}

#[test]
fn the_rule_that_costs_most_is_named() {
    let mut text = rules(20, |i| format!("content:\"GET\"; content:\"z{i}\";"));
    text += "alert tcp any any -> any any (pcre:\"/[\\x00-\\xff]{1000}y/\"; sid:77;)\n";
    text += "alert tcp any any -> any any (pcre:\"/[\\x00-\\xff]{1000}z/\"; sid:78;)\n";
    let engine = after(&text, &[b'x'; 1400]);
    let costly: Vec<_> = engine.costly().iter().map(|(rule, packets)| (rule.sid, *packets)).collect();
    assert_eq!((engine.counts.given_up, costly), (1, vec![(77, 1)]));
}

#[test]
fn a_usual_packet_costs_little_of_its_work() {
    let mut text = rules(2000, |i| format!("content:\"GET\"; content:\"/path{i}\"; nocase; distance:1;"));
    text += &rules(300, |i| format!("content:\"/path{i}\"; pcre:\"/q=[a-f0-9]{{8,32}}(&|\\s|$)/Ri\";"))
        .replace("sid:", "gid:2; sid:");
    let payload = b"GET /path7/x?q=0123456789abcdef HTTP/1.1\r\nHost: www.example.org\r\n\r\n".repeat(20);
    let engine = after(&text, &payload);
    assert!(engine.spent < MOST_WORK / 2 && engine.counts.given_up == 0, "{}", engine.spent);
}

#[test]
fn ten_thousand_rules_cost_a_packet_little_more_than_a_thousand() {
    let payload = b"GET /index.html?id=42 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: a browser\r\n\r\n"
        .repeat(16);
    let cost = |count: usize| {
        let rules = shapes::rules(count, 0);
        let mut engine = of(Source { rules: &rules, vars: shapes::VARS, ..Source::default() });
        assert_eq!(engine.rules(), count);
        run(&mut engine, &[to(80, &payload)]);
        engine.spent
    };
    let (few, many) = (cost(1000), cost(10_000));
    assert!(many < few + few / 2, "{few} {many}");
    assert!(many < MOST_WORK / 200, "{many}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The search with a budget finds the same as a search without limits, for which `$` is the very end (E).
    #[test]
    fn expressions_find_what_another_search_finds(
        pattern in "(a|b|ab|a\\*|\\[ab\\]|\\(a\\|b\\)\\{1,3\\}|\\^|\\$|\\.|c\\?|\\\\b|x\\*\\?){1,6}",
        payload in "[abcx \n]{0,30}",
        anchored in any::<bool>(),
    ) {
        let rule = format!("alert tcp any any -> any any (content:\"S\"; pcre:\"/{pattern}/RE{}\"; sid:1;)",
            if anchored { "A" } else { "" });
        let mut engine = engine(&rule);
        prop_assume!(engine.rules() == 1);
        let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
        let other = regex_automata::hybrid::regex::Regex::builder().syntax(syntax).build(&pattern).unwrap();
        let mut cache = other.create_cache();
        let anchor = if anchored { regex_automata::Anchored::Yes } else { regex_automata::Anchored::No };
        let input = regex_automata::Input::new(payload.as_bytes()).anchored(anchor);
        let expected = other.try_search(&mut cache, &input).unwrap().is_some();
        let whole = format!("S{payload}");
        let found = run(&mut engine, &[to(80, whole.as_bytes()), to(80, whole.as_bytes())]);
        let found: Vec<_> = found.iter().map(|sids| !sids.is_empty()).collect();
        prop_assert_eq!(found, [expected; 2], "{}", rule);
    }
}
