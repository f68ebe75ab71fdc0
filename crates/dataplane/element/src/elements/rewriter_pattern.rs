//! The rules by which a rewriter handles a new flow: specs and patterns.

use crate::registry::Setup;
use flame_click::{Args, Ip, Value, text};
use std::cell::Cell;

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

    /// Returns the indices that are tried for a flow. All of a small range, from `first`; of a large one some
    /// in order, and others at random, since those in use are often side by side.
    pub fn tried(self, first: u64, random: impl Fn(u64) -> u64) -> impl Iterator<Item = u64> {
        let len = self.len();
        let in_order = if len <= MOST_TRIED { len } else { MOST_TRIED / 2 };
        let others = MOST_TRIED.min(len) - in_order;
        (0..in_order).map(move |i| (first + i) % len).chain((0..others).map(move |_| random(len)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    pub src: Option<Ip>,
    /// The ports (or addresses) to choose from, and whether to choose in order or at random.
    pub range: Option<Range>,
    pub random: bool,
    pub dst: Option<Ip>,
    pub dport: Option<u16>,
    pub next: Cell<u64>,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Spec {
    Drop,
    Pass(usize),
    Keep(usize, usize),
    Pattern(Pattern, usize, usize),
}

/// Reads SADDR, SPORT, DADDR and DPORT, or SADDR and DADDR.
pub fn pattern(words: &[String], addresses_only: bool, args: &Args<'_>) -> Result<Pattern, String> {
    let scope = args.scope();
    let address = |word: &str, what: &str| match word {
        "-" => Ok(None),
        word => Ip::read(word, &scope).map(Some).ok_or_else(|| format!("bad {what} address")),
    };
    let text = words.join(" ");
    let (range_text, random) = match words.get(usize::from(!addresses_only)) {
        Some(w) if w.ends_with('?') => (&w[..w.len() - 1], true),
        Some(w) => (w.trim_end_matches('#'), false),
        None => return Err("bad pattern".into()),
    };
    let mut new =
        Pattern { src: None, range: None, random, dst: None, dport: None, next: Cell::new(0), text };
    if addresses_only {
        let [_, dst] = words else { return Err("expected SADDR and DADDR".into()) };
        new.dst = address(dst, "destination")?;
        if let Some((low, high)) = range_text.split_once('-').filter(|(l, _)| !l.is_empty()) {
            let low = Ip::read(low, &scope).ok_or("bad source address")?;
            let high = Ip::read(high, &scope)
                .or_else(|| high.parse().ok().map(|h: u8| Ip(low.0 & !255 | u32::from(h))));
            let high = high.filter(|h| *h >= low).ok_or("bad source address")?;
            new.range = Some(Range { low: low.0, high: high.0 });
        } else {
            new.src = address(range_text, "source")?;
        }
        return Ok(new);
    }
    let [src, _, dst, dport] = words else { return Err("expected SADDR, SPORT, DADDR and DPORT".into()) };
    new.src = address(src, "source")?;
    new.dst = address(dst, "destination")?;
    let port = |t: &str| t.parse::<u16>().ok().filter(|p| *p > 0).map(u32::from);
    new.range = match (range_text, range_text.split_once('-')) {
        ("-", _) => None,
        (_, Some((low, high))) => {
            let range = port(low).zip(port(high)).filter(|(l, h)| l <= h);
            range.map(|(low, high)| Range { low, high }).ok_or("bad source port").map(Some)?
        }
        (one, None) => Some(port(one).map(|p| Range { low: p, high: p }).ok_or("bad source port")?),
    };
    if dport != "-" {
        new.dport = Some(dport.parse().map_err(|_| "bad destination port")?);
    }
    Ok(new)
}

/// Reads a pattern of four words for addresses: the second is a range of their last part.
fn four_words(words: &[String], args: &Args<'_>) -> Result<Pattern, String> {
    let (low, high) = words[2].split_once('-').unwrap_or((&words[2], &words[2]));
    let part = |t: &str| t.trim_end_matches(['#', '?']).parse::<u8>().ok();
    let (low, high) = part(low).zip(part(high)).filter(|(l, h)| l <= h).ok_or("bad source port")?;
    let base = Ip::read(&words[1], &args.scope()).ok_or("bad source address")?;
    let at = |n: u8| Ip(base.0 & !255 | u32::from(n));
    let two = [format!("{}-{}#", at(low), at(high)), words[3].clone()];
    pattern(&two, true, args)
}

pub fn spec(line: &str, setup: &Setup<'_>, args: &Args<'_>) -> Result<Spec, String> {
    let addresses_only = setup.class == "IPAddrRewriter";
    let words = text::words(line);
    let output = |word: Option<&String>| -> Result<usize, String> {
        let n: usize = word.map_or(Ok(0), |w| w.parse()).map_err(|_| "bad output".to_owned())?;
        if n < setup.outputs { Ok(n) } else { Err(format!("output {n} out of range")) }
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
            let count = if addresses_only && words.len() < 6 { 2 } else { 4 };
            if addresses_only && count == 4 {
                return four_words(&words, args)
                    .and_then(|p| Ok(Spec::Pattern(p, output(words.get(5))?, output(words.get(6))?)));
            }
            if words.len() == 4 {
                // `pattern NAME FOUT ROUT`
                let named = setup.router.graph.elements.iter().filter(|e| e.class == "IPRewriterPatterns");
                let lines = named.flat_map(|e| text::split(&e.config));
                let found = lines.map(|l| text::words(&l)).find(|w| w.first() == words.get(1));
                if let Some(found) = found {
                    let p = pattern(&found[1..], addresses_only, args)?;
                    return Ok(Spec::Pattern(p, output(words.get(2))?, output(words.get(3))?));
                }
            }
            let body = words.get(1..=count).ok_or("bad pattern")?;
            let p = pattern(body, addresses_only, args)?;
            Ok(Spec::Pattern(p, output(words.get(count + 1))?, output(words.get(count + 2))?))
        }
        _ => Err(format!("expected drop, pass, keep, nochange or pattern, found '{line}'")),
    }
}
