//! Reads the text of a filter into its normal form: words and values, separated by single spaces, without
//! names.
//!
//! Names of services stand for ports and names of protocols for numbers, where such a number is expected. A
//! backslash in front of a name, as libpcap needs it for names that are words of the language, is left out.

use crate::names::{self, Service, Transport};
use crate::words::is_word;

/// The words of a filter in their normal form.
#[derive(Default)]
pub(crate) struct Words {
    pub text: String,
    pub words: usize,
    /// The number of addresses and numbers.
    pub values: usize,
}

impl Words {
    fn push(&mut self, word: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(word);
        self.words += 1;
    }
}

const OPERATORS: [&str; 26] = [
    "&&", "||", "<<", ">>", "<=", ">=", "==", "!=", "=", "<", ">", "!", "&", "|", "^", "+", "-", "*", "/",
    "%", "(", ")", "[", "]", ":", ",",
];

/// Reads `text`, of which text and normal form have at most `most` bytes.
pub(crate) fn read(text: &str, most: usize) -> Result<Words, String> {
    if text.len() > most {
        return Err(format!(
            "it has {} bytes, at most {most} are compiled: split it over several modules",
            text.len()
        ));
    }
    let (mut words, mut rest, mut brackets) = (Words::default(), text.trim_start(), 0u32);
    let mut term = Term::default();
    while let Some(first) = rest.chars().next() {
        let in_word = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') || (brackets == 0 && c == ':')
        };
        let is_start = |c: char| c.is_ascii_alphanumeric() || c == '_' || (brackets == 0 && c == ':');
        let escaped = rest.strip_prefix('\\').filter(|name| name.starts_with(is_start));
        if escaped.is_some() || is_start(first) {
            let word = escaped.unwrap_or(rest);
            let end = word.find(|c| !in_word(c)).unwrap_or(word.len());
            let (word, behind) = word.split_at(end);
            term.read(&mut words, word, escaped.is_some())?;
            rest = behind.trim_start();
            continue;
        }
        let Some(operator) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            let remedy = match first {
                '\\' => ": it stands in front of the name of a protocol",
                '\0' => ", a NUL character",
                '#' => ": comments are left out of files alone (-F)",
                _ => "",
            };
            return Err(format!("{first:?} has no meaning in a filter{remedy}"));
        };
        match *operator {
            "[" => brackets += 1,
            "]" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        words.push(operator);
        term.end(matches!(*operator, "&&" | "||" | "!" | "(" | ")"));
        rest = rest[operator.len()..].trim_start();
    }
    // The normal form is parsed again where a plan arrives, within the same limit.
    if words.text.len() > most {
        return Err(format!(
            "it has {} bytes with spaces and whole addresses, at most {most} are compiled: split it over several \
             modules",
            words.text.len()
        ));
    }
    Ok(words)
}

/// The values that a term expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Other,
    Port,
    /// A port that only one transport protocol has. No further value can share its qualifiers.
    OnePort,
    PortRange,
    Protocol,
    EtherType,
}

/// The term in which a word stands, as far as it was read.
#[derive(Default)]
struct Term {
    kind: Kind,
    /// Where the term begins in the normal form, and its protocol.
    start: usize,
    protocol: String,
    /// The last word, and the one before it.
    before: String,
    earlier: String,
    /// Whether the next word begins a term, which has the qualifiers of this one if it is a value.
    has_ended: bool,
}

impl Term {
    /// Notes an operator, and whether the next word begins a term.
    fn end(&mut self, ends: bool) {
        if !ends {
            self.kind = Kind::Other;
        }
        self.has_ended |= ends;
    }

    fn read(&mut self, words: &mut Words, word: &str, is_escaped: bool) -> Result<(), String> {
        let is_direct = matches!(self.before.as_str(), "port" | "portrange" | "proto");
        let is_side = |word: &str| matches!(word, "src" | "dst");
        // `src or dst` is one qualifier.
        let joins = matches!(self.before.as_str(), "and" | "or") && is_side(&self.earlier) && is_side(word);
        let begins = words.text.is_empty() || (self.has_ended && !joins);
        let is_name = is_escaped || (is_direct && number(word).is_none() && self.number_of(word).is_some());
        let (form, is_value) = if !is_name && is_word(word, &self.before)? {
            self.word(word, begins, words.text.len());
            (word.to_owned(), false)
        } else if self.kind == Kind::OnePort {
            return Err(format!(
                "{word:?} follows a service of one protocol: write `or port {word}`, with its keyword"
            ));
        } else {
            (self.value(words, word)?, true)
        };
        words.values += usize::from(is_value);
        words.push(&form);
        self.has_ended = matches!(form.as_str(), "and" | "or" | "not");
        self.earlier = std::mem::replace(&mut self.before, form);
        Ok(())
    }

    /// Notes a word of the language.
    fn word(&mut self, word: &str, begins: bool, at: usize) {
        if matches!(word, "and" | "or" | "not") {
            return;
        }
        if begins {
            (self.kind, self.start) = (Kind::Other, at);
            self.protocol.clear();
        }
        self.kind = match word {
            "port" => Kind::Port,
            "portrange" => Kind::PortRange,
            "proto" if self.protocol == "ether" || self.protocol == "link" => Kind::EtherType,
            "proto" => Kind::Protocol,
            _ => Kind::Other,
        };
        if self.protocol.is_empty() && !matches!(word, "src" | "dst" | "port" | "portrange" | "proto") {
            self.protocol.push_str(word);
        }
    }

    /// Returns the number that a name stands for where the term expects it.
    fn number_of(&self, name: &str) -> Option<u32> {
        match self.kind {
            Kind::Port | Kind::PortRange => names::service(name).map(|service| service.port.into()),
            Kind::Protocol => names::protocol(name),
            Kind::EtherType => names::ethertype(name),
            Kind::Other | Kind::OnePort => None,
        }
    }

    /// Returns the normal form of a value.
    fn value(&mut self, words: &mut Words, word: &str) -> Result<String, String> {
        if self.kind == Kind::Port
            && number(word).is_none()
            && let Some(Service { only: Some(only), .. }) = names::service(word)
        {
            self.restrict(words, word, only)?;
            return Ok(names::service(word).map_or_else(String::new, |service| service.port.to_string()));
        }
        let value = number(word)
            .or_else(|| self.number_of(word))
            .map(|n| n.to_string())
            .or_else(|| (self.kind == Kind::PortRange).then(|| range(word)).flatten())
            .or_else(|| dotted(word))
            .or_else(|| mac(word))
            .or_else(|| ipv6(word));
        value.ok_or_else(|| {
            let known = match self.kind {
                Kind::Port | Kind::PortRange => "is no service of the table: write its number",
                Kind::Protocol | Kind::EtherType => "is no protocol of the table: write its number",
                _ => {
                    "is a name or no number: names of hosts and networks are not looked up, write addresses \
                     as numbers (and spaces around operators)"
                }
            };
            format!("{word:?} {known}")
        })
    }

    /// Restricts a term to the one protocol that has a service. pcap-filter(7): both the port and the
    /// protocol of a name are checked, unless it is ambiguous.
    fn restrict(&mut self, words: &mut Words, name: &str, only: Transport) -> Result<(), String> {
        let has_keyword = self.before == "port";
        match self.protocol.as_str() {
            "" if has_keyword => {
                let word =
                    if self.start == 0 { format!("{} ", only.word()) } else { format!(" {}", only.word()) };
                words.text.insert_str(self.start, &word);
                words.words += 1;
            }
            protocol if protocol == only.word() => {}
            "" => return Err(format!("{name:?} is a service of {only:?} alone: write `port {name}`")),
            protocol => {
                return Err(format!(
                    "{name:?} is no service of {protocol:?}: write `{} port {name}`, or a number",
                    only.word()
                ));
            }
        }
        if has_keyword && self.protocol.is_empty() {
            self.kind = Kind::OnePort;
        }
        Ok(())
    }
}

fn number(word: &str) -> Option<u32> {
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        None => (word, 10),
    };
    // `from_str_radix` accepts a sign.
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}

/// Parses a range of ports. Names of services may contain the dash that separates them.
fn range(word: &str) -> Option<String> {
    let number = |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let port = |text: &str| number(text).or_else(|| Some(names::service(text)?.port));
    word.match_indices('-').find_map(|(at, _)| {
        let (from, to) = (&word[..at], &word[at + 1..]);
        Some(format!("{}-{}", port(from)?, port(to)?))
    })
}

/// Parses an IPv4 address, or the first two or three bytes of one.
fn dotted(word: &str) -> Option<String> {
    let parts: Vec<&str> = word.split('.').collect();
    let is_byte = |p: &&str| (1..=3).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit());
    let fits = (2..=4).contains(&parts.len()) && parts.iter().all(is_byte);
    let bytes: Option<Vec<String>> =
        fits.then(|| parts.iter().map(|p| p.parse::<u8>().ok().map(|n| n.to_string())).collect()).flatten();
    Some(bytes?.join("."))
}

fn mac(word: &str) -> Option<String> {
    let separator = word.chars().find(|c| !c.is_ascii_hexdigit())?;
    let groups: Vec<&str> = word.split(separator).collect();
    let all = |digits: std::ops::RangeInclusive<usize>| {
        groups.iter().all(|g| digits.contains(&g.len()) && g.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let bytes: Vec<String> = match (separator, groups.len()) {
        (':' | '-' | '.', 6) if all(1..=2) => groups.iter().map(|g| format!("{g:0>2}")).collect(),
        ('.', 3) if all(4..=4) => {
            groups.iter().flat_map(|g| [g[..2].to_owned(), g[2..].to_owned()]).collect()
        }
        _ => return None,
    };
    Some(bytes.join(":"))
}

/// Parses an IPv6 address and writes all eight groups, the only form that cannot be read as something else.
fn ipv6(word: &str) -> Option<String> {
    let address: std::net::Ipv6Addr = word.parse().ok()?;
    Some(address.segments().map(|s| format!("{s:x}")).join(":"))
}
