//! Click's language of IP filters: parser and evaluation.
//!
//! A test of bytes that a packet lacks fails; `not` of it holds.

use super::summary_fields::icmp_type;
use super::util::ip_header;
use crate::runtime::packet::Packet;
use flame_click::value::integer;
use flame_click::{Ip, Mac, Prefix, Scope, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Ip,
    Transport,
    Ether,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Constant(bool),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    If(Box<[Expression; 3]>),
    Test { base: Base, offset: usize, length: usize, mask: u32, relation: Relation, value: u32 },
    Mac { at: usize, mac: Mac },
}

use Expression as E;

impl Expression {
    pub fn matches(&self, p: &Packet) -> bool {
        match self {
            E::Constant(b) => *b,
            E::Not(e) => !e.matches(p),
            E::And(all) => all.iter().all(|e| e.matches(p)),
            E::Or(all) => all.iter().any(|e| e.matches(p)),
            E::If(e) => {
                if e[0].matches(p) {
                    e[1].matches(p)
                } else {
                    e[2].matches(p)
                }
            }
            E::Mac { at, mac } => p.link_data().and_then(|d| d.get(*at..at + 6)) == Some(&mac.0[..]),
            E::Test { base, offset, length, mask, relation, value } => {
                let bytes = match base {
                    Base::Ip => p.network().and_then(|n| p.data().get(n..)),
                    Base::Transport => {
                        // Without a whole IP header the mark of the transport header still tells.
                        let at = ip_header(p).map(|h| h.payload()).or_else(|| p.transport());
                        at.and_then(|t| p.data().get(t..))
                    }
                    Base::Ether => p.link_data(),
                };
                let Some(field) = bytes.and_then(|b| b.get(*offset..offset + length)) else { return false };
                let field = field.iter().fold(0_u32, |v, b| v << 8 | u32::from(*b)) & mask;
                match relation {
                    Relation::Equal => field == *value,
                    Relation::NotEqual => field != *value,
                    Relation::Less => field < *value,
                    Relation::Greater => field > *value,
                    Relation::LessEqual => field <= *value,
                    Relation::GreaterEqual => field >= *value,
                }
            }
        }
    }
}

fn test(base: Base, offset: usize, length: usize, mask: u32, relation: Relation, value: u32) -> E {
    E::Test { base, offset, length, mask, relation, value }
}

fn ip_is(offset: usize, length: usize, mask: u32, value: u32) -> E {
    test(Base::Ip, offset, length, mask, Relation::Equal, value)
}

fn protocol(number: u8) -> E {
    ip_is(9, 1, 255, number.into())
}

fn first_fragment() -> E {
    ip_is(6, 2, 0x1fff, 0)
}

const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ospf", 89),
    ("pim", 103),
    ("sctp", 132),
    ("udplite", 136),
];

/// Deeper nesting is refused.
const DEPTH: u32 = 100;

struct Parser<'a> {
    tokens: Vec<String>,
    at: usize,
    scope: &'a Scope<'a>,
    depth: u32,
}

/// Parses a pattern.
pub fn parse(pattern: &str, scope: &Scope<'_>) -> Result<Expression, String> {
    let tokens = tokens(&flame_click::text::unquote(pattern));
    let mut parser = Parser { tokens, at: 0, scope, depth: 0 };
    let e = parser.ternary()?;
    match parser.peek() {
        "" => Ok(e),
        other => Err(format!("expected 'and', 'or' or the end, found '{other}'")),
    }
}

fn tokens(text: &str) -> Vec<String> {
    let s: Vec<char> = text.chars().collect();
    let (mut all, mut i) = (Vec::new(), 0);
    while i < s.len() {
        let start = i;
        match s[i] {
            c if c.is_ascii_whitespace() => {
                i += 1;
                continue;
            }
            '&' | '|' | '=' | '!' | '<' | '>' => {
                let two: String = s[i..(i + 2).min(s.len())].iter().collect();
                i += if matches!(two.as_str(), "&&" | "||" | "==" | "!=" | "<=" | ">=") { 2 } else { 1 };
            }
            '(' | ')' | '[' | ']' | '?' => i += 1,
            _ => {
                while i < s.len() && !s[i].is_ascii_whitespace() && !"&|=!<>()[]?".contains(s[i]) {
                    i += 1;
                }
            }
        }
        all.push(s[start..i].iter().collect());
    }
    all
}

impl Parser<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().unwrap_or_default()
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is_it = words.contains(&self.peek()) && self.at < self.tokens.len();
        self.at += usize::from(is_it);
        is_it
    }

    fn ternary(&mut self) -> Result<E, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("nested deeper than {DEPTH} levels"));
        }
        let condition = self.or()?;
        let result = match self.take(&["?"]) {
            true => {
                let yes = self.ternary()?;
                if !self.take(&[":"]) {
                    return Err(format!("expected ':', found '{}'", self.peek()));
                }
                E::If(Box::new([condition, yes, self.ternary()?]))
            }
            false => condition,
        };
        self.depth -= 1;
        Ok(result)
    }

    fn or(&mut self) -> Result<E, String> {
        let mut all = vec![self.and()?];
        while self.take(&["or", "||"]) {
            all.push(self.and()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { E::Or(all) })
    }

    fn and(&mut self) -> Result<E, String> {
        let mut all = vec![self.factor()?];
        // Two tests side by side are joined by `and`.
        while self.take(&["and", "&&"]) || !matches!(self.peek(), "" | "or" | "||" | ")" | "?" | ":") {
            all.push(self.factor()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { E::And(all) })
    }

    fn factor(&mut self) -> Result<E, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("nested deeper than {DEPTH} levels"));
        }
        let e = if self.take(&["not", "!"]) {
            E::Not(Box::new(self.factor()?))
        } else if self.take(&["("]) {
            let e = self.ternary()?;
            if !self.take(&[")"]) {
                return Err(format!("expected ')', found '{}'", self.peek()));
            }
            e
        } else {
            self.primitive()?
        };
        self.depth -= 1;
        Ok(e)
    }

    fn relation(&mut self) -> Relation {
        let relation = match self.peek() {
            "=" | "==" => Relation::Equal,
            "!=" => Relation::NotEqual,
            "<" => Relation::Less,
            ">" => Relation::Greater,
            "<=" => Relation::LessEqual,
            ">=" => Relation::GreaterEqual,
            _ => return Relation::Equal,
        };
        self.at += 1;
        relation
    }

    fn number(&mut self) -> Result<u32, String> {
        let word = self.next();
        let value = integer(&word).and_then(|v| u32::try_from(v).ok());
        value.ok_or_else(|| format!("expected a number, found '{word}'"))
    }

    fn primitive(&mut self) -> Result<E, String> {
        let word = self.next();
        match word.as_str() {
            "" => Err("expected a pattern".into()),
            "-" | "any" | "all" | "true" => Ok(E::Constant(true)),
            "none" | "false" => Ok(E::Constant(false)),
            "src" | "dst" => self.directed(&word, None),
            "host" | "net" | "port" => {
                self.at -= 1;
                self.directed("", None)
            }
            "proto" => {
                let name = self.next();
                Ok(match name.as_str() {
                    "tcpudp" => E::Or(vec![protocol(6), protocol(17)]),
                    name => protocol(
                        self.protocol(name).ok_or_else(|| format!("expected a protocol, found '{name}'"))?,
                    ),
                })
            }
            "syn" | "ack" | "fin" | "rst" | "psh" | "urg" => self.flag(&word),
            "frag" | "unfrag" | "ect" | "ce" | "vers" | "hl" | "id" | "tos" | "dscp" | "ttl" | "len" => {
                self.ip(&word)
            }
            "ip" | "transp" | "ether" if self.peek() == "[" => self.bytes(match word.as_str() {
                "ip" => Base::Ip,
                "transp" => Base::Transport,
                _ => Base::Ether,
            }),
            "ip" => {
                let word = self.next();
                match word.as_str() {
                    "proto" => {
                        self.at -= 1;
                        self.primitive()
                    }
                    word => self.ip(word),
                }
            }
            "ether" => {
                let direction = self.next();
                self.take(&["host"]);
                let name = self.next();
                let mac = Mac::read(&name, self.scope)
                    .ok_or_else(|| format!("expected an Ethernet address, found '{name}'"))?;
                Ok(ether(&direction, mac))
            }
            "tcpudp" => {
                let either = E::Or(vec![protocol(6), protocol(17)]);
                match self.peek() {
                    "src" | "dst" => {
                        let d = self.next();
                        self.directed(&d, Some(either))
                    }
                    "port" => self.directed("", Some(either)),
                    _ => Ok(either),
                }
            }
            name => {
                if let Some((_, number)) = PROTOCOLS.iter().find(|(n, _)| *n == name) {
                    return self.qualified(*number);
                }
                self.at -= 1;
                self.directed("", None)
            }
        }
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        PROTOCOLS.iter().find(|(n, _)| *n == name).map(|(_, p)| *p).or_else(|| name.parse().ok())
    }

    /// Reads what may follow the name of a protocol.
    fn qualified(&mut self, number: u8) -> Result<E, String> {
        let is = protocol(number);
        match (number, self.peek()) {
            (6 | 17, "src" | "dst") => {
                let direction = self.next();
                self.directed(&direction, Some(is))
            }
            (6 | 17, "port") => self.directed("", Some(is)),
            (6, "opt") => {
                self.at += 1;
                let flag = self.next();
                self.flag(&flag)
            }
            (6, "win") => {
                self.at += 1;
                let relation = self.relation();
                let value = self.number()?;
                Ok(E::And(vec![
                    is,
                    first_fragment(),
                    test(Base::Transport, 14, 2, u32::MAX, relation, value),
                ]))
            }
            (1, "type") => {
                self.at += 1;
                let relation = self.relation();
                let name = self.next();
                let kind =
                    icmp_type(&name).ok_or_else(|| format!("expected a type of ICMP, found '{name}'"))?;
                Ok(E::And(vec![
                    is,
                    first_fragment(),
                    test(Base::Transport, 0, 1, 255, relation, kind.into()),
                ]))
            }
            _ => Ok(is),
        }
    }

    fn flag(&mut self, name: &str) -> Result<E, String> {
        let flags = ["fin", "syn", "rst", "psh", "ack", "urg"];
        let bit = flags
            .iter()
            .position(|f| *f == name)
            .ok_or_else(|| format!("expected a TCP flag, found '{name}'"))?;
        let set = test(Base::Transport, 13, 1, 1 << bit, Relation::Equal, 1 << bit);
        Ok(E::And(vec![protocol(6), first_fragment(), set]))
    }

    fn ip(&mut self, field: &str) -> Result<E, String> {
        let (offset, length, mask, shift) = match field {
            "frag" => return Ok(test(Base::Ip, 6, 2, 0x3fff, Relation::NotEqual, 0)),
            "unfrag" => return Ok(ip_is(6, 2, 0x3fff, 0)),
            "ect" => return Ok(test(Base::Ip, 1, 1, 3, Relation::NotEqual, 0)),
            "ce" => return Ok(ip_is(1, 1, 3, 3)),
            "vers" => (0, 1, 0xf0, 4),
            "hl" => (0, 1, 0x0f, 0),
            "tos" => (1, 1, 0xff, 0),
            "dscp" => (1, 1, 0xfc, 2),
            "len" => (2, 2, 0xffff, 0),
            "id" => (4, 2, 0xffff, 0),
            "ttl" => (8, 1, 0xff, 0),
            other => return Err(format!("expected a field of IP, found '{other}'")),
        };
        let relation = self.relation();
        let value = self.number()?;
        if value > mask >> shift {
            return Err(format!("{field}: expected at most {}, found {value}", mask >> shift));
        }
        Ok(test(Base::Ip, offset, length, mask, relation, value << shift))
    }

    /// Reads `[OFFSET:LENGTH] & MASK = VALUE`.
    fn bytes(&mut self, base: Base) -> Result<E, String> {
        self.at += 1;
        let inside = self.next();
        let (offset, length) = inside.split_once(':').unwrap_or((&inside, "1"));
        let parsed =
            offset.parse::<u16>().ok().zip(length.parse::<usize>().ok().filter(|l| (1..=4).contains(l)));
        let (offset, length) =
            parsed.ok_or_else(|| format!("expected 'OFFSET[:LENGTH]', found '{inside}'"))?;
        if !self.take(&["]"]) {
            return Err(format!("expected ']', found '{}'", self.peek()));
        }
        let mask = if self.take(&["&"]) { self.number()? } else { u32::MAX };
        let relation = self.relation();
        let value = self.number()?;
        Ok(test(base, offset.into(), length, mask, relation, value))
    }

    /// Reads `[or dst] [host|net|port] VALUE`.
    fn directed(&mut self, direction: &str, protocols: Option<E>) -> Result<E, String> {
        let mut direction = direction.to_owned();
        let mut both = false;
        if !direction.is_empty() && matches!(self.peek(), "or" | "and" | "||" | "&&") {
            let other = self.tokens.get(self.at + 1).map_or("", String::as_str);
            if matches!(other, "src" | "dst") && other != direction {
                both = matches!(self.peek(), "and" | "&&");
                self.at += 2;
                direction.clear();
            }
        }
        let combine = |one: &dyn Fn(bool) -> E| match (direction.as_str(), both) {
            ("src", _) => one(true),
            ("dst", _) => one(false),
            (_, true) => E::And(vec![one(true), one(false)]),
            _ => E::Or(vec![one(true), one(false)]),
        };
        let kind = if matches!(self.peek(), "host" | "net" | "port") { self.next() } else { String::new() };
        if kind == "port" || protocols.is_some() {
            let relation = self.relation();
            let name = self.next();
            let port = name.parse().ok().or_else(|| self.scope.port(&name));
            let port: u16 = port.ok_or_else(|| format!("expected a port, found '{name}'"))?;
            let at = |is_source| if is_source { 0 } else { 2 };
            let ports = combine(&|s| test(Base::Transport, at(s), 2, 0xffff, relation, port.into()));
            let protocols = protocols.unwrap_or_else(|| E::Or(vec![protocol(6), protocol(17)]));
            return Ok(E::And(vec![protocols, first_fragment(), ports]));
        }
        let not_equal = self.relation() == Relation::NotEqual;
        let name = self.next();
        let wrap = |e: E| if not_equal { E::Not(Box::new(e)) } else { e };
        if let Some(mac) = Mac::parse(&name) {
            return Ok(wrap(combine(&|s| E::Mac { at: if s { 6 } else { 0 }, mac })));
        }
        let at = |is_source| if is_source { 12 } else { 16 };
        let ip = Ip::read(&name, self.scope);
        if let (Some(ip), "") | (Some(ip), "host") = (ip, kind.as_str()) {
            if self.take(&["mask"]) {
                let mask = self.next();
                let mask = Ip::parse(&mask).ok_or_else(|| format!("expected a mask, found '{mask}'"))?;
                return Ok(wrap(combine(&|s| ip_is(at(s), 4, mask.0, ip.0 & mask.0))));
            }
            if self.take(&["&"]) {
                // `src 10.0.0.0 & 8.0.0.0 = 8.0.0.0`: the first address is a mask.
                let other = self.next();
                let other =
                    Ip::parse(&other).ok_or_else(|| format!("expected an address, found '{other}'"))?;
                let relation = self.relation();
                let value = self.next();
                let value =
                    Ip::parse(&value).ok_or_else(|| format!("expected an address, found '{value}'"))?;
                let _ = relation;
                return Ok(wrap(E::And(vec![
                    combine(&|s| ip_is(at(s), 4, u32::MAX, ip.0)),
                    E::Constant(ip.0 & other.0 == value.0),
                ])));
            }
            return Ok(wrap(combine(&|s| ip_is(at(s), 4, u32::MAX, ip.0))));
        }
        let net = Prefix::read(&name, self.scope).or_else(|| {
            let mask =
                (kind == "net" && self.peek() == "mask").then(|| self.tokens.get(self.at + 1)).flatten();
            let mask = mask.and_then(|m| Ip::parse(m));
            let net = mask.zip(Ip::read(&name, self.scope)).map(|(mask, ip)| Prefix { ip, mask });
            self.at += if net.is_some() { 2 } else { 0 };
            net
        });
        match net {
            Some(net) => {
                let net = net.network();
                Ok(wrap(combine(&|s| ip_is(at(s), 4, net.mask.0, net.ip.0))))
            }
            None => Err(format!("expected an address, a prefix or a test, found '{name}'")),
        }
    }
}

fn ether(direction: &str, mac: Mac) -> E {
    let (src, dst) = (E::Mac { at: 6, mac }, E::Mac { at: 0, mac });
    match direction {
        "src" => src,
        "dst" => dst,
        _ => E::Or(vec![src, dst]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_name_what_was_expected() {
        for (pattern, wanted) in [
            ("", "expected a pattern"),
            ("src", "expected an address, a prefix or a test, found ''"),
            ("ip vers 99", "vers: expected at most 15, found 99"),
            ("(tcp", "expected ')', found ''"),
            ("tcp )", "expected 'and', 'or' or the end, found ')'"),
            ("ip[x] = 1", "expected 'OFFSET[:LENGTH]', found 'x'"),
        ] {
            assert_eq!(parse(pattern, &Scope::none()).unwrap_err(), wanted, "{pattern}");
        }
        assert!(parse(&"(".repeat(100_000), &Scope::none()).unwrap_err().contains("nested"));
    }

    proptest! {
        #[test]
        fn no_pattern_panics(words in prop::collection::vec("(src|dst|host|net|port|ip|tcp|and|or|not|[!&=()\\[\\]?:<]|1|1\\.0\\.0\\.1|10/8|mask|proto|x)", 0..12)) {
            let _ = parse(&words.join(" "), &Scope::none());
        }
    }
}
