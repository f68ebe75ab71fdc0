//! The meaning of configurations, and the texts of their errors.

use flame_graph::{Graph, Options, read, unbounded_cycles};
use proptest::prelude::*;

fn flat(text: &str) -> String {
    match read(text.as_bytes(), "f", &Options::default()) {
        Ok(graph) => graph.unparse(),
        Err(errors) => panic!("{text}\n{errors}"),
    }
}

/// Returns the connections, one a line, sorted.
fn connections(text: &str) -> Vec<String> {
    let graph = read(text.as_bytes(), "f", &Options::default()).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let name = |e: usize| &graph.elements[e].name;
    let mut all: Vec<_> = graph
        .connections
        .iter()
        .map(|c| {
            format!("{}[{}] -> [{}]{}", name(c.from.element), c.from.port, c.to.port, name(c.to.element))
        })
        .collect();
    all.sort();
    all
}

fn errors(text: &str) -> String {
    read(text.as_bytes(), "f", &Options::default()).expect_err(text).to_string()
}

#[test]
fn chains_ports_and_names() {
    let text = "s :: Src(1, \"a)b\") -> [1] q1 :: Q [2] -> Sink; Q -> s;";
    assert_eq!(
        flat(text),
        "s :: Src(1, \"a)b\");\nq1 :: Q;\nSink@3 :: Sink;\nQ@4 :: Q;\n\n\
         q1 [2] -> Sink@3;\nQ@4 -> s\n    -> [1] q1;\n"
    );
    assert_eq!(flat("/* c */ a, b :: C; // x\n a->b->a;"), "a :: C;\nb :: C;\n\na -> b\n    -> a;\n");
}

#[test]
fn commas_and_double_arrows_connect_many() {
    assert_eq!(connections("a, b, c :: X; a -> b, [3] c;"), ["a[0] -> [0]b", "a[0] -> [3]c"]);
    assert_eq!(connections("a, b, c :: X; a, b [2] -> c;"), ["a[0] -> [0]c", "b[2] -> [0]c"]);
    assert_eq!(connections("a, b, c :: X; a => b, c;"), ["a[0] -> [0]b", "a[1] -> [0]c"]);
    assert_eq!(connections("a, b, c :: X; a, b => c;"), ["a[0] -> [0]c", "b[0] -> [1]c"]);
    assert_eq!(connections("a, b :: X; a [2,5] => [7,1] b;"), ["a[2] -> [7]b", "a[5] -> [1]b"]);
    assert_eq!(connections("a, b :: X; a [] => [4,6] b;"), ["a[0] -> [4]b", "a[1] -> [6]b"]);
    assert_eq!(connections("a, b :: X; a => b;"), ["a[0] -> [0]b"]);
}

#[test]
fn groups_share_the_names_around_them() {
    assert_eq!(
        connections("a :: X; a => ( -> b :: Y -> ), ( [0] -> [1]; [1] -> c :: Y -> [0] ) => d :: Z;"),
        ["a[0] -> [0]b", "a[1] -> [1]d", "a[2] -> [0]c", "b[0] -> [2]d", "c[0] -> [0]d"]
            .map(str::to_owned)
            .to_vec()
            .into_iter()
            .map(|s| s.replace("a[1] -> [1]d", "a[1] -> [2]d").replace("b[0] -> [2]d", "b[0] -> [0]d"))
            .map(|s| s.replace("c[0] -> [0]d", "c[0] -> [1]d"))
            .collect::<Vec<_>>()
    );
    assert_eq!(
        connections("a, b :: X; a -> (->) -> b; a [1] -> { [0] -> [0] } -> [1] b;"),
        ["a[0] -> [0]b", "a[1] -> [1]b"]
    );
}

#[test]
fn compounds_have_parameters_scope_and_overloads() {
    let text = "elementclass Two { $a, $b | input -> One($a) -> Two($b) -> output }
        elementclass F { $x | input -> A($x) -> output || $x, KEY $y, __REST__ $r | input -> B($r, $y, $x) -> output
           || input [1] -> C -> output }
        elementclass F { $x, $y | input -> D($y) -> output || ... }
        s :: S -> Two(p, \"q\") -> F(1) -> F(1, 2, KEY 3, 4) -> F(1, 2) -> f :: F; S [1] -> [1] f -> T;";
    let graph = read(text.as_bytes(), "f", &Options::default());
    let text_of = |g: &Graph| {
        g.elements.iter().map(|e| format!("{}({})", e.name, e.config)).collect::<Vec<_>>().join(" ")
    };
    // An input that a compound lacks is an error, here in the last overload.
    let error = graph.unwrap_err().to_string();
    assert_eq!(error, "f:5: 'f :: F' has no input 0");
    let text = text.replace("-> f :: F; S [1]", "-> T; S [1]").replace("[1] f ->", "[1] f :: F ->");
    let graph = read(text.as_bytes(), "f", &Options::default()).unwrap();
    assert_eq!(
        text_of(&graph),
        "s() T@6() S@7() T@9() Two@2/One@1(p) Two@2/Two@2(\"q\") F@3/A@1(1) F@4/B@1(2, 4, 3, 1) F@5/D@1(2) f/C@1()"
    );
}

#[test]
fn variables_are_lexical() {
    let text = "define($v top, $w $v/2)
        elementclass In { $a | E($a, $v) }
        elementclass Out { $v | In($v); elementclass Deep { F($v, $w) } Deep }
        Out(arg);";
    assert_eq!(flat(text), "Out@1/In@1/E@1 :: E(arg, top);\nOut@1/Deep@2/F@1 :: F(arg, top/2);\n");
    let options = Options { variables: vec![("v".into(), "set".into())], ..Options::default() };
    let graph = read(b"define($v top) E($v)", "f", &options).unwrap();
    assert_eq!(graph.elements[0].config, "set");
}

#[test]
fn errors_have_a_place_and_what_was_expected() {
    for (text, wanted) in [
        ("a :: X;\na :: Y;", "f:2: redeclaration of element 'a'\nf:1: element 'a' previously declared here"),
        ("a :: X;\n\na -> ;", "f:3: syntax error near ';': expected an element"),
        ("-> a;", "f:1: syntax error near '->'"),
        ("a :: X(1, (2);", "f:1: syntax error: expected ')' before end of file"),
        ("elementclass C { input -> X -> output", "f:1: syntax error: expected '}' before end of file"),
        ("a, b :: X;\na [0,1,2] -> [0,1,2] b", "f:2: syntax error: many-to-many connections require '=>'"),
        ("a, b :: X; a [0,1] => [0,1,2] b", "f:1: connection mismatch: 2 outputs connected to 3 inputs"),
        ("a, b :: X; a [] => [] b", "f:1: at most one expandable port allowed per connection"),
        ("elementclass F {\n A -> B;\n}\nA :: Idle;", "f:4: class 'A' used as element name"),
        ("a :: X\n[b] -> Y;", "f:2: syntax error: expected a port number below 65536, found 'b'"),
        (
            "elementclass F { input -> X -> output }\nf :: F -> f;\nf [1] -> Y;",
            "f:2: 'f :: F' has no output 1",
        ),
        (
            "elementclass F { input [1] -> X -> output }\nY -> f :: F -> Y;",
            "f:2: 'f :: F' has no input 0\nf:2: 'f :: F' input 1 unused",
        ),
        ("elementclass F { -> } X -> f :: F -> f;", "f:1: connections form a cycle without an element"),
        ("define(x 1)", "f:1: define: expected '$NAME VALUE', found 'x 1'"),
        ("require(library x)", "f:1: library 'x' cannot be read here"),
        ("# 70 \"other\"\na :: ;", "other:70: syntax error near ';': expected an element class"),
        (
            "elementclass F { ... }",
            "f:1: cannot extend unknown element class 'F'\nf:1: '...' should occur last, after one or more compounds",
        ),
        ("elementclass F { $a, $a | X }", "f:1: repeated formal parameter '$a'"),
    ] {
        assert_eq!(errors(text), wanted, "{text}");
    }
}

type Opened = Result<(String, Box<dyn std::io::Read>), String>;

fn opened(name: &str, bytes: &'static [u8]) -> Opened {
    Ok((name.to_owned(), Box::new(bytes)))
}

#[test]
fn libraries_are_read_once_and_relative_to_what_requires_them() {
    let load = |name: &str, from: &str| -> Opened {
        match (name, from) {
            ("lib", "f" | "three") => opened("lib", b"require(library sub) elementclass A { B }"),
            ("sub", "lib") => opened("dir/sub", b"elementclass B { I }"),
            ("three", "f") => opened("three", b"require(library lib)"),
            ("endless", "f") => Ok(("endless".into(), Box::new(std::io::repeat(b' ')))),
            ("half", "f") => opened("half", &[b' '; 9 << 20]),
            ("other half", "f") => opened("other half", &[b' '; 9 << 20]),
            _ => Err("no such file".to_owned()),
        }
    };
    let options = Options { library: Some(&load), ..Options::default() };
    let graph = read(b"require(library lib, library three, compact_config)\na :: A;", "f", &options).unwrap();
    assert_eq!(graph.unparse(), "require(compact_config);\n\na/B@1/I@1 :: I;\n");
    assert_eq!(
        read(b"\nrequire(library none)", "f", &options).unwrap_err().to_string(),
        "f:2: library 'none': no such file"
    );
    // All texts together are limited; an endless one is not read to its end.
    for text in ["require(library endless)", "require(library half, library \"other half\")"] {
        let errors = read(text.as_bytes(), "f", &options).unwrap_err().to_string();
        assert!(errors.contains("': longer than the limit of"), "{errors}");
    }
}

#[test]
fn hostile_texts_meet_limits() {
    let doubling: String =
        (1..40).map(|n| format!("elementclass C{n} {{ C{}; C{} }}\n", n - 1, n - 1)).collect();
    let fan: String = (1..24)
        .map(|n| {
            format!("elementclass F{n} {{ input -> a::F{0} -> output; input -> b::F{0} -> output }}\n", n - 1)
        })
        .collect();
    let long: String = (1..40).map(|n| format!("define($v{n} $v{0}$v{0}$v{0})\n", n - 1)).collect();
    let doubled: String = (1..17).map(|n| format!("define($a{n} $a{0}$a{0})\n", n - 1)).collect();
    let copies: String = (0..20_000).map(|n| format!("define($b{n} $a16)\n")).collect();
    for (text, wanted) in [
        ("{".repeat(100_000), "nested deeper than the limit of 64 levels"),
        ("elementclass A {".repeat(100_000), "nested deeper than the limit of 64 levels"),
        ("a -> ((((".repeat(50_000), "nested deeper than the limit of 64 levels"),
        (format!("elementclass C0 {{ X }}\n{doubling}C39;"), "more elements than the limit of 65536"),
        (format!("elementclass F0 {{ input -> output }}\n{fan}X -> F23 -> X;"), "limit"),
        (format!("define($v0 0123456789)\n{long}X($v39)\nX($v12)"), "value of '$v11' longer than 1 MiB"),
        // Each value is short enough, but not all together.
        (format!("define($a0 aaaaaaaaaaaaaaaa)\n{doubled}{copies}"), "exceed 134217728 bytes"),
        (
            format!(
                "elementclass In {{ define($a0 aaaaaaaaaaaaaaaa)\n{doubled} X }} In; {}",
                "In;".repeat(2000)
            ),
            "exceed 134217728 bytes",
        ),
        // Compounds and overloads are stored and tried.
        (format!("elementclass A {{ {} }}", "$x,$y| ||".repeat(500_000)), "exceed 134217728 bytes"),
        (
            format!("elementclass A {{ {}$x | }} {}", "$x,$y| ||".repeat(100_000), "A;".repeat(50_000)),
            "more than the limit of 268435456 steps",
        ),
        (format!("a :: X; b :: X; a [{}] -> b", "1,".repeat(1_000_000)), "more connections than"),
        (
            format!("a :: X; b :: X; {} => b", "([65535] -> [65535]), ".repeat(2000) + "a"),
            "more connections than",
        ),
        (format!("a :: X; {} -> a", "a, ".repeat(3_000_000)), "exceed 134217728 bytes"),
        (format!("define({})", ",".repeat(5_000_000)), "arguments longer than 1 MiB"),
        (format!("# 1 \"{}\"\n{}", "f".repeat(1 << 20), "x;".repeat(5000)), "exceed 134217728 bytes"),
        (
            "a :: X; a [65535] -> [65535] a; b :: X; b [65535] -> [65535] b; c :: X; c -> d :: X".into(),
            "more ports than the limit of 262144",
        ),
        (format!("X($q) define($q {}) ", "'".repeat(1000)), ""),
        ("x ".repeat(70_000), "more elements than the limit of 65536"),
        ("a [".repeat(70_000), "expected a port number"),
        ("X(".repeat(100_000), "expected ')'"),
        ("a, ".repeat(100_000), "more elements than the limit of 65536"),
        ("(->) -> ".repeat(30_000), ""),
    ] {
        let start = std::time::Instant::now();
        let result = read(text.as_bytes(), "f", &Options::default());
        if !wanted.is_empty() {
            let errors = result.expect_err(wanted).to_string();
            assert!(errors.contains(wanted), "{} … {errors:.300}", &text[..20]);
        }
        assert!(start.elapsed().as_secs() < 10, "{} took {:?}", &text[..20], start.elapsed());
    }
}

#[test]
fn cycles_are_found_unless_something_bounds_them() {
    let text = "a -> b :: B -> c :: C -> b; a :: A; d :: Loop(3) -> e :: E -> d; f :: F -> f;"
        .replace("a -> b ::", "a :: A -> b ::")
        .replace(" a :: A;", "");
    let graph = read(text.as_bytes(), "f", &Options::default()).unwrap();
    let cycles = unbounded_cycles(&graph, &|e| e.class == "Loop");
    let names: Vec<_> = cycles.iter().map(|c| c.names(&graph)).collect();
    assert_eq!(names, ["b -> c -> b", "f -> f"]);
}

prop_compose! {
    fn graphs()(
        classes in prop::collection::vec("[A-Z][a-z0-9]{0,6}", 1..12),
        configs in prop::collection::vec("(([a-z0-9 ]{0,8}|\"([a-z,)( ]|\\\\\\\\){0,8}\"|\\\\<0[0-9a-f]>)(,|/\\*[)(a,'\"]{0,3}\\*/|//[)(a,'\"]{0,3}\n| // c|)){0,3}", 12),
        links in prop::collection::vec((0..12_usize, 0..4_usize, 0..12_usize, 0..4_usize), 0..30),
    ) -> String {
        let mut text = String::new();
        for (i, class) in classes.iter().enumerate() {
            text.push_str(&format!("e{i} :: {class}({}\n);\n", configs[i]));
        }
        for (a, p, b, q) in links {
            text.push_str(&format!("e{} [{p}] -> [{q}] e{};\n", a % classes.len(), b % classes.len()));
        }
        text
    }
}

proptest! {
    #[test]
    fn the_flat_form_reads_back_as_the_same_graph(text in graphs()) {
        let first = read(text.as_bytes(), "f", &Options::default()).unwrap();
        let printed = first.unparse();
        let again = read(printed.as_bytes(), "f", &Options::default()).unwrap_or_else(|e| panic!("{printed}\n{e}"));
        // Comments are left out; the arguments are the same.
        let arguments = |e: &flame_graph::Element| flame_click::text::split(&e.config);
        let elements = |g: &Graph| g.elements.iter().map(|e| (e.name.clone(), e.class.clone(), arguments(e))).collect::<Vec<_>>();
        let links = |g: &Graph| { let mut l: Vec<_> = g.connections.iter().map(|c| (c.from, c.to)).collect(); l.sort(); l };
        prop_assert_eq!(elements(&first), elements(&again));
        prop_assert_eq!(links(&first), links(&again));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "([a-c]|::|->|=>|[|{}()\\[\\],;]|\\|\\||\\.\\.\\.|elementclass |input|output|\\$[ab]|\"|\\\\|[0-2]| ){0,60}") {
        let _ = read(text.as_bytes(), "f", &Options::default());
    }
}
