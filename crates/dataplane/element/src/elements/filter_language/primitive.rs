//! Click's language of IP filters: primitives.
//!
//! A primitive is `[QUALIFIERS] [RELATION] VALUE`. One without qualifiers has those of the primitive before
//! it: `src 1.0.0.1 or 1.0.0.2` tests two sources, `tcp port 80 or 443` two ports.

use super::Parser;
use crate::elements::filter_expression::{Base, Expression, Relation};
use crate::elements::summary_fields::icmp_type;
use flame_click::value::integer;
use flame_click::{Ip, Mac, Prefix, Value};

use Expression as E;

fn test(base: Base, offset: usize, length: usize, mask: u32, relation: Relation, value: u32) -> E {
    E::Test { base, offset, length, mask, relation, value }
}

fn contrary(e: E) -> E {
    E::Contrary(Box::new(e))
}

fn ip_is(offset: usize, length: usize, mask: u32, value: u32) -> E {
    test(Base::Ip, offset, length, mask, Relation::Equal, value)
}

fn protocol(number: u8) -> E {
    ip_is(9, 1, 255, number.into())
}

fn tcp_or_udp() -> E {
    E::Or(vec![protocol(6), protocol(17)])
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

const FIELDS: &[&str] = &["frag", "unfrag", "ect", "ce", "vers", "hl", "id", "tos", "dscp", "ttl", "len"];

const QUALIFIERS: &[&str] = &[
    "src", "dst", "host", "net", "port", "proto", "syn", "ack", "fin", "rst", "psh", "urg", "ip", "transp",
    "ether", "tcpudp",
];

/// The ends of a flow that an address or port is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Direction {
    Source,
    Destination,
    Both,
    #[default]
    Either,
}

impl Direction {
    /// Returns the test of these ends; `one` makes that of the source (true) or of the destination.
    fn combine(self, one: &dyn Fn(bool) -> E) -> E {
        match self {
            Self::Source => one(true),
            Self::Destination => one(false),
            Self::Both => E::And(vec![one(true), one(false)]),
            Self::Either => E::Or(vec![one(true), one(false)]),
        }
    }
}

/// A number in the packet: bits of some bytes, and what must hold besides.
#[derive(Clone, Debug)]
struct Field {
    base: Base,
    offset: usize,
    length: usize,
    mask: u32,
    shift: u32,
    /// The greatest value.
    most: u32,
    guard: Vec<E>,
}

/// The subject of a primitive, which the next one without qualifiers takes over.
#[derive(Clone, Debug, Default)]
enum Subject {
    #[default]
    None,
    Address,
    /// Ports of these protocols.
    Port(E),
    Protocol,
    Field(Field),
    IcmpType,
}

/// The qualifiers of the primitive before.
#[derive(Clone, Debug, Default)]
pub struct Previous {
    direction: Option<Direction>,
    subject: Subject,
}

/// A relation as it is written: whether it is the contrary of one of the three.
#[derive(Clone, Copy)]
struct Comparison {
    relation: Relation,
    is_negated: bool,
}

impl Comparison {
    /// Returns a primitive with this relation. The whole primitive is negated, not each of its tests.
    fn apply(self, primitive: impl FnOnce(Relation) -> E) -> E {
        let e = primitive(self.relation);
        if self.is_negated { contrary(e) } else { e }
    }
}

impl Parser<'_> {
    /// Reads a relation; without one, equality is meant.
    fn comparison(&mut self) -> Comparison {
        let (relation, is_negated) = match self.peek() {
            "=" | "==" => (Relation::Equal, false),
            "!=" => (Relation::Equal, true),
            "<" => (Relation::Less, false),
            ">=" => (Relation::Less, true),
            ">" => (Relation::Greater, false),
            "<=" => (Relation::Greater, true),
            _ => return Comparison { relation: Relation::Equal, is_negated: false },
        };
        self.at += 1;
        Comparison { relation, is_negated }
    }

    /// Reads `[& MASK] [RELATION]`. A mask without relation and value asks for any of its bits, which the
    /// value says that is returned.
    fn masked(&mut self) -> Result<(u32, Comparison, Option<u32>), String> {
        if self.peek() != "&" {
            return Ok((u32::MAX, self.comparison(), None));
        }
        self.at += 1;
        let (mask, at) = (self.number()?, self.at);
        let comparison = self.comparison();
        let has_value = self.at > at || integer(self.peek()).is_some();
        let any = Comparison { relation: Relation::Equal, is_negated: true };
        Ok(if has_value { (mask, comparison, None) } else { (mask, any, Some(0)) })
    }

    fn number(&mut self) -> Result<u32, String> {
        let word = self.next();
        let value = integer(&word).and_then(|v| u32::try_from(v).ok());
        value.ok_or_else(|| format!("expected a number, found '{word}'"))
    }

    /// Reads a primitive, whose first word decides its kind.
    pub(super) fn primitive(&mut self) -> Result<E, String> {
        let word = self.next();
        match word.as_str() {
            "" => return Err("expected a pattern".into()),
            "-" | "any" | "all" | "true" => return Ok(E::Constant(true)),
            "none" | "false" => return Ok(E::Constant(false)),
            _ => {}
        }
        if !self.is_qualifier(&word) {
            self.at -= 1;
            return self.unqualified();
        }
        // A primitive with qualifiers takes nothing from the one before.
        self.previous = Previous::default();
        match word.as_str() {
            "src" | "dst" => self.directed(&word, None),
            "host" | "net" | "port" => {
                self.at -= 1;
                self.directed("", None)
            }
            "proto" => {
                self.previous.subject = Subject::Protocol;
                self.protocol_test()
            }
            "syn" | "ack" | "fin" | "rst" | "psh" | "urg" => self.flag(&word),
            "ip" | "transp" | "ether" if self.peek() == "[" => {
                let base = match word.as_str() {
                    "ip" => Base::Ip,
                    "transp" => Base::Transport,
                    _ => Base::Ether,
                };
                self.bytes(base, Vec::new())
            }
            "ip" => {
                let word = self.next();
                match word.as_str() {
                    "proto" | "host" | "net" | "port" | "src" | "dst" => {
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
                let either = tcp_or_udp();
                match self.peek() {
                    "src" | "dst" => {
                        let d = self.next();
                        self.directed(&d, Some(either))
                    }
                    "port" => self.directed("", Some(either)),
                    _ => Ok(either),
                }
            }
            field if FIELDS.contains(&field) => self.ip(&word),
            name => match PROTOCOLS.iter().find(|(n, _)| *n == name) {
                Some((_, number)) => self.qualified(*number),
                None => Err(format!("expected a pattern, found '{name}'")),
            },
        }
    }

    fn is_qualifier(&self, word: &str) -> bool {
        QUALIFIERS.contains(&word) || FIELDS.contains(&word) || PROTOCOLS.iter().any(|(n, _)| *n == word)
    }

    /// Reads a relation and a value, which apply to the subject of the primitive before.
    fn unqualified(&mut self) -> Result<E, String> {
        let start = self.at;
        let comparison = self.comparison();
        let word = self.peek().to_owned();
        let is_number = integer(&word).is_some();
        match self.previous.subject.clone() {
            Subject::Port(protocols) if is_number || self.scope.port(&word).is_some() => {
                self.port(comparison, protocols)
            }
            Subject::Protocol if is_number => {
                self.at = start;
                self.protocol_test()
            }
            Subject::Field(field) if is_number => {
                self.at = start;
                self.field(field, "value")
            }
            Subject::IcmpType if icmp_type(&word).is_some() => {
                self.at = start;
                self.icmp_type()
            }
            _ if is_number => Err(format!("expected a field or 'port' before '{word}'")),
            // `www` is short for `port www`.
            _ if self.is_port(&word) => self.port(comparison, tcp_or_udp()),
            _ => {
                let direction = self.previous.direction.unwrap_or_default();
                self.address(direction, "", comparison)
            }
        }
    }

    /// Reads the number or name of a protocol.
    fn protocol_test(&mut self) -> Result<E, String> {
        let (mask, comparison, any) = self.masked()?;
        let number = match any {
            Some(value) => value,
            None => {
                let name = self.next();
                if name == "tcpudp" && !comparison.is_negated && comparison.relation == Relation::Equal {
                    return Ok(tcp_or_udp());
                }
                let number = self.protocol(&name);
                number.ok_or_else(|| format!("expected a protocol, found '{name}'"))?.into()
            }
        };
        Ok(comparison.apply(|relation| test(Base::Ip, 9, 1, 255 & mask, relation, number)))
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
            (_, "[") => self.bytes(Base::Transport, vec![is, first_fragment()]),
            (6, "win") => {
                self.at += 1;
                let guard = vec![is, first_fragment()];
                let (mask, most) = (0xffff, 0xffff);
                self.field(
                    Field { base: Base::Transport, offset: 14, length: 2, mask, shift: 0, most, guard },
                    "win",
                )
            }
            (1, "type") => {
                self.at += 1;
                self.previous.subject = Subject::IcmpType;
                self.icmp_type()
            }
            _ => {
                self.previous.subject = Subject::Protocol;
                Ok(is)
            }
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

    fn icmp_type(&mut self) -> Result<E, String> {
        let (mask, comparison, any) = self.masked()?;
        let kind = match any {
            Some(value) => value as u8,
            None => {
                let name = self.next();
                icmp_type(&name).ok_or_else(|| format!("expected a type of ICMP, found '{name}'"))?
            }
        };
        let kind =
            comparison.apply(|relation| test(Base::Transport, 0, 1, 255 & mask, relation, kind.into()));
        Ok(E::And(vec![protocol(1), first_fragment(), kind]))
    }

    /// Reads a relation and a value for a field, and remembers the field.
    fn field(&mut self, field: Field, name: &str) -> Result<E, String> {
        let (given, comparison, any) = self.masked()?;
        let value = any.map_or_else(|| self.number(), Ok)?;
        if value > field.most {
            return Err(format!("{name}: expected at most {}, found {value}", field.most));
        }
        let (base, offset, length) = (field.base, field.offset, field.length);
        let mask = field.mask & given.checked_shl(field.shift).unwrap_or(0);
        let value = value << field.shift;
        let e = comparison.apply(|relation| test(base, offset, length, mask, relation, value));
        let guard = field.guard.clone();
        self.previous.subject = Subject::Field(field);
        Ok(if guard.is_empty() { e } else { E::And(guard.into_iter().chain([e]).collect()) })
    }

    fn ip(&mut self, name: &str) -> Result<E, String> {
        let (offset, length, mask, shift) = match name {
            "frag" => return Ok(contrary(ip_is(6, 2, 0x3fff, 0))),
            "unfrag" => return Ok(ip_is(6, 2, 0x3fff, 0)),
            "ect" => return Ok(contrary(ip_is(1, 1, 3, 0))),
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
        let (most, guard) = (mask >> shift, Vec::new());
        self.field(Field { base: Base::Ip, offset, length, mask, shift, most, guard }, name)
    }

    /// Reads `[OFFSET:LENGTH] & MASK = VALUE`.
    fn bytes(&mut self, base: Base, guard: Vec<E>) -> Result<E, String> {
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
        let (offset, most) = (offset.into(), u32::MAX);
        self.field(Field { base, offset, length, mask: u32::MAX, shift: 0, most, guard }, "value")
    }

    /// Reads `[or dst] [host|net|port] VALUE`.
    fn directed(&mut self, direction: &str, protocols: Option<E>) -> Result<E, String> {
        let mut given = match direction {
            "src" => Some(Direction::Source),
            "dst" => Some(Direction::Destination),
            _ => None,
        };
        if given.is_some() && matches!(self.peek(), "or" | "and" | "||" | "&&") {
            let other = self.tokens.get(self.at + 1).map_or("", String::as_str);
            if matches!(other, "src" | "dst") && other != direction {
                let is_both = matches!(self.peek(), "and" | "&&");
                given = Some(if is_both { Direction::Both } else { Direction::Either });
                self.at += 2;
            }
        }
        self.previous.direction = given;
        let protocols = protocols.or_else(|| match self.peek() {
            "tcp" => Some(protocol(6)),
            "udp" => Some(protocol(17)),
            "tcpudp" => Some(tcp_or_udp()),
            _ => None,
        });
        self.take(&["tcp", "udp", "tcpudp"]);
        let kind = if matches!(self.peek(), "host" | "net" | "port") { self.next() } else { String::new() };
        if kind == "port" || protocols.is_some() {
            let protocols = protocols.unwrap_or_else(tcp_or_udp);
            let (mask, comparison, any) = self.masked()?;
            return self.masked_port(mask, comparison, any, protocols);
        }
        if self.take(&["&"]) {
            return self.masked_address(given.unwrap_or_default());
        }
        let comparison = self.comparison();
        if kind.is_empty() && self.is_port(self.peek()) {
            return self.port(comparison, tcp_or_udp());
        }
        self.address(given.unwrap_or_default(), &kind, comparison)
    }

    /// Returns whether a word is the name of a port, and of no address.
    fn is_port(&self, word: &str) -> bool {
        let is_address = || Ip::read(word, self.scope).is_some() || Prefix::read(word, self.scope).is_some();
        self.scope.port(word).is_some() && !is_address()
    }

    fn port(&mut self, comparison: Comparison, protocols: E) -> Result<E, String> {
        self.masked_port(u32::MAX, comparison, None, protocols)
    }

    fn masked_port(
        &mut self,
        mask: u32,
        comparison: Comparison,
        any: Option<u32>,
        protocols: E,
    ) -> Result<E, String> {
        let port = match any {
            Some(value) => value as u16,
            None => {
                let name = self.next();
                let port = name.parse().ok().or_else(|| self.scope.port(&name));
                port.ok_or_else(|| format!("expected a port, found '{name}'"))?
            }
        };
        let direction = self.previous.direction.unwrap_or_default();
        self.previous.subject = Subject::Port(protocols.clone());
        let ports = comparison.apply(|relation| {
            direction.combine(&|is_source| {
                let at = if is_source { 0 } else { 2 };
                test(Base::Transport, at, 2, 0xffff & mask, relation, port.into())
            })
        });
        Ok(E::And(vec![protocols, first_fragment(), ports]))
    }

    /// Reads `MASK [[RELATION] ADDRESS]`. Without an address, any of the mask's bits are asked for.
    fn masked_address(&mut self, direction: Direction) -> Result<E, String> {
        self.previous.subject = Subject::Address;
        let word = self.next();
        let mask = Ip::read(&word, self.scope).ok_or_else(|| format!("expected a mask, found '{word}'"))?;
        let at = self.at;
        let mut comparison = self.comparison();
        let mut value = Ip::read(self.peek(), self.scope);
        match value {
            Some(_) => self.at += 1,
            None if self.at == at => {
                comparison.is_negated = true;
                value = Some(Ip(0));
            }
            None => {}
        }
        match (value, comparison.relation) {
            (Some(value), Relation::Equal) => Ok(comparison.apply(|_| {
                direction.combine(&|is_source| ip_is(if is_source { 12 } else { 16 }, 4, mask.0, value.0))
            })),
            (None, _) => Err(format!("expected an address, found '{}'", self.peek())),
            (_, _) => Err("addresses can be compared by '=' and '!=' only".into()),
        }
    }

    /// Reads an address or a network, whose relation is read.
    fn address(&mut self, direction: Direction, kind: &str, comparison: Comparison) -> Result<E, String> {
        if comparison.relation != Relation::Equal {
            return Err("addresses can be compared by '=' and '!=' only".into());
        }
        self.previous.subject = Subject::Address;
        let is = |one: &dyn Fn(bool) -> E| comparison.apply(|_| direction.combine(one));
        let name = self.next();
        if let Some(mac) = Mac::parse(&name) {
            return Ok(is(&|s| E::Mac { at: if s { 6 } else { 0 }, mac }));
        }
        let at = |is_source| if is_source { 12 } else { 16 };
        let ip = Ip::read(&name, self.scope);
        if let (Some(ip), "" | "host") = (ip, kind) {
            if self.take(&["mask"]) {
                let mask = self.next();
                let mask = Ip::parse(&mask).ok_or_else(|| format!("expected a mask, found '{mask}'"))?;
                return Ok(is(&|s| ip_is(at(s), 4, mask.0, ip.0 & mask.0)));
            }
            if self.take(&["&"]) {
                // `src 10.0.0.0 & 8.0.0.0 = 8.0.0.0`: the first address is a mask.
                let other = self.next();
                let other =
                    Ip::parse(&other).ok_or_else(|| format!("expected an address, found '{other}'"))?;
                if !self.take(&["=", "=="]) {
                    return Err(format!("expected '=', found '{}'", self.peek()));
                }
                let value = self.next();
                let value =
                    Ip::parse(&value).ok_or_else(|| format!("expected an address, found '{value}'"))?;
                return Ok(comparison.apply(|_| {
                    E::And(vec![
                        direction.combine(&|s| ip_is(at(s), 4, u32::MAX, ip.0)),
                        E::Constant(ip.0 & other.0 == value.0),
                    ])
                }));
            }
            return Ok(is(&|s| ip_is(at(s), 4, u32::MAX, ip.0)));
        }
        let net = Prefix::read(&name, self.scope).or_else(|| {
            let mask =
                (kind == "net" && self.peek() == "mask").then(|| self.tokens.get(self.at + 1)).flatten();
            let mask = mask.and_then(|m| Ip::parse(m));
            let net = mask.zip(Ip::read(&name, self.scope)).map(|(mask, ip)| Prefix { ip, mask });
            self.at += if net.is_some() { 2 } else { 0 };
            net
        });
        match net.map(Prefix::network) {
            Some(net) => Ok(is(&|s| ip_is(at(s), 4, net.mask.0, net.ip.0))),
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
