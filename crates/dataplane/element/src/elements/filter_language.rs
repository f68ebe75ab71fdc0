//! Click's language of IP filters: tokens and operators. Primitives are in `primitive.rs`, expressions in
//! `filter_expression.rs`.

mod primitive;

use super::filter_expression::Expression;
use flame_click::Scope;
use primitive::Previous;

use Expression as E;

/// Deeper nesting is refused.
const DEPTH: u32 = 100;

pub struct Parser<'a> {
    pub(super) tokens: Vec<String>,
    pub(super) at: usize,
    pub(super) scope: &'a Scope<'a>,
    depth: u32,
    pub(super) previous: Previous,
}

/// Parses a pattern.
pub fn parse(pattern: &str, scope: &Scope<'_>) -> Result<Expression, String> {
    let tokens = tokens(&flame_click::text::unquote(pattern));
    let mut parser = Parser { tokens, at: 0, scope, depth: 0, previous: Previous::default() };
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
    pub(super) fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    pub(super) fn next(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().unwrap_or_default()
    }

    pub(super) fn take(&mut self, words: &[&str]) -> bool {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::packet::Packet;
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
            ("src host > 1.0.0.1", "addresses can be compared by '=' and '!=' only"),
            ("src host & x", "expected a mask, found 'x'"),
            ("src host & 255.0.0.0 == tcp", "expected an address, found 'tcp'"),
            ("src host & 255.0.0.0 > 1.0.0.0", "addresses can be compared by '=' and '!=' only"),
            ("80", "expected a field or 'port' before '80'"),
            ("src 1.0.0.1 or 80", "expected a field or 'port' before '80'"),
            ("tcp src port 80 or dst 81", "expected an address, a prefix or a test, found '81'"),
        ] {
            assert_eq!(parse(pattern, &Scope::none()).unwrap_err(), wanted, "{pattern}");
        }
        assert!(parse(&"(".repeat(100_000), &Scope::none()).unwrap_err().contains("nested"));
    }

    /// Returns an IP packet of a protocol, with ports (or type and code) and flags of TCP.
    fn packet(protocol: u8, src: [u8; 4], dst: [u8; 4], ports: (u16, u16), flags: u8) -> Packet {
        let mut b = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 7, protocol, 0, 0];
        b.extend(src.into_iter().chain(dst));
        b.extend(ports.0.to_be_bytes().into_iter().chain(ports.1.to_be_bytes()));
        b.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 9, 0, 0, 0, 0]);
        let mut p = Packet::new(&b);
        p.set_network(0, 20);
        p
    }

    #[test]
    fn primitives_mean_what_they_mean_in_click() {
        // Packets: 1.0.0.1:40000 > 2.0.0.2:22 (TCP, SYN), back, 1.0.0.1:53 > 3.0.0.3:5353 (UDP), ping.
        let packets = [
            packet(6, [1, 0, 0, 1], [2, 0, 0, 2], (40000, 22), 2),
            packet(6, [2, 0, 0, 2], [1, 0, 0, 1], (22, 40000), 18),
            packet(17, [1, 0, 0, 1], [3, 0, 0, 3], (53, 5353), 0),
            packet(1, [3, 0, 0, 3], [1, 0, 0, 1], (0x0800, 0), 0),
        ];
        let names = crate::runtime::names::Names::default();
        let scope = Scope { names: &names, element: "" };
        for (pattern, wanted) in [
            // Negated relations negate both directions.
            ("tcp port != 22", ""),
            ("tcp port != 23", "01"),
            ("tcp dst port != 22", "1"),
            ("port != 53", "01"),
            ("port <= 1023", ""),
            ("port <= 5353", "2"),
            ("port >= 1024", ""),
            ("port >= 22", "012"),
            ("port < 1024", "012"),
            ("port > 1023", "012"),
            ("src and dst port >= 53", "012"),
            ("src or dst port != 22", "2"),
            ("src and dst port != 22", "012"),
            ("not tcp port != 22", "0123"),
            ("udp port != 22", "2"),
            ("host != 1.0.0.1", ""),
            ("src host != 1.0.0.1", "13"),
            ("net != 2.0.0.0/8", "23"),
            // Qualifiers hold on.
            ("src 1.0.0.1 or 2.0.0.2", "012"),
            ("src 1.0.0.9 or 2.0.0.2", "1"),
            ("src 1.0.0.9 or not 2.0.0.2", "023"),
            ("src 1.0.0.9 or (2.0.0.2)", "1"),
            ("dst 3.0.0.3 or 2.0.0.0/8", "02"),
            ("src 1.0.0.9 or host 2.0.0.2", "01"),
            ("src 1.0.0.9 or tcp or 2.0.0.2", "01"),
            ("2.0.0.2 or 3.0.0.3", "0123"),
            ("tcp dst port 23 or 22", "0"),
            ("tcp dst port 23 or = 22", "0"),
            ("dst port 5353 or 22", "02"),
            ("udp port 53 or 22", "2"),
            ("src port 53 or 2.0.0.2", "12"),
            ("ip proto 1 or 17", "23"),
            ("ip proto != 6", "23"),
            ("icmp type 0 or 8", "3"),
            ("icmp type != 8", ""),
            ("ip ttl 6 or 7", "0123"),
            ("ip ttl != 7", ""),
            ("ip ttl >= 7", "0123"),
            ("ip ttl >= 8", ""),
            ("ip ttl < 8 and > 7", ""),
            ("tcp win != 9", ""),
            ("tcp win >= 9", "01"),
            ("ip[9] & 1 = 1 or 6", "0123"),
            ("ip[9] != 6", "23"),
            ("dst tcp port 8000 or 22", "0"),
            ("src tcp port != 5", "01"),
            ("src udp port 53", "2"),
            ("dst tcp 22", "0"),
            ("src and dst udp port >= 53", "2"),
            ("src tcp port & 10 == 2", "1"),
            ("dst port & 1", "2"),
            ("port ssh", "01"),
            ("ssh", "01"),
            ("dst ssh", "0"),
            ("dns or dst ssh", "02"),
            ("ip ttl & 4 == 4", "0123"),
            ("ip ttl & 8", ""),
            ("ip ttl & 3", "0123"),
            ("icmp type & 8", "3"),
            ("tcp[13] & 2 = 2", "01"),
            ("tcp[13] & 16", "1"),
            ("udp[2:2] 5353", "2"),
            ("icmp[0] 8", "3"),
            ("udp[0:2] != 53", ""),
            ("src host & 255.255.0.0 == 1.0.0.0", "02"),
            ("src & 255.0.0.0 != 1.0.0.0", "13"),
            ("host & 255.0.0.0 = 3.0.0.0", "23"),
            ("host & 255.0.0.0 != 3.0.0.0", "01"),
            ("dst host & 0.0.0.2", "02"),
            ("src net & 255.0.0.0 1.0.0.0 and tcp", "0"),
            ("src host & 255.0.0.0 == 1.0.0.1", ""),
            ("ip proto & 4 == 4", "01"),
            ("ip proto & 16", "2"),
            ("ip proto & 1 tcp", ""),
            ("syn", "01"),
            ("syn and not ack", "0"),
            ("ip frag", ""),
            ("ip unfrag", "0123"),
            ("src 1.0.0.1 ? dst 3.0.0.3 : icmp", "23"),
        ] {
            let e = parse(pattern, &scope).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            let found: String = (0..4).filter(|i| e.matches(&packets[*i])).map(|i| i.to_string()).collect();
            assert_eq!(found, wanted, "{pattern}");
        }
        // Later fragments and short packets have no ports: neither `=` nor `!=` of a fragment's.
        let mut fragment = packet(6, [1, 0, 0, 1], [2, 0, 0, 2], (1, 2), 0);
        fragment.data_mut()[7] = 1;
        for pattern in ["tcp port != 22", "tcp port = 1", "port >= 0"] {
            assert!(!parse(pattern, &Scope::none()).unwrap().matches(&fragment), "{pattern}");
        }
        // Neither a relation of bytes that a packet lacks nor its contrary holds, but `not` of it.
        let mut short = packet(6, [1, 0, 0, 1], [2, 0, 0, 2], (1, 2), 0);
        short.truncate(21);
        for pattern in [
            "transp[1] = 1",
            "transp[1] != 1",
            "transp[1] & 128 >= 5",
            "tcp win <= 9",
            "tcp src port != 5",
            "dst port >= 5",
            "ip[40:2] != 0",
            "src != 1:2:3:4:5:6",
            "ether src 1:2:3:4:5:6",
        ] {
            let matches = |pattern: &str| parse(pattern, &Scope::none()).unwrap().matches(&short);
            assert!(!matches(pattern) && matches(&format!("not ({pattern})")), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics(words in prop::collection::vec("(src|dst|host|net|port|ip|tcp|and|or|not|[!&=()\\[\\]?:<]|1|1\\.0\\.0\\.1|10/8|mask|proto|x)", 0..12)) {
            let _ = parse(&words.join(" "), &Scope::none());
        }
    }
}
