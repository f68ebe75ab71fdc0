//! Reads the text of an expression.

use super::arithmetic::{is_operator, relation};
use super::terms::{self, Side};
use super::{Layers, Test, and, not, or, test};

/// The qualifiers of an address or number, which the next one without a keyword has, too.
#[derive(Clone, Default)]
struct Qualifiers {
    protocol: String,
    side: Option<Side>,
    /// `host`, `net`, `port`, `portrange`, `proto`, or none.
    kind: String,
}

pub struct Reader {
    words: Vec<String>,
    at: usize,
    pub layers: Layers,
    last: Qualifiers,
}

pub fn read(text: &str, layers: Layers) -> Result<Test, String> {
    let mut reader = Reader { words: words(text), at: 0, layers, last: Qualifiers::default() };
    let all = reader.expression();
    let rest = reader.words[reader.at.min(reader.words.len())..].join(" ");
    all.filter(|_| rest.is_empty()).ok_or(rest)
}

fn words(text: &str) -> Vec<String> {
    let (mut words, mut depth) = (Vec::new(), 0);
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') || (c == ':' && depth == 0);
        let len = match first {
            _ if first.is_ascii_alphanumeric() || (first == ':' && depth == 0) => {
                rest.find(|c| !is_part(c)).unwrap_or(rest.len())
            }
            _ if ["&&", "||", "<<", ">>", "<=", ">=", "==", "!="].iter().any(|two| rest.starts_with(two)) => {
                2
            }
            _ => 1,
        };
        match first {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        words.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    words
}

fn is_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == ':') || word.contains(':')
}

impl Reader {
    fn peek(&self, ahead: usize) -> &str {
        self.words.get(self.at + ahead).map_or("", String::as_str)
    }

    pub fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.at)?.clone();
        self.at += 1;
        Some(word)
    }

    pub fn takes(&mut self, word: &str) -> bool {
        let is_next = self.peek(0) == word;
        self.at += usize::from(is_next);
        is_next
    }

    fn takes_one(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.takes(word))
    }

    pub fn number(&mut self) -> Option<u32> {
        let word = self.next()?;
        word.strip_prefix("0x").map_or(word.parse(), |hex| u32::from_str_radix(hex, 16)).ok()
    }

    fn value(&mut self) -> Option<u32> {
        self.peek(0).starts_with(|c: char| c.is_ascii_digit()).then(|| self.number()).flatten()
    }

    /// `and` and `or` have equal precedence and associate to the left.
    fn expression(&mut self) -> Option<Test> {
        let mut all = self.term()?;
        loop {
            let join = match () {
                () if self.takes_one(&["and", "&&"]) => and,
                () if self.takes_one(&["or", "||"]) => or,
                () => return Some(all),
            };
            let next = if self.is_bare() { self.operand(self.last.clone())? } else { self.term()? };
            all = join(all, next);
        }
    }

    /// Returns whether a value without a keyword follows.
    fn is_bare(&self) -> bool {
        let mut ahead = 0;
        while matches!(self.peek(ahead), "(" | "not" | "!") {
            ahead += 1;
        }
        let (word, mut next) = (self.peek(ahead), ahead + 1);
        while self.peek(next) == ")" {
            next += 1;
        }
        // The only operator after an address is the slash of a network.
        is_value(word) && (word.contains(['.', ':']) || !is_operator(self.peek(next)))
    }

    fn term(&mut self) -> Option<Test> {
        if self.takes_one(&["not", "!"]) {
            return self.term().map(not);
        }
        let (at, layers) = (self.at, self.layers);
        if let Some(relation) = relation(self) {
            return Some(relation);
        }
        (self.at, self.layers) = (at, layers);
        if self.takes("(") {
            let inner = self.expression()?;
            return self.takes(")").then_some(inner);
        }
        self.primitive()
    }

    fn primitive(&mut self) -> Option<Test> {
        match self.peek(0).to_owned().as_str() {
            "less" | "greater" => {
                let is_less = self.next()? == "less";
                let most = self.number()?;
                Some(test(move |p| Some(if is_less { p.wire_len <= most } else { p.wire_len >= most })))
            }
            "outbound" | "inbound" => {
                let outbound = terms::outbound(self.layers)?;
                Some(if self.next()? == "outbound" { outbound } else { not(outbound) })
            }
            "vlan" => {
                self.at += 1;
                let number = self.value();
                Some(terms::vlan(&mut self.layers, number))
            }
            "mpls" => {
                self.at += 1;
                let label = self.value();
                Some(terms::mpls(&mut self.layers, label))
            }
            _ => self.qualified(),
        }
    }

    fn qualified(&mut self) -> Option<Test> {
        let mut q = Qualifiers::default();
        let word = self.peek(0).to_owned();
        let is_protocol = terms::ethertype(&word).is_some() || terms::protocol(&word).is_some();
        if is_protocol || ["ether", "link", "icmp6"].contains(&word.as_str()) {
            q.protocol = self.next()?;
        }
        if self.takes("broadcast") {
            return terms::broadcast(self.layers, &q.protocol);
        }
        if self.takes("multicast") {
            return terms::multicast(self.layers, &q.protocol);
        }
        q.side = match (self.peek(0), self.peek(1), self.peek(2)) {
            ("src", "or", "dst") | ("dst", "or", "src") => Some(Side::Either),
            ("src", "and", "dst") | ("dst", "and", "src") => Some(Side::Both),
            ("src", ..) => Some(Side::Source),
            ("dst", ..) => Some(Side::Destination),
            _ => None,
        };
        self.at += match q.side {
            None => 0,
            Some(Side::Source | Side::Destination) => 1,
            Some(_) => 3,
        };
        if let kind @ ("host" | "net" | "port" | "portrange" | "proto") = self.peek(0) {
            q.kind = kind.to_owned();
            self.at += 1;
        }
        if q.kind.is_empty() && q.side.is_none() && !is_value(self.peek(0)) {
            return self.protocol(&q.protocol);
        }
        self.operand(q)
    }

    /// A protocol alone.
    fn protocol(&self, word: &str) -> Option<Test> {
        if word == "icmp6" {
            return Some(terms::ip6_proto(self.layers, 58));
        }
        if let Some(kind) = terms::ethertype(word) {
            return Some(terms::link(self.layers, kind));
        }
        terms::protocol(word).map(|(number, is_ipv4)| match is_ipv4 {
            true => terms::ip_proto(self.layers, number),
            false => terms::proto(self.layers, number),
        })
    }

    /// A value, or several in parentheses, with its qualifiers.
    fn operand(&mut self, q: Qualifiers) -> Option<Test> {
        self.last = q.clone();
        if self.takes_one(&["not", "!"]) {
            return self.operand(q).map(not);
        }
        if !self.takes("(") {
            return self.single(&q);
        }
        let mut all = self.operand(q.clone())?;
        while !self.takes(")") {
            let join = if self.takes_one(&["and", "&&"]) {
                and
            } else {
                self.takes_one(&["or", "||"]).then_some(or)?
            };
            all = join(all, self.operand(q.clone())?);
        }
        Some(all)
    }

    fn single(&mut self, q: &Qualifiers) -> Option<Test> {
        let layers = self.layers;
        let side = q.side.unwrap_or(Side::Either);
        let word = self.next()?;
        let number = || word.strip_prefix("0x").map_or(word.parse(), |h| u32::from_str_radix(h, 16)).ok();
        match (q.kind.as_str(), q.protocol.as_str()) {
            ("proto", "") => Some(terms::proto(layers, number()?)),
            ("proto", "ip") => Some(terms::ip_proto(layers, number()?)),
            ("proto", "ip6") => Some(terms::ip6_proto(layers, number()?)),
            ("proto", "ether") => Some(terms::link(layers, number()?)),
            ("port" | "portrange", protocol) => {
                let (from, to) = match word.split_once('-') {
                    Some((from, to)) => (from.parse().ok()?, to.parse().ok()?),
                    None => (number()?, number()?),
                };
                let protocol = terms::protocol(protocol).map(|(number, _)| number);
                Some(terms::port(layers, protocol, side, from.min(to), to.max(from)))
            }
            (_, "ether") => {
                let bytes: Option<Vec<u8>> =
                    word.split(':').map(|b| u8::from_str_radix(b, 16).ok()).collect();
                Some(terms::ether_host(side, bytes?.try_into().ok()?))
            }
            (kind, protocol) if word.contains(':') => {
                let address: u128 = word.parse::<std::net::Ipv6Addr>().ok()?.into();
                let bits = if kind == "net" && self.takes("/") { self.number()? } else { 128 };
                let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                ["", "ip6"].contains(&protocol).then(|| terms::host6(layers, side, address, mask))
            }
            (kind, protocol) => {
                let parts: Vec<u32> = word.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
                let address = (0..4).fold(0, |all, n| all << 8 | parts.get(n).unwrap_or(&0));
                let bits =
                    if kind == "net" && self.takes("/") { self.number()? } else { 8 * parts.len() as u32 };
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                let kind = if protocol.is_empty() { None } else { Some(terms::ethertype(protocol)?) };
                Some(terms::host(layers, kind, side, address, mask))
            }
        }
    }
}
