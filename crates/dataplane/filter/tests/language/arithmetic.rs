//! Sums, and accesses to bytes.

use super::read::Reader;
use super::terms::{access, position};
use super::{Packet, Test, and, test};
use std::rc::Rc;

type Number = Rc<dyn Fn(&Packet) -> Option<u32>>;

/// Operators from the weakest to the strongest, as in C.
const OPERATORS: [&[&str]; 6] = [&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];
const RELATIONS: [&str; 7] = ["<=", ">=", "==", "!=", "=", "<", ">"];

pub fn is_operator(word: &str) -> bool {
    RELATIONS.contains(&word) || word == "[" || OPERATORS.iter().any(|all| all.contains(&word))
}

/// Reads a relation.
pub fn relation(reader: &mut Reader) -> Option<Test> {
    let mut included = Vec::new();
    let left = sum(reader, 0, &mut included)?;
    let relation = RELATIONS.into_iter().find(|word| reader.takes(word))?;
    let right = sum(reader, 0, &mut included)?;
    let holds = test(move |p| {
        let (a, b) = (left(p)?, right(p)?);
        Some(match relation {
            "<=" => a <= b,
            ">=" => a >= b,
            "!=" => a != b,
            "<" => a < b,
            ">" => a > b,
            _ => a == b,
        })
    });
    // The tests that accesses include come first, in the order of the text.
    Some(included.into_iter().rev().fold(holds, |holds, included| and(included, holds)))
}

fn sum(reader: &mut Reader, level: usize, included: &mut Vec<Test>) -> Option<Number> {
    if level == OPERATORS.len() {
        return operand(reader, included);
    }
    let mut left = sum(reader, level + 1, included)?;
    while let Some(operator) = OPERATORS[level].iter().find(|word| reader.takes(word)) {
        let (a, b) = (left, sum(reader, level + 1, included)?);
        left = Rc::new(move |p| calculate(operator, a(p)?, b(p)?));
    }
    Some(left)
}

fn calculate(operator: &str, a: u32, b: u32) -> Option<u32> {
    Some(match operator {
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "<<" => a.checked_shl(b).unwrap_or(0),
        ">>" => a.checked_shr(b).unwrap_or(0),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b)?,
        _ => a.checked_rem(b)?,
    })
}

fn operand(reader: &mut Reader, included: &mut Vec<Test>) -> Option<Number> {
    if reader.takes("(") {
        let inner = sum(reader, 0, included)?;
        return reader.takes(")").then_some(inner);
    }
    if reader.takes("-") {
        let inner = operand(reader, included)?;
        return Some(Rc::new(move |p| Some(inner(p)?.wrapping_neg())));
    }
    let word = reader.next()?;
    if reader.takes("[") {
        let (test, from) = access(reader.layers, &word)?;
        included.extend(test);
        let index = sum(reader, 0, included)?;
        let size = if reader.takes(":") { reader.number()? } else { 1 };
        let payload = reader.layers.payload();
        return reader.takes("]").then_some(Rc::new(move |p| {
            let (base, more) = position(p, payload, from)?;
            // An index may point in front of a transport header.
            p.number(base + u64::from(more.wrapping_add(index(p)?)), size.into())
        }));
    }
    let value = match word.as_str() {
        "len" | "length" => return Some(Rc::new(|p| Some(p.wire_len))),
        "tcpflags" => 13,
        "tcp-fin" => 1,
        "tcp-syn" => 2,
        "tcp-rst" => 4,
        "tcp-ack" => 16,
        "icmptype" | "icmp6type" => 0,
        "icmpcode" | "icmp6code" => 1,
        "icmp-echo" => 8,
        "icmp-unreach" => 3,
        number => {
            number.strip_prefix("0x").map_or(number.parse(), |hex| u32::from_str_radix(hex, 16)).ok()?
        }
    };
    Some(Rc::new(move |_| Some(value)))
}
