//! Filters as values. The author of a filter decides on which form of a packet it is evaluated, so there is a
//! type for each: code that holds only a [`ShownFilter`] cannot evaluate it on a packet with hidden bytes.
//!
//! Filters are parsed once, here, and written in a normal form. No name is ever looked up: hosts, networks
//! and ports are numbers, so neither compiling nor evaluating a filter needs a resolver.
//!
//! ```compile_fail
//! let mut spec = flame_plan::ViewSpec::default();
//! // A manifest's filter is no filter for the true packet.
//! spec.select.extend(flame_plan::ShownFilter::parse("port 53").unwrap());
//! ```

use crate::words::is_word;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest text of a [`TrustedFilter`] in bytes.
pub const MAX_FILTER: usize = 32 * 1024;
/// The longest text of a [`ShownFilter`] in bytes.
pub const MAX_SHOWN_FILTER: usize = 2048;
/// The maximum number of words and operators in a [`ShownFilter`].
pub const MAX_SHOWN_WORDS: usize = 512;
/// The maximum number of addresses and numbers in a [`ShownFilter`].
pub const MAX_SHOWN_VALUES: usize = 64;
/// The maximum number of shown filters that apply to one module.
pub const MAX_SHOWN_FILTERS: usize = 32;
/// The maximum number of addresses and numbers in all shown filters that apply to one module.
pub const MAX_SHOWN_TOTAL: usize = 128;

/// A filter of the node's policy, of a root, or of the operator. It is evaluated on the packet as it was
/// captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TrustedFilter(String);

/// A filter of any other origin. It is evaluated on the packet as the view shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ShownFilter {
    text: String,
    /// The number of addresses and numbers in the filter.
    values: usize,
}

impl From<TrustedFilter> for String {
    fn from(filter: TrustedFilter) -> Self {
        filter.0
    }
}

impl TryFrom<String> for TrustedFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)?.ok_or_else(|| "the filter is empty".to_owned())
    }
}

impl From<ShownFilter> for String {
    fn from(filter: ShownFilter) -> Self {
        filter.text
    }
}

impl TryFrom<String> for ShownFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)?.ok_or_else(|| "the filter is empty".to_owned())
    }
}

impl TrustedFilter {
    /// Parses a filter. Returns `None` for an empty filter, which every packet passes.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault if the filter is too long or contains a name or a character without
    /// meaning in filters.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let words = read(text, MAX_FILTER)?;
        Ok((!words.text.is_empty()).then_some(Self(words.text)))
    }

    /// Returns the text of the filter.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ShownFilter {
    /// Parses a filter within the limits of shown filters. Returns `None` for an empty filter.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault as [`TrustedFilter::parse`] does, and if the filter has too many
    /// words, addresses or numbers.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let words = read(text, MAX_SHOWN_FILTER)?;
        for (what, found, most) in [
            ("words", words.words, MAX_SHOWN_WORDS),
            ("addresses and numbers", words.values, MAX_SHOWN_VALUES),
        ] {
            if found > most {
                return Err(format!(
                    "it has {found} {what}, at most {most} are compiled: use networks or fewer terms"
                ));
            }
        }
        Ok((!words.text.is_empty()).then_some(Self { text: words.text, values: words.values }))
    }

    /// Returns the text of the filter.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Checks the number and size of filters that apply together. Each filter alone is limited, but a chain
    /// of credentials could state thousands.
    ///
    /// # Errors
    ///
    /// Returns an error if they exceed [`MAX_SHOWN_FILTERS`] or [`MAX_SHOWN_TOTAL`].
    pub fn affordable<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result<(), String> {
        let (mut filters, mut values) = (0, 0usize);
        for filter in all {
            filters += 1;
            values += filter.values;
        }
        if filters > MAX_SHOWN_FILTERS || values > MAX_SHOWN_TOTAL {
            return Err(format!(
                "{filters} filters with {values} addresses and numbers are stated by credential, manifest and command \
                 line together, at most {MAX_SHOWN_FILTERS} with {MAX_SHOWN_TOTAL} are compiled: use networks or fewer terms"
            ));
        }
        Ok(())
    }
}

impl fmt::Display for TrustedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ShownFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns `text` with every word in its normal form, separated by single spaces.
///
/// # Errors
///
/// Returns an error if `text` is too long or contains a name or an unknown character.
pub fn normalize_filter(text: &str) -> Result<String, String> {
    Ok(read(text, MAX_FILTER)?.text)
}

#[derive(Default)]
struct Words {
    text: String,
    words: usize,
    values: usize,
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

fn read(text: &str, most: usize) -> Result<Words, String> {
    if text.len() > most {
        return Err(format!(
            "it has {} bytes, at most {most} are compiled: split it over several modules",
            text.len()
        ));
    }
    let (mut words, mut rest, mut brackets) = (Words::default(), text.trim_start(), 0u32);
    let mut before = String::new();
    while let Some(first) = rest.chars().next() {
        let in_word = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') || (brackets == 0 && c == ':')
        };
        if first.is_ascii_alphanumeric() || first == '_' || (brackets == 0 && first == ':') {
            let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            let (word, is_value) = form(word, &before)?;
            words.values += usize::from(is_value);
            words.push(&word);
            before = word;
            rest = behind.trim_start();
            continue;
        }
        let Some(operator) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            let remedy = match first {
                '\\' => ": write the protocol's number instead of its name",
                '\0' => ", a NUL character",
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
        rest = rest[operator.len()..].trim_start();
    }
    // The normal form is parsed again where a plan arrives, within the same limit.
    if words.text.len() > most {
        return Err(format!(
            "it has {} bytes with spaces and whole addresses, at most {most} are compiled: split it over several modules",
            words.text.len()
        ));
    }
    Ok(words)
}

/// Returns the normal form of a word after `before`, and whether it is a value.
fn form(word: &str, before: &str) -> Result<(String, bool), String> {
    if is_word(word, before)? {
        return Ok((word.to_owned(), false));
    }
    let value = number(word)
        .map(|n| n.to_string())
        .or_else(|| (before == "portrange").then(|| range(word)).flatten())
        .or_else(|| dotted(word))
        .or_else(|| mac(word))
        .or_else(|| ipv6(word));
    value.map(|v| (v, true)).ok_or_else(|| {
        format!(
            "{word:?} is a name or no number: names are not looked up, write addresses and ports as numbers \
             (and spaces around operators)"
        )
    })
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

fn range(word: &str) -> Option<String> {
    let (from, to) = word.split_once('-')?;
    let port = |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    Some(format!("{}-{}", port(from)?, port(to)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        ShownFilter::parse(text).map(|f| f.map_or_else(String::new, |f| f.to_string()))
    }

    #[test]
    fn one_text_has_one_form_wherever_spaces_are() {
        for (text, form) in [
            (" port 53 ", "port 53"),
            ("\ttcp[tcpflags]&tcp-syn!=0", "tcp [ tcpflags ] & tcp-syn != 0"),
            ("ip[2:2]-4>0x10 ", "ip [ 2 : 2 ] - 4 > 16"),
            ("net 10/8||portrange 80-90", "net 10 / 8 || portrange 80-90"),
            ("host ::1 or host fe80::A", "host 0:0:0:0:0:0:0:1 or host fe80:0:0:0:0:0:0:a"),
            ("ether host 1:2:3:4:5:6", "ether host 01:02:03:04:05:06"),
            ("ether src dead.beef.cafe", "ether src de:ad:be:ef:ca:fe"),
            ("net 192.168 and len<=010", "net 192.168 and len <= 8"),
            (" \n", ""),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(form));
            assert_eq!(shown(form).as_deref(), Ok(form), "its own form");
            assert_eq!(normalize_filter(text).as_deref(), Ok(form));
        }
    }

    #[test]
    fn names_are_refused_wherever_they_stand() {
        for text in [
            "host localhost",
            "host a",
            "port domain",
            "portrange http-https",
            "net loopback",
            "ip proto \\tcp",
            "gateway 10.0.0.1",
            "host 10.0.0.1.example.org",
            "host face",
            "ether host abc",
            "host fe80::1%eth0",
            "port 80-90",
            "host 0xf-1",
            "ip[0xf-1]=1",
            "host 1.2.3.4.5",
            "host 300.1.1.1",
            "src host _x",
            "host 10..1",
            "portrange 80-http",
            "host ::g",
            "len-14 > 0",
            "port 99999999999",
            "host 10.1.2.3a",
            "host $a",
            "ip\0",
        ] {
            assert!(shown(text).is_err(), "{text}");
            assert!(normalize_filter(text).is_err(), "{text}");
        }
        assert!(shown("host example.org").unwrap_err().contains("\"example.org\" is a name"));
    }

    #[test]
    fn strangers_have_bounds_that_operators_do_not() {
        let hosts = |n: usize| vec!["host 10.0.0.1"; n].join(" or ");
        assert!(shown(&hosts(MAX_SHOWN_VALUES)).is_ok());
        assert!(shown(&hosts(MAX_SHOWN_VALUES + 1)).unwrap_err().contains("at most 64"));
        assert!(shown(&format!("{}ip", "!".repeat(MAX_SHOWN_WORDS))).unwrap_err().contains("words"));
        assert!(shown(&" ".repeat(MAX_SHOWN_FILTER + 1)).unwrap_err().contains("bytes"));
        assert!(TrustedFilter::parse(&hosts(1000)).is_ok());
        // Short as it is written, too long in its normal form.
        let short = format!("{}host ::1", "icmp6-echo host ::1||".repeat(60));
        assert!(short.len() < MAX_SHOWN_FILTER && shown(&short).unwrap_err().contains("whole addresses"));
        assert!(normalize_filter(&"!".repeat(MAX_FILTER)).is_err());
    }
}
