//! Regular expressions mean what they mean in PCRE2, or are refused by name.

use super::*;

/// Returns whether an expression occurs in a payload, or the kind under which it is refused.
fn occurs(pcre: &str, payload: &[u8]) -> Result<bool, String> {
    let mut engine = engine(&format!("alert tcp any any -> any any (pcre:\"{pcre}\"; sid:1;)"));
    match engine.set.unsupported.first() {
        Some(refused) => Err(refused.kind.clone()),
        None => Ok(!run(&mut engine, &[to(80, payload)])[0].is_empty()),
    }
}

#[test]
fn constructs_mean_what_they_mean_in_pcre() {
    let cases: &[(&str, &[u8], bool)] = &[
        // Ends
        ("/q$/", b"q\n", true),
        ("/q$/", b"q", true),
        ("/q$/", b"q\n\n", false),
        ("/q$/E", b"q\n", false),
        ("/q$/m", b"q\nx", true),
        (r"/q\Z/", b"q\n", true),
        (r"/q\Z/E", b"q\n", true),
        (r"/q\z/", b"q\n", false),
        (r"/(?:a$|b)/", b"a\n", true),
        (r"/(?:a$|b)/", b"ac", false),
        ("/^b/m", b"a\nb", true),
        ("/^b/", b"a\nb", false),
        (r"/\Ab/m", b"a\nb", false),
        ("/b^a/", b"ba", false),
        // Repetitions that give nothing back
        ("/a++b/", b"aab", true),
        ("/a++ab/", b"aaab", false),
        ("/a*+a?$/", b"xaaa", true),
        ("/[ab]++b/", b"abab", false),
        ("/[ab]++[bc]/", b"ababc", true),
        ("/a?+ab/", b"ab", false),
        ("/a?+ab/", b"aab", true),
        ("/a{1,2}+a/", b"aa", false),
        ("/a{1,2}+a/", b"aaa", true),
        ("/a{2}+a/", b"aaa", true),
        ("/(?:ab)*+c/", b"ababc", true),
        ("/(?>fo+)=/", b"foo=", true),
        ("/(?>fo+)o/", b"fooo", false),
        ("/(?>a|ab)c/", b"abc", false),
        ("/(?>ab|a)c/", b"ac", true),
        ("/(?>ab|a)b/", b"ab", false),
        ("/(?>ab|a)b/", b"abb", true),
        ("/(?>foo|bar)=/", b"bar=", true),
        ("/(?>a*?)b/", b"aab", true),
        // Newlines
        (r"/a\Rb/", b"a\r\nb", true),
        (r"/a\Rb/", b"a\x0bb", true),
        (r"/a\Rb/", b"a\x85b", true),
        (r"/a\R\Rb/", b"a\r\nb", false),
        (r"/a\R\Rb/", b"a\r\n\r\nb", true),
        (r"/a\R\Rb/", b"a\r\rb", true),
        (r"/a\R{2}b/", b"a\n\nb", true),
        (r"/a\Nb/", b"a\nb", false),
        ("/a.b/", b"a\nb", false),
        ("/a.b/", b"a\rb", true),
        ("/a.b/s", b"a\nb", true),
        // Bytes
        (r"/\351\0\x41\x{42}\o{103}\x/", b"\xe9\0ABC\0", true),
        (r"/[\101-\103]{3}/", b"ABC", true),
        (r"/\cA\e\a\f/", b"\x01\x1b\x07\x0c", true),
        (r"/\Qa.b\E+/", b"a.bb", true),
        (r"/\Qa.b\E/", b"axb", false),
        (r"/[\Q^]\Ex]{3}/", b"^]x", true),
        (r"/a\;b\:c\/d/", b"a;b:c/d", true),
        ("/\u{e9}/", "\u{e9}".as_bytes(), true),
        ("/\\xc9/i", b"\xe9", false),
        // Classes
        (r"/[\w-.]{3}/", b"a-.", true),
        ("/[a-]{2}/", b"a-", true),
        ("/[]a]{2}/", b"]a", true),
        ("/[^]a]/", b"]a", false),
        ("/[a&&b]{3}/", b"a&b", true),
        ("/[a~~b]{2}/", b"a~", true),
        ("/[[:alpha:]]{2}[[:^alpha:]]/", b"aB1", true),
        ("/[[:upper:]]{2}/i", b"ab", true),
        ("/[[a]b]/", b"[b]", true),
        (r"/[\b]/", b"\x08", true),
        (r"/\v/", b"\x0b", true),
        (r"/\v/", b"v", false),
        (r"/\h{3}/", b" \t\xa0", true),
        (r"/\s/", b"\x0b", true),
        (r"/[^\H]/", b"\t", true),
        (r"/end\b\xe9/", b"end\xe9", true),
        // Repetitions
        ("/x{,3}/", b"xxx", false),
        ("/x{,3}/", b"x{,3}", true),
        ("/x{2,}y/", b"xxxy", true),
        ("/x{a}/", b"x{a}", true),
        ("/(?:x{2}){2}/", b"xxxx", true),
        ("/x{2}{2}/", b"xxx", false),
        // Groups and options
        ("/(?i)FOO(?-i)b/", b"foob", true),
        ("/(?i)FOO(?-i)b/", b"fooB", false),
        ("/(?:a(?i)b|c)d/", b"Cd", true),
        ("/(?i:a)b/", b"AB", false),
        ("/a b # c/x", b"ab", true),
        ("/a[ ]b/x", b"a b", true),
        ("/(?#no)a(?#)b/", b"ab", true),
        ("/(?|foo|bar)=/", b"bar=", true),
        ("/(?<n>a)(?'m'b)(?P<o>c)/", b"abc", true),
        (r"/foo\K=/", b"foo=", true),
        ("/a|/", b"x", true),
        // Delimiters and flags
        ("m#a#i", b"A", true),
        ("!/a/", b"b", true),
        ("/a/, flow:name", b"a", true),
    ];
    for (pcre, payload, expected) in cases {
        let found = occurs(pcre, payload);
        assert_eq!(found, Ok(*expected), "{pcre} on {}", payload.escape_ascii());
    }
    // Without quotes, as Suricata has it.
    let mut engine = engine("alert tcp any any -> any any (pcre:/foo=bar/; sid:1;)");
    assert_eq!(run(&mut engine, &[to(80, b"foo=bar")]), [[1]]);
}

#[test]
fn the_end_of_a_match_is_that_of_pcre() {
    for (options, payload, expected) in [
        (r#"pcre:"/a$/"; isdataat:!1,relative;"#, "a", true),
        (r#"pcre:"/a$/"; content:"|0a|"; distance:0; within:1;"#, "a\n", true),
        (r#"pcre:"/a++/"; content:"b"; distance:0; within:1;"#, "aab", true),
        (r#"content:"Z"; pcre:"/^q$/R";"#, "Zq\n", true),
        (r#"content:"Z"; pcre:"/^q/R";"#, "Zxq", false),
        (r#"pcre:"/f.*?o/"; content:"bar"; distance:0; within:3;"#, "fobar", true),
        (r#"pcre:"/o/"; content:"=bar"; distance:0; within:4;"#, "foo=bar", true),
    ] {
        assert_eq!(alerts(options, payload.as_bytes()), expected, "{options} on {payload:?}");
    }
}

#[test]
fn what_has_no_automaton_is_refused_by_name() {
    for (pcre, kind) in [
        (r"/(o)\1/", "pcre with a back reference"),
        (r"/(?<n>o)\k<n>/", "pcre with a back reference"),
        (r"/(?P<n>o)(?P=n)/", "pcre with a back reference"),
        (r"/(o)\g{1}/", "pcre with a back reference"),
        ("/foo(?=b)/", "pcre with a look-ahead"),
        ("/foo(?!b)/", "pcre with a look-ahead"),
        ("/(?<=o)b/", "pcre with a look-behind"),
        ("/(?<!o)b/", "pcre with a look-behind"),
        ("/a(?R)?b/", "pcre with a recursion"),
        ("/(a)(?1)/", "pcre with a recursion"),
        ("/(?<n>a)(?&n)/", "pcre with a recursion"),
        ("/(?P<n>a)(?P>n)/", "pcre with a recursion"),
        (r"/(?<n>a)\g<n>/", "pcre with a recursion"),
        ("/(a)?(?(1)b|c)/", "pcre with a conditional group"),
        ("/(?C1)a/", "pcre with a callout"),
        ("/(*UTF)a/", "pcre with a verb, as (*UTF)"),
        (r"/\p{L}/", "pcre with a property of Unicode"),
        (r"/\Ga/", r"pcre with \G"),
        (r"/\X/", r"pcre with \X"),
        ("/[[.a.]]/", "pcre with a collating element"),
        ("/[[:<:]]a/", "pcre with the start or the end of a word as a class"),
        ("/(?>a*b*)b/", "pcre with an atomic group whose matches overlap"),
        ("/(?:a|ab)*+b/", "pcre with a possessive group that the rest may overlap"),
        (r"/a$\nb/", "pcre with `$` before other bytes"),
        ("/^a*/m", "pcre with `^` of m where no byte has to follow"),
        ("/a)/", "pcre syntax"),
        ("/(a/", "pcre syntax"),
        ("/[a/", "pcre syntax"),
        ("/*a/", "pcre syntax"),
        ("/[b-a]/", "pcre syntax"),
        ("/a{2,1}/", "pcre syntax"),
        (r"/\j/", "pcre syntax"),
        (r"/a\", "malformed"),
    ] {
        assert_eq!(occurs(pcre, b"x"), Err(kind.to_owned()), "{pcre}");
    }
}

/// A part of an expression, for a search that tries everything.
#[derive(Clone, Debug)]
enum Piece {
    Byte(char),
    Any,
    Group(Vec<Vec<Piece>>, bool),
    Loop(Box<Piece>, usize, usize, char),
}

impl Piece {
    fn text(&self) -> String {
        match self {
            Self::Byte(c) => c.to_string(),
            Self::Any => ".".to_owned(),
            Self::Group(ways, atomic) => {
                let ways: Vec<String> = ways.iter().map(|way| way.iter().map(Self::text).collect()).collect();
                format!("({}{})", if *atomic { "?>" } else { "?:" }, ways.join("|"))
            }
            Self::Loop(of, min, max, ' ') => format!("{}{{{min},{max}}}", of.text()),
            Self::Loop(of, min, max, greed) => format!("{}{{{min},{max}}}{greed}", of.text()),
        }
    }

    /// Returns the ends of all matches that begin at `at`, the preferred one first.
    fn ends(&self, text: &[u8], at: usize) -> Vec<usize> {
        match self {
            Self::Byte(c) => {
                if text.get(at) == Some(&(*c as u8)) {
                    vec![at + 1]
                } else {
                    vec![]
                }
            }
            Self::Any => {
                if text.get(at).is_some_and(|b| *b != b'\n') {
                    vec![at + 1]
                } else {
                    vec![]
                }
            }
            Self::Group(ways, atomic) => {
                let mut ends: Vec<usize> = ways.iter().flat_map(|way| all(way, text, at)).collect();
                ends.truncate(if *atomic { 1 } else { usize::MAX });
                ends
            }
            Self::Loop(of, min, max, greed) => {
                let mut ends = times(of, text, at, *min, *max, *greed == '?');
                ends.truncate(if *greed == '+' { 1 } else { usize::MAX });
                ends
            }
        }
    }
}

fn all(pieces: &[Piece], text: &[u8], at: usize) -> Vec<usize> {
    let Some((one, rest)) = pieces.split_first() else { return vec![at] };
    one.ends(text, at).into_iter().flat_map(|end| all(rest, text, end)).collect()
}

fn times(of: &Piece, text: &[u8], at: usize, min: usize, max: usize, lazy: bool) -> Vec<usize> {
    let more = || match max {
        0 => vec![],
        _ => {
            let next = |end| times(of, text, end, min.saturating_sub(1), max - 1, lazy);
            of.ends(text, at).into_iter().flat_map(next).collect()
        }
    };
    let stop = if min == 0 { vec![at] } else { vec![] };
    if lazy { [stop, more()].concat() } else { [more(), stop].concat() }
}

fn piece() -> impl Strategy<Value = Piece> {
    let leaf = prop_oneof![
        3 => prop::sample::select(vec!['a', 'b', 'c']).prop_map(Piece::Byte),
        1 => Just(Piece::Any)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let ways = prop::collection::vec(prop::collection::vec(inner.clone(), 1..3), 1..3);
        let greed = prop::sample::select(vec![' ', '?', '+', '+']);
        prop_oneof![
            (ways, any::<bool>()).prop_map(|(ways, atomic)| Piece::Group(ways, atomic)),
            (inner, 0usize..2, 0usize..3, greed).prop_map(|(of, min, more, greed)| Piece::Loop(
                of.into(),
                min,
                min + more,
                greed
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// An expression with atomic groups and possessive quantifiers matches where a search that tries
    /// everything in PCRE's order does, or is refused.
    #[test]
    fn translations_match_where_the_original_does(
        pieces in prop::collection::vec(piece(), 1..4),
        text in "[abc]{1,6}",
    ) {
        let pattern: String = pieces.iter().map(Piece::text).collect();
        let text = format!("{text}x");
        let Ok(found) = occurs(&format!("/{pattern}x/"), text.as_bytes()) else { return Ok(()) };
        let whole = [pieces, vec![Piece::Byte('x')]].concat();
        let expected = (0..=text.len()).any(|at| !all(&whole, text.as_bytes(), at).is_empty());
        prop_assert_eq!(found, expected, "{} on {}", pattern, text);
    }
}
