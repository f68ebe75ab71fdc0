//! Finds addresses that are joined by `or`, and puts a set in their place.
//!
//! libpcap's generator writes each address of `host A or host B or …` on its own. Of [`FEWEST`] and more, it
//! receives one address that stands for all, and the comparisons with that address become lookups in a set.
//! They are found by compiling the expression twice, with other addresses in place of the sets: nothing but
//! these comparisons differs.

use crate::Instruction;
use crate::program::{Op, Operand, Program, Test};
use crate::set::{AddressSet, Ranges};
use std::net::Ipv6Addr;

/// The smallest number of addresses that make a set. A few comparisons are as fast as a lookup.
const FEWEST: usize = 16;

/// An expression whose sets of addresses were taken out of it.
pub(crate) struct Reduced<'a> {
    parts: Vec<Part<'a>>,
    pub(crate) sets: Vec<AddressSet>,
    /// The number of addresses and networks in the sets.
    pub(crate) addresses: usize,
}

/// Words that stay, or the number of a set, with qualifiers and its first address.
enum Part<'a> {
    Words(&'a [&'a str]),
    Set { number: usize, qualifiers: String, first: Value, is_net: bool },
}

/// An address or network.
#[derive(Clone, Copy)]
enum Value {
    V4 { address: u32, bits: u32 },
    V6 { address: u128, bits: u32 },
}

/// What an address is, in the words of the expression.
#[derive(Clone, Copy, PartialEq)]
struct Qualifiers<'a> {
    protocol: &'a str,
    side: &'a [&'a str],
    is_net: bool,
}

/// A run of addresses.
struct Run {
    values: Vec<Value>,
    is_net: bool,
    end: usize,
}

impl<'a> Reduced<'a> {
    /// Takes sets of addresses out of an expression in its normal form.
    pub(crate) fn new(words: &'a [&'a str]) -> Self {
        let mut reduced = Self { parts: Vec::new(), sets: Vec::new(), addresses: 0 };
        let (mut kept, mut at, mut inherited) = (0, 0, None);
        while at < words.len() {
            let before = at.checked_sub(1).map_or("(", |before| words[before]);
            // `and` and `or` associate to the left, so only here does a run stand by itself.
            let is_start = matches!(before, "(" | "or" | "||");
            let begins = is_start || matches!(before, "and" | "&&" | "not" | "!");
            let stated = qualifiers(words, at).filter(|_| begins);
            let of = stated.map(|(of, _)| of).or(inherited).filter(|_| is_start);
            let found = of.and_then(|of| run(words, at, of, stated.is_some()));
            if let Some(run) = found.filter(|run| run.values.len() >= FEWEST) {
                reduced.parts.push(Part::Words(&words[kept..at]));
                let of = stated.map(|(of, _)| Qualifiers { is_net: run.is_net, ..of });
                reduced.add(&run.values, of, run.is_net);
                inherited = of.or(inherited);
                (kept, at) = (run.end, run.end);
                continue;
            }
            match stated {
                Some((of, next)) => (inherited, at) = (Some(of), next),
                None => {
                    let is_other = words[at].starts_with(|c: char| c.is_ascii_alphabetic())
                        && !matches!(words[at], "and" | "or" | "not")
                        && !words[at].contains([':', '.']);
                    if is_other || words[at] == ")" {
                        inherited = None;
                    }
                    // Both sides of one packet have the same address, which no set states.
                    let is_both = begins && both(words, at);
                    at += if is_both { 4 } else { 1 };
                }
            }
        }
        reduced.parts.push(Part::Words(&words[kept..]));
        reduced
    }

    /// Adds a set for each version of IP.
    fn add(&mut self, values: &[Value], of: Option<Qualifiers<'_>>, is_net: bool) {
        self.addresses += values.len();
        let v4 = values.iter().filter_map(|value| match *value {
            Value::V4 { address, bits } => Some((address, address | u32::MAX.checked_shr(bits).unwrap_or(0))),
            Value::V6 { .. } => None,
        });
        let v6 = values.iter().filter_map(|value| match *value {
            Value::V6 { address, bits } => {
                Some((address, address | u128::MAX.checked_shr(bits).unwrap_or(0)))
            }
            Value::V4 { .. } => None,
        });
        let sets = [AddressSet::V4(Ranges::new(v4.collect())), AddressSet::V6(Ranges::new(v6.collect()))];
        let firsts = [false, true]
            .map(|is_v6| values.iter().copied().find(|value| matches!(value, Value::V6 { .. }) == is_v6));
        let qualifiers = of.map_or_else(String::new, |of| of.text());
        for (set, first) in sets.into_iter().zip(firsts) {
            if let Some(first) = first {
                let qualifiers = qualifiers.clone();
                self.parts.push(Part::Set { number: self.sets.len(), qualifiers, first, is_net });
                self.sets.push(set);
            }
        }
    }

    /// Returns the expression with an address in place of each set: one made from its number and `seed`, or
    /// its first one.
    pub(crate) fn text(&self, seed: Option<u32>) -> String {
        let mut text = String::new();
        let mut push = |word: &str| {
            if !text.is_empty() && !word.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        };
        let mut follows_set = false;
        for part in &self.parts {
            match part {
                Part::Words(words) => words.iter().for_each(|word| push(word)),
                Part::Set { number, qualifiers, first, is_net } => {
                    if follows_set {
                        push("or");
                    }
                    push(qualifiers);
                    let value = match seed {
                        Some(seed) => first.replaced(*number, seed),
                        None => *first,
                    };
                    push(&value.text(*is_net));
                }
            }
            follows_set = matches!(part, Part::Set { .. });
        }
        text
    }

    /// Puts the sets into a program. `other` has the addresses of the other seed. Returns `None` if anything
    /// but comparisons with addresses differs.
    pub(crate) fn put(&self, program: Program, [one, other]: [&[Instruction]; 2]) -> Option<Program> {
        let mut ops = program.ops().to_vec();
        if one.len() != other.len() || one.len() != ops.len() {
            return None;
        }
        // The number of words of an address of IPv6 that come before, and the target of their comparisons.
        let (mut words, mut otherwise) = (0, None);
        for (at, (a, b)) in one.iter().zip(other).enumerate() {
            if (a.code, a.jt, a.jf) != (b.code, b.jt, b.jf) {
                return None;
            }
            if a.k == b.k {
                continue;
            }
            let (number, word) = self.place(a.k, SEEDS[0])?;
            if self.place(b.k, SEEDS[1]) != Some((number, word)) {
                return None;
            }
            let Op::Branch(Test::Eq, Operand::K(_), yes, no) = ops[at] else { return None };
            let is_last = matches!(self.sets[number], AddressSet::V4(_)) || word == 3;
            let is_next = word == words && (word == 0 || otherwise == Some(target(&ops, no)));
            if !is_next {
                return None;
            }
            ops[at] = match is_last {
                true => Op::BranchSet(number, yes, no),
                false => Op::Keep(word, yes),
            };
            (words, otherwise) = if is_last { (0, None) } else { (word + 1, Some(target(&ops, no))) };
        }
        (words == 0).then(|| Program::of(ops, self.sets.clone().into()))
    }

    /// Returns the set for which a value stands, and the word of the address that it is.
    fn place(&self, value: u32, seed: u32) -> Option<(usize, usize)> {
        let (number, word) = ((value ^ seed) as usize >> 2, (value ^ seed) as usize & 3);
        let words = match self.sets.get(number)? {
            AddressSet::V4(_) => 1,
            AddressSet::V6(_) => 4,
        };
        (word < words).then_some((number, word))
    }
}

/// The seeds of the two compilations. An address is the number of its set and of its word, under one of them.
pub(crate) const SEEDS: [u32; 2] = [0x2a5c_0000, 0x3b6d_0000];

/// Returns where a jump to `at` leads.
fn target(ops: &[Op], mut at: usize) -> usize {
    while let Op::Jump(next) = ops[at] {
        at = next;
    }
    at
}

impl Value {
    fn replaced(self, number: usize, seed: u32) -> Self {
        let word = |word: u32| seed ^ (number as u32) << 2 ^ word;
        match self {
            Self::V4 { .. } => Self::V4 { address: word(0), bits: 32 },
            Self::V6 { .. } => {
                let address = (0..4).fold(0, |all, at| all << 32 | u128::from(word(at)));
                Self::V6 { address, bits: 128 }
            }
        }
    }

    fn text(self, is_net: bool) -> String {
        let (address, bits) = match self {
            Self::V4 { address, bits } => (std::net::Ipv4Addr::from(address).to_string(), bits),
            Self::V6 { address, bits } => {
                (Ipv6Addr::from(address).segments().map(|s| format!("{s:x}")).join(":"), bits)
            }
        };
        if is_net { format!("{address} / {bits}") } else { address }
    }
}

impl Qualifiers<'_> {
    fn text(&self) -> String {
        let kind = if self.is_net { "net" } else { "host" };
        let words = [self.protocol].into_iter().chain(self.side.iter().copied()).chain([kind]);
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Reads qualifiers of addresses, and returns the place behind them.
fn qualifiers<'a>(words: &'a [&'a str], mut at: usize) -> Option<(Qualifiers<'a>, usize)> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let is_protocol = matches!(word(at), "ip" | "ip6" | "arp" | "rarp");
    let protocol = if is_protocol { word(at) } else { "" };
    at += usize::from(is_protocol);
    if both(words, at) {
        return None;
    }
    let sides = match (word(at), word(at + 1), word(at + 2)) {
        ("src", "or", "dst") | ("dst", "or", "src") => 3,
        ("src" | "dst", ..) => 1,
        _ => 0,
    };
    let side = words.get(at..at + sides)?;
    at += sides;
    let has_kind = matches!(word(at), "host" | "net");
    let is_net = word(at) == "net";
    at += usize::from(has_kind);
    // `ip 10.0.0.1` is no address.
    (has_kind || sides > 0).then_some((Qualifiers { protocol, side, is_net }, at))
}

/// Returns whether `src and dst` is at a place.
fn both(words: &[&str], at: usize) -> bool {
    matches!(words.get(at..at + 3), Some(["src", "and", "dst"] | ["dst", "and", "src"]))
}

/// Reads addresses with the same protocol and sides that are joined by `or`. If the first one has no
/// qualifiers of its own, none has.
fn run<'a>(words: &'a [&'a str], start: usize, of: Qualifiers<'a>, is_stated: bool) -> Option<Run> {
    let mut is_net = of.is_net;
    let mut run = Run { values: Vec::new(), is_net, end: start };
    let mut at = start;
    loop {
        if let Some((next, behind)) = qualifiers(words, at) {
            if !is_stated || (next.protocol, next.side) != (of.protocol, of.side) {
                break;
            }
            (is_net, at) = (next.is_net, behind);
        }
        let Some((value, behind)) = value(words, at, of.protocol, is_net) else { break };
        run.values.push(value);
        (run.is_net, run.end) = (is_net, behind);
        match words.get(behind) {
            Some(&("or" | "||")) => at = behind + 1,
            None | Some(&("and" | "&&" | ")")) => break,
            // The value is another one.
            Some(_) => return None,
        }
    }
    (!run.values.is_empty()).then_some(run)
}

/// Reads an address, and returns the place behind it. Those that libpcap would refuse are left to it.
fn value(words: &[&str], at: usize, protocol: &str, is_net: bool) -> Option<(Value, usize)> {
    let word = words.get(at)?;
    let stated = match words.get(at + 1) {
        Some(&"/") if is_net => Some(words.get(at + 2)?.parse::<u32>().ok()?),
        Some(&("/" | "mask")) => return None,
        _ => None,
    };
    let behind = at + if stated.is_some() { 3 } else { 1 };
    if word.contains('.') && protocol != "ip6" {
        let bytes: Vec<u32> =
            word.split('.').map(|b| b.parse::<u8>().map(u32::from)).collect::<Result<_, _>>().ok()?;
        let bits = stated.unwrap_or(8 * bytes.len() as u32);
        let address = (0..4).fold(0, |all, at| all << 8 | bytes.get(at).unwrap_or(&0));
        let is_whole =
            bytes.len() <= 4 && bits <= 32 && address & u32::MAX.checked_shr(bits).unwrap_or(0) == 0;
        return is_whole.then_some((Value::V4 { address, bits }, behind));
    }
    if word.matches(':').count() == 7 && matches!(protocol, "" | "ip6") {
        let address = u128::from(word.parse::<Ipv6Addr>().ok()?);
        let bits = if is_net { stated? } else { 128 };
        let is_whole = bits <= 128 && address & u128::MAX.checked_shr(bits).unwrap_or(0) == 0;
        return is_whole.then_some((Value::V6 { address, bits }, behind));
    }
    None
}
