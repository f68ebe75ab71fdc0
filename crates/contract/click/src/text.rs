//! Arguments as text: comments, commas, quotes and words.

/// Returns the text that stands for these bytes.
pub fn decode(bytes: &[u8]) -> String {
    bytes.iter().map(|b| char::from(*b)).collect()
}

/// Returns the bytes of a text. A character beyond U+00FF, which only program text contains, becomes UTF-8.
pub fn encode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(u32::from(c)) {
            Ok(b) => bytes.push(b),
            Err(_) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Returns the end of the escape whose backslash is at `at`. `\<` reaches to its `>`.
fn escape_end(s: &[char], at: usize) -> usize {
    match s.get(at + 1) {
        Some('<') => s[at..].iter().position(|c| *c == '>').map_or(s.len(), |n| at + n + 1),
        Some(_) => at + 2,
        None => at + 1,
    }
}

/// Returns the end of the quoted part that begins at `at`, after its closing quote.
fn quote_end(s: &[char], at: usize) -> usize {
    let quote = s[at];
    let mut i = at + 1;
    while i < s.len() && s[i] != quote {
        i = if quote == '"' && s[i] == '\\' { escape_end(s, i) } else { i + 1 };
    }
    (i + 1).min(s.len())
}

/// The last places at which comments of a text can end, so that a scan for a missing end is not repeated.
struct Closers {
    newline: Option<usize>,
    star: Option<usize>,
}

impl Closers {
    fn of(s: &[char]) -> Self {
        Self {
            newline: s.iter().rposition(|c| *c == '\n'),
            star: s.windows(2).rposition(|w| w == ['*', '/']),
        }
    }

    /// Returns the places in a text of which this one begins at `by`.
    fn shifted(self, by: usize) -> Self {
        Self { newline: self.newline.map(|n| n + by), star: self.star.map(|n| n + by) }
    }

    /// Returns the end of the comment at `at`, if one begins there and is closed.
    fn comment_end(&self, s: &[char], at: usize) -> Option<usize> {
        let last = match (s[at], s.get(at + 1)) {
            ('/', Some('/')) => self.newline,
            ('/', Some('*')) => self.star.filter(|last| *last >= at + 2),
            _ => return None,
        };
        last.filter(|last| *last > at).and_then(|_| comment_end(s, at))
    }
}

/// Returns the end of the comment at `at`, if there is one.
fn comment_end(s: &[char], at: usize) -> Option<usize> {
    match (s[at], s.get(at + 1)) {
        ('/', Some('/')) => Some(s[at..].iter().position(|c| *c == '\n').map_or(s.len(), |n| at + n + 1)),
        ('/', Some('*')) => {
            let close = s.get(at + 2..)?.windows(2).position(|w| w == ['*', '/']);
            Some(close.map_or(s.len(), |n| at + n + 4))
        }
        _ => None,
    }
}

/// Splits a configuration at its commas, without comments and outer spaces. A last empty argument does not
/// count.
pub fn split(config: &str) -> Vec<String> {
    let s: Vec<char> = config.chars().collect();
    let (mut all, mut one, mut i) = (Vec::new(), String::new(), 0);
    while i < s.len() {
        let end = match s[i] {
            ',' => {
                all.push(one.trim().to_owned());
                one.clear();
                i += 1;
                continue;
            }
            '"' | '\'' => quote_end(&s, i),
            '\\' if s.get(i + 1) == Some(&'<') => escape_end(&s, i),
            _ => match comment_end(&s, i) {
                Some(end) => {
                    one.push(' ');
                    i = end;
                    continue;
                }
                None => i + 1,
            },
        };
        one.extend(&s[i..end]);
        i = end;
    }
    if !one.trim().is_empty() {
        all.push(one.trim().to_owned());
    }
    all
}

/// Joins arguments again.
pub fn join(args: &[String]) -> String {
    let mut joined = args.join(", ");
    // A last empty argument would be none.
    if args.last().is_some_and(String::is_empty) {
        joined.push(',');
    }
    joined
}

/// Returns arguments without comments, which could hide the text after them.
pub fn without_comments(config: &str) -> String {
    match config.contains("//") || config.contains("/*") {
        true => join(&split(config)),
        false => config.to_owned(),
    }
}

/// Splits a text at spaces outside quotes. Words keep their quotes.
pub fn words(text: &str) -> Vec<String> {
    let s: Vec<char> = text.chars().collect();
    let (mut all, mut one, mut i) = (Vec::new(), String::new(), 0);
    while i < s.len() {
        let end = match s[i] {
            c if c.is_ascii_whitespace() => {
                if !one.is_empty() {
                    all.push(std::mem::take(&mut one));
                }
                i += 1;
                continue;
            }
            '"' | '\'' => quote_end(&s, i),
            '\\' if s.get(i + 1) == Some(&'<') => escape_end(&s, i),
            _ => i + 1,
        };
        one.extend(&s[i..end]);
        i = end;
    }
    if !one.is_empty() {
        all.push(one);
    }
    all
}

/// Splits off the first word. Returns it and the rest.
pub fn first_word(text: &str) -> (String, String) {
    let text = text.trim_start();
    let s: Vec<char> = text.chars().collect();
    let mut i = 0;
    while i < s.len() && !s[i].is_ascii_whitespace() {
        i = match s[i] {
            '"' | '\'' => quote_end(&s, i),
            '\\' if s.get(i + 1) == Some(&'<') => escape_end(&s, i),
            _ => i + 1,
        };
    }
    (s[..i].iter().collect(), s[i..].iter().collect::<String>().trim_start().to_owned())
}

/// Appends what the escape at `at` stands for. Returns its end.
fn unescape(s: &[char], at: usize, out: &mut String) -> usize {
    let end = escape_end(s, at);
    let Some(&c) = s.get(at + 1) else {
        out.push('\\');
        return end;
    };
    match c {
        '<' => {
            let mut high = None;
            let mut i = at + 2;
            let s = &s[..end];
            let closers = Closers::of(&s[i.min(end)..]).shifted(i);
            while i < end {
                if let Some(comment) = closers.comment_end(s, i) {
                    i = comment;
                    continue;
                }
                if let Some(d) = s[i].to_digit(16) {
                    match high.take() {
                        None => high = Some(d),
                        Some(h) => out.extend(char::from_u32(h * 16 + d)),
                    }
                }
                i += 1;
            }
            end
        }
        '\n' => end,
        '\r' if s.get(at + 2) == Some(&'\n') => end + 1,
        '0'..='7' => {
            let digits = s[at + 1..].iter().take(3).take_while(|c| c.is_digit(8)).count();
            let value = s[at + 1..at + 1 + digits].iter().fold(0, |v, c| v * 8 + c.to_digit(8).unwrap_or(0));
            out.extend(char::from_u32(value & 255));
            at + 1 + digits
        }
        'x' => {
            let digits = s[at + 2..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
            let value = s[at + 2..at + 2 + digits]
                .iter()
                .fold(0, |v, c| (v * 16 + c.to_digit(16).unwrap_or(0)) & 255);
            out.extend(char::from_u32(value));
            at + 2 + digits
        }
        _ => {
            out.push(match c {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                c => c,
            });
            end
        }
    }
}

/// Removes quotes and resolves escapes.
pub fn unquote(text: &str) -> String {
    let s: Vec<char> = text.trim().chars().collect();
    let (mut out, mut i, mut quote) = (String::new(), 0, None);
    while i < s.len() {
        match (s[i], quote) {
            (c @ ('"' | '\''), None) => {
                quote = Some(c);
                i += 1;
            }
            (c, Some(q)) if c == q => {
                quote = None;
                i += 1;
            }
            ('\\', Some('"')) => i = unescape(&s, i, &mut out),
            ('\\', None) if s.get(i + 1) == Some(&'<') => i = unescape(&s, i, &mut out),
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

/// Appends text to be read inside double quotes.
pub fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' | '\\' | '$' => out.extend(['\\', c]),
            '\n' | ' '..='~' => out.push(c),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c => out.push_str(&format!("\\{:03o}", u32::from(c) & 255)),
        }
    }
}

/// Quotes a text if one argument could not hold it otherwise.
pub fn quote(text: &str) -> String {
    let plain =
        |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | ',' | '$' | '(' | ')' | '#');
    if !text.is_empty() && text.chars().all(plain) && !text.contains("//") && !text.contains("/*") {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    push_escaped(&mut out, text);
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commas_split_outside_quotes_and_comments() {
        assert_eq!(split("a, \"b, c\" /* , */ d, 'e,',"), ["a", "\"b, c\"   d", "'e,'"]);
        assert_eq!(split("a,,b"), ["a", "", "b"]);
        assert_eq!(split(","), [""]);
        assert_eq!(split("  // only, words\n"), Vec::<String>::new());
        assert_eq!(split("x \\<01, 02> y, z"), ["x \\<01, 02> y", "z"]);
    }

    #[test]
    fn quotes_and_escapes_are_removed() {
        assert_eq!(unquote(r#""a\n\"" 'b\n' c"#), "a\n\" b\\n c");
        assert_eq!(
            encode(&unquote(
                r"\<de ad // no
            be ef>"
            )),
            [0xde, 0xad, 0xbe, 0xef]
        );
        assert_eq!(encode(&unquote(r#""\101\x42\$""#)), b"AB$");
    }

    #[test]
    fn comments_without_an_end_are_scanned_once() {
        // A scan from each comment to the end would not come to an end itself.
        for piece in ["//", "/*", "/**", "// 0"] {
            let text = format!("\\<{}>", piece.repeat(2_000_000));
            assert!(unquote(&text).len() <= 1_000_000, "{piece}");
        }
        assert_eq!(encode(&unquote("\\<01 /* 02 */ 03 // 04\n 05>")), [1, 3, 5]);
    }

    #[test]
    fn joined_arguments_are_the_same() {
        for given in ["a,,", ",", "a // b\n, /* , */ 'c//', \"/*\" // d", "", "/**/", "a/**// b\n/c"] {
            assert_eq!(split(&join(&split(given))), split(given), "{given}");
            assert_eq!(split(&without_comments(given)), split(given), "{given}");
        }
        assert_eq!(without_comments("in // label"), "in");
    }

    #[test]
    fn the_first_word_may_be_quoted() {
        assert_eq!(first_word("  \"a b\"c  d e"), ("\"a b\"c".into(), "d e".into()));
    }

    proptest! {
        #[test]
        fn a_quoted_text_unquotes_to_itself(bytes: Vec<u8>) {
            let text = decode(&bytes);
            let quoted = quote(&text);
            prop_assert_eq!(unquote(&quoted), text);
            prop_assert_eq!(split(&quoted), vec![quoted.clone()]);
        }

        #[test]
        fn no_text_is_too_odd(text in "[\\\\\"'<>,/* a0\n$]{0,30}") {
            let _ = (split(&text), words(&text), unquote(&text), first_word(&text));
        }
    }
}
