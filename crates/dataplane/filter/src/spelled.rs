//! Spells out what an expression states, where libpcap takes it otherwise than pcap-filter(7) documents.
//!
//! - A relation that reads bytes of a protocol holds for packets of that protocol only. libpcap tests that
//!   for the first operand of a sum alone: `1 + tcp[13] = 3` would read bytes of any packet.
//! - `%` and `^` bind as in C. libpcap lets them end at the end of the sum.
//! - `ip multicast` holds for 224.0.0.0/4. libpcap includes all addresses above.

/// The depth of parentheses and brackets in a relation.
const MOST_DEPTH: u32 = 100;

/// Returns the text that libpcap compiles for an expression in its normal form.
pub(crate) fn spelled(expr: &str) -> Result<String, String> {
    let words: Vec<&str> = expr.split(' ').collect();
    let mut text = Text::default();
    // The words before `done` are in `text`.
    let (mut done, mut at) = (0, 0);
    while at < words.len() {
        if words[at..].starts_with(&["ip", "multicast"]) {
            words[done..at].iter().for_each(|word| text.push(word));
            text.push("( ip dst net 224.0.0.0 / 4 )");
            (done, at) = (at + 2, at + 2);
        } else if is_relation(words[at]) {
            let (start, end) = (start(&words, done, at), end(&words, at));
            words[done..start].iter().for_each(|word| text.push(word));
            match relation(&words[start..at], words[at], &words[at + 1..end])? {
                Some(relation) => text.push(&relation),
                // libpcap reports the fault.
                None => words[start..end].iter().for_each(|word| text.push(word)),
            }
            (done, at) = (end, end);
        } else {
            at += 1;
        }
    }
    words[done..].iter().for_each(|word| text.push(word));
    Ok(text.0)
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn push(&mut self, word: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(word);
    }
}

fn is_relation(word: &str) -> bool {
    matches!(word, "=" | "==" | "!=" | "<" | "<=" | ">" | ">=")
}

fn is_between(word: &str) -> bool {
    matches!(word, "and" | "or" | "not" | "&&" | "||" | "!")
}

/// Returns the first word of the left side of the relation at `at`.
fn start(words: &[&str], done: usize, at: usize) -> usize {
    let mut depth = 0;
    for start in (done..at).rev() {
        match words[start] {
            ")" | "]" => depth += 1,
            "(" | "[" if depth == 0 => return start + 1,
            "(" | "[" => depth -= 1,
            word if depth == 0 && is_between(word) => return start + 1,
            _ => {}
        }
    }
    done
}

/// Returns the word after the right side of the relation at `at`.
fn end(words: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (end, word) in words.iter().enumerate().skip(at + 1) {
        match *word {
            "(" | "[" => depth += 1,
            ")" | "]" if depth == 0 => return end,
            ")" | "]" => depth -= 1,
            word if depth == 0 && (is_between(word) || is_relation(word)) => return end,
            _ => {}
        }
    }
    words.len()
}

/// Returns the text of a relation, or `None` if a side is no sum.
fn relation(left: &[&str], operator: &str, right: &[&str]) -> Result<Option<String>, String> {
    let mut protocols = Vec::new();
    let (Some(left), Some(right)) = (side(left, &mut protocols)?, side(right, &mut protocols)?) else {
        return Ok(None);
    };
    let text = format!("{} {operator} {}", left.text, right.text);
    let is_tested = |protocol| [left.first, right.first].contains(&Some(protocol));
    if protocols.iter().copied().all(is_tested) {
        return Ok(Some(text));
    }
    let tests: Vec<String> = protocols.into_iter().map(test).collect();
    Ok(Some(format!("( {} and {text} )", tests.join(" and "))))
}

/// Returns the test with which libpcap precedes an access to bytes of a protocol.
fn test(protocol: &str) -> String {
    let number = match protocol {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "igrp" => 9,
        "udp" => 17,
        "pim" => 103,
        "vrrp" | "carp" => 112,
        "sctp" => 132,
        "icmp6" => return "ip6 [ 6 ] = 58".to_owned(),
        _ => return protocol.to_owned(),
    };
    format!("ip proto {number} and ip [ 6 : 2 ] & 8191 = 0")
}

/// Reads a side of a relation. `protocols` are those whose bytes were read before, and receive further ones.
fn side<'a>(words: &[&'a str], protocols: &mut Vec<&'a str>) -> Result<Option<Sum<'a>>, String> {
    let mut reader = Reader { words, protocols };
    let sum = reader.sum(0, 0)?;
    Ok(sum.filter(|_| reader.words.is_empty()))
}

/// A part of an arithmetic expression.
struct Sum<'a> {
    text: String,
    /// Whether it is an operation without parentheses.
    is_open: bool,
    /// The protocol of the first operand, which libpcap tests.
    first: Option<&'a str>,
}

impl Sum<'_> {
    fn close(&mut self) {
        if self.is_open {
            self.text = format!("( {} )", self.text);
            self.is_open = false;
        }
    }
}

struct Reader<'w, 'a> {
    words: &'w [&'a str],
    protocols: &'w mut Vec<&'a str>,
}

impl<'a> Reader<'_, 'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Reads operations that bind at least as strongly as `least`.
    fn sum(&mut self, least: u32, depth: u32) -> Result<Option<Sum<'a>>, String> {
        let Some(mut left) = self.operand(depth)? else { return Ok(None) };
        while let Some(&operator) = self.words.first()
            && let Some(strength) = strength(operator)
            && strength >= least
        {
            self.next();
            let Some(mut right) = self.sum(strength + 1, depth + 1)? else { return Ok(None) };
            let is_unsure = matches!(operator, "%" | "^");
            if is_unsure {
                left.close();
                right.close();
            }
            left.text.push_str(&format!(" {operator} {}", right.text));
            left.is_open = true;
            if is_unsure {
                left.close();
            }
        }
        Ok(Some(left))
    }

    fn operand(&mut self, depth: u32) -> Result<Option<Sum<'a>>, String> {
        if depth > MOST_DEPTH {
            return Err(format!(
                "its arithmetic is nested deeper than {MOST_DEPTH}: write fewer parentheses"
            ));
        }
        let Some(word) = self.next() else { return Ok(None) };
        let is_access = self.words.first() == Some(&"[");
        Ok(match word {
            "(" => {
                let Some(inner) = self.sum(0, depth + 1)? else { return Ok(None) };
                let text = format!("( {} )", inner.text);
                self.takes(")").then_some(Sum { text, is_open: false, first: inner.first })
            }
            "-" => {
                let Some(mut inner) = self.operand(depth + 1)? else { return Ok(None) };
                inner.text.insert_str(0, "- ");
                inner.is_open = true;
                Some(inner)
            }
            protocol if is_access => self.access(protocol, depth)?,
            word => Some(Sum { text: word.to_owned(), is_open: false, first: None }),
        })
    }

    fn access(&mut self, protocol: &'a str, depth: u32) -> Result<Option<Sum<'a>>, String> {
        self.next();
        let is_link = matches!(protocol, "link" | "ether" | "ppp" | "slip" | "fddi" | "tr" | "wlan");
        if !is_link && !self.protocols.contains(&protocol) {
            self.protocols.push(protocol);
        }
        let Some(index) = self.sum(0, depth + 1)? else { return Ok(None) };
        let size = if self.takes(":") { self.next() } else { None };
        let text = match size {
            Some(size) => format!("{protocol} [ {} : {size} ]", index.text),
            None => format!("{protocol} [ {} ]", index.text),
        };
        let first = (!is_link).then_some(protocol);
        Ok(self.takes("]").then_some(Sum { text, is_open: false, first }))
    }
}

/// Returns how strongly an operator binds, as in C.
fn strength(operator: &str) -> Option<u32> {
    Some(match operator {
        "|" => 0,
        "^" => 1,
        "&" => 2,
        "<<" | ">>" => 3,
        "+" | "-" => 4,
        "*" | "/" | "%" => 5,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_spelled_out_and_all_else_stays() {
        let tcp = "ip proto 6 and ip [ 6 : 2 ] & 8191 = 0";
        for (text, expected) in [
            ("tcp port 80", "tcp port 80".to_owned()),
            ("not ( ip [ 0 ] & 15 != 5 )", "not ( ip [ 0 ] & 15 != 5 )".to_owned()),
            ("ip [ 2 : 2 ] - 4 > 9 or tcp", "ip [ 2 : 2 ] - 4 > 9 or tcp".to_owned()),
            ("link [ 0 ] + ether [ 1 ] = 1", "link [ 0 ] + ether [ 1 ] = 1".to_owned()),
            ("tcp [ 0 ] = udp [ 0 ]", "tcp [ 0 ] = udp [ 0 ]".to_owned()),
            ("not 1 + tcp [ 0 ] = 2 and ip", format!("not ( {tcp} and 1 + tcp [ 0 ] = 2 ) and ip")),
            (
                "ip and ( ip [ 2 ] - tcp [ 12 ] != 0 )",
                format!("ip and ( ( ip and {tcp} and ip [ 2 ] - tcp [ 12 ] != 0 ) )"),
            ),
            ("8 * 5 % 3 + 1 = 2", "( ( 8 * 5 ) % 3 ) + 1 = 2".to_owned()),
            ("1 & 2 ^ 3 | 4 = 5", "( ( 1 & 2 ) ^ 3 ) | 4 = 5".to_owned()),
            ("9 % 4 % 3 < - ( 1 + 2 )", "( ( 9 % 4 ) % 3 ) < - ( 1 + 2 )".to_owned()),
            ("- 9 % - 4 = 1", "( ( - 9 ) % ( - 4 ) ) = 1".to_owned()),
            ("1 + ip6 [ 0 ] = 9", "( ip6 and 1 + ip6 [ 0 ] = 9 )".to_owned()),
            ("1 + icmp6 [ 0 ] = 9", "( ip6 [ 6 ] = 58 and 1 + icmp6 [ 0 ] = 9 )".to_owned()),
            ("not ip multicast or tcp", "not ( ip dst net 224.0.0.0 / 4 ) or tcp".to_owned()),
            // Faults stay for libpcap to find.
            ("= 5", "= 5".to_owned()),
            ("tcp and ( ip ) + = 5", "tcp and ( ip ) + = 5".to_owned()),
            ("1 = 2 = 3", "1 = 2 = 3".to_owned()),
            ("ip [ 0 = 1 ]", "ip [ 0 = 1 ]".to_owned()),
        ] {
            assert_eq!(spelled(text), Ok(expected), "{text}");
        }
        let deep = format!("{}1{} = 1", "( ".repeat(5000), " )".repeat(5000));
        assert!(spelled(&deep).unwrap_err().contains("deeper than 100"));
        let long = format!("1{} = 1", " + 1".repeat(8000));
        assert_eq!(spelled(&long), Ok(long.clone()));
    }
}
