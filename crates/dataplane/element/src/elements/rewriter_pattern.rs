//! The rules by which a rewriter handles a new flow: specs and patterns.

use flame_click::{Graph, Ip, Prefix, Scope, Value, text};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;

/// The most ports or addresses of a range that are tried for a flow.
const MOST_TRIED: u64 = 64;

/// Ports or addresses to choose from, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub low: u32,
    pub high: u32,
}

impl Range {
    /// Returns how many there are, which may be more than a `u32` holds.
    pub fn len(self) -> u64 {
        u64::from(self.high) - u64::from(self.low) + 1
    }

    /// Returns one of them, counted from the first and around.
    pub fn get(self, index: u64) -> u32 {
        (u64::from(self.low) + index % self.len()) as u32
    }

    /// Returns the index of a value, if it is in the range.
    pub fn index(self, value: u32) -> Option<u64> {
        (self.low..=self.high).contains(&value).then(|| u64::from(value - self.low))
    }

    /// Returns the indices that are tried for a flow. All of a small range, from `first`; of a large one some
    /// in order, and others at random, since those in use are often side by side.
    pub fn tried(self, first: u64, random: impl Fn(u64) -> u64) -> impl Iterator<Item = u64> {
        let len = self.len();
        let in_order = if len <= MOST_TRIED { len } else { MOST_TRIED / 2 };
        let others = MOST_TRIED.min(len) - in_order;
        (0..in_order).map(move |i| (first + i) % len).chain((0..others).map(move |_| random(len)))
    }
}

/// The choice of a port or an address of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The packet's own if it is free, or else one at random.
    Own,
    Next,
    Random,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    pub src: Option<Ip>,
    /// The ports (or addresses) to choose from.
    pub range: Option<Range>,
    pub order: Order,
    pub dst: Option<Ip>,
    pub dport: Option<u16>,
    pub next: Cell<u64>,
    /// The pattern as the handlers show it.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    Drop,
    Pass(usize),
    Keep(usize, usize),
    Pattern(Pattern, usize, usize),
}

/// The place of a spec, and the names that it may use.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub class: &'static str,
    pub outputs: usize,
    pub scope: Scope<'a>,
    pub graph: &'a Graph,
    /// The words of the named patterns of the graph by name, once one was looked up.
    pub named: &'a OnceCell<HashMap<String, Vec<String>>>,
}

/// Returns the words of all named patterns. Of those with the same name, the first one counts.
fn named_patterns(graph: &Graph) -> HashMap<String, Vec<String>> {
    let mut all = HashMap::new();
    for element in graph.elements.iter().filter(|e| e.class == "IPRewriterPatterns") {
        for line in text::split(&element.config) {
            let words = text::words(&line);
            if let Some((name, pattern)) = words.split_first() {
                all.entry(name.clone()).or_insert_with(|| pattern.to_vec());
            }
        }
    }
    all
}

/// Reads `LOW-HIGH` of ports, a port, or `-`.
fn ports(text: &str) -> Option<Option<Range>> {
    let port = |t: &str| t.parse::<u16>().ok().map(u32::from);
    let range = match text.split_once('-') {
        _ if text == "-" => return Some(None),
        Some((low, high)) => port(low).zip(port(high)),
        None => port(text).filter(|p| *p > 0).map(|p| (p, p)),
    };
    range.filter(|(low, high)| low <= high).map(|(low, high)| Some(Range { low, high }))
}

/// Reads `LOW-HIGH` of addresses (HIGH may be the last byte alone), or a prefix, which leaves out the first
/// and the last of its addresses if it has more than two.
fn addresses(text: &str, scope: &Scope<'_>) -> Option<Range> {
    let Some((low, high)) = text.split_once('-') else {
        let prefix = Prefix::parse(text).filter(|p| p.bits().is_some())?.network();
        let (low, high) = (prefix.ip.0, prefix.ip.0 | !prefix.mask.0);
        return Some(if high - low > 1 {
            Range { low: low + 1, high: high - 1 }
        } else {
            Range { low, high }
        });
    };
    let low = Ip::read(low, scope)?;
    let last = |text: &str| text.parse().ok().map(|h: u8| Ip(low.0 & !255 | u32::from(h)));
    let high = Ip::read(high, scope).or_else(|| last(high)).filter(|h| *h >= low)?;
    Some(Range { low: low.0, high: high.0 })
}

/// Reads SADDR and DADDR (of which SADDR may be a range), SADDR, DADDR and ID, or SADDR, SPORT, DADDR and
/// DPORT.
pub fn pattern(words: &[String], scope: &Scope<'_>) -> Result<Pattern, String> {
    let address = |word: &str, what: &str| match word {
        "-" => Ok(None),
        word => Ip::read(word, scope).map(Some).ok_or_else(|| format!("bad {what} address")),
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (src, range, dst, dport) = match words[..] {
        [src, dst] => (src, None, dst, "-"),
        [src, dst, id] => (src, Some(id), dst, "-"),
        [src, sport, dst, dport] => (src, Some(sport), dst, dport),
        _ => return Err("bad pattern".into()),
    };
    let chosen = range.unwrap_or(src);
    let (chosen, order) = match (chosen.strip_suffix('#'), chosen.strip_suffix('?')) {
        (Some(text), _) => (text, Order::Next),
        (_, Some(text)) => (text, Order::Random),
        _ => (chosen, Order::Own),
    };
    let (src, range) = match range {
        Some(_) => (address(src, "source")?, ports(chosen).ok_or("bad source port")?),
        None => match address(chosen, "source") {
            Ok(src) => (src, None),
            Err(e) => (None, Some(addresses(chosen, scope).ok_or(e)?)),
        },
    };
    let has_ports = words.len() > 2;
    let dst = address(dst, "destination")?;
    let dport = match dport {
        "-" => None,
        port => Some(port.parse().map_err(|_| "bad destination port")?),
    };
    let show = |ip: Option<Ip>| ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    let port = |port: Option<u16>| port.map_or_else(|| "-".to_owned(), |p| p.to_string());
    let text = match range {
        Some(Range { low, high }) if !has_ports && low == high => format!("{} {}", Ip(low), show(dst)),
        Some(Range { low, high }) if !has_ports => format!("{}-{} {}", Ip(low), Ip(high), show(dst)),
        None if !has_ports => format!("{} {}", show(src), show(dst)),
        None => format!("{} - {} {}", show(src), show(dst), port(dport)),
        Some(Range { low, high }) if low == high => {
            format!("{} {low} {} {}", show(src), show(dst), port(dport))
        }
        Some(Range { low, high }) => format!("{} {low}-{high} {} {}", show(src), show(dst), port(dport)),
    };
    Ok(Pattern { src, range, order, dst, dport, next: Cell::new(0), text })
}

/// Reads a pattern of four words for addresses: the second is a range of their last part.
fn four_words(words: &[String], scope: &Scope<'_>) -> Result<Pattern, String> {
    let (low, high) = words[1].split_once('-').unwrap_or((&words[1], &words[1]));
    let part = |t: &str| t.trim_end_matches(['#', '?']).parse::<u8>().ok();
    let (low, high) = part(low).zip(part(high)).filter(|(l, h)| l <= h).ok_or("bad source port")?;
    let base = Ip::read(&words[0], scope).ok_or("bad source address")?;
    let at = |n: u8| Ip(base.0 & !255 | u32::from(n));
    let two = [format!("{}-{}#", at(low), at(high)), words[2].clone()];
    pattern(&two, scope)
}

/// Reads a pattern that elements of a class may have.
fn pattern_of(words: &[String], place: Place<'_>) -> Result<Pattern, String> {
    let made = match (place.class, words.len()) {
        ("IPAddrRewriter", 4) => four_words(words, &place.scope),
        ("IPAddrRewriter", 2) | ("ICMPPingRewriter", 3 | 4) => pattern(words, &place.scope),
        ("IPAddrRewriter", _) => Err("expected SADDR and DADDR".into()),
        ("ICMPPingRewriter", _) => Err("expected SADDR, DADDR and ID".into()),
        (_, 4) => pattern(words, &place.scope),
        _ => Err("expected SADDR, SPORT, DADDR and DPORT".into()),
    }?;
    // Flows are found by their source alone, so that no reply from another destination would be known.
    if place.class == "IPAddrRewriter" && made.dst.is_some() {
        return Err("pattern destination address must be '-'".into());
    }
    Ok(made)
}

/// Reads the spec of an input.
pub fn spec(line: &str, place: Place<'_>) -> Result<Spec, String> {
    let words = text::words(line);
    let output = |word: Option<&String>| -> Result<usize, String> {
        let n: usize = word.map_or(Ok(0), |w| w.parse()).map_err(|_| "bad output".to_owned())?;
        if n < place.outputs { Ok(n) } else { Err(format!("output {n} out of range")) }
    };
    match words.first().map(String::as_str) {
        Some("drop" | "discard") => Ok(Spec::Drop),
        // `nochange` installs no mapping; `keep` does.
        Some("pass" | "passthrough" | "nochange") => Ok(Spec::Pass(output(words.get(1))?)),
        Some("keep") => {
            let fout = output(words.get(1))?;
            Ok(Spec::Keep(fout, words.get(2).map_or(Ok(fout), |w| output(Some(w)))?))
        }
        Some("pattern") => {
            if words.len() == 4 {
                // `pattern NAME FOUT ROUT`
                let named = place.named.get_or_init(|| named_patterns(place.graph));
                if let Some(found) = named.get(&words[1]) {
                    let p = pattern_of(found, place)?;
                    return Ok(Spec::Pattern(p, output(words.get(2))?, output(words.get(3))?));
                }
            }
            let count = match (place.class, words.len()) {
                ("IPAddrRewriter", ..6) => 2,
                ("ICMPPingRewriter", ..7) => 3,
                _ => 4,
            };
            let p = pattern_of(words.get(1..=count).ok_or("bad pattern")?, place)?;
            Ok(Spec::Pattern(p, output(words.get(count + 1))?, output(words.get(count + 2))?))
        }
        _ => Err(format!("expected drop, pass, keep, nochange or pattern, found '{line}'")),
    }
}
