//! Classifier(PATTERN…): sends each packet to the output of the first pattern that it matches. A pattern is a
//! list of `OFFSET/HEX`, with `?` for any digit, `%MASK`, `!` before it for not, or `-` for any packet.
//! Expects: anything.
//! Gives: packets; those that match no pattern are dropped.
//! Handlers: none.
//! Example: `Classifier(12/0806 20/0001, 12/0800, -)`

use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{Batch, Packet};

const SOURCE: &str = include_str!("classify.rs");

struct Clause {
    offset: usize,
    value: Vec<u8>,
    mask: Vec<u8>,
    negated: bool,
}

impl Clause {
    fn parse(word: &str) -> Result<Self, String> {
        let bad = || format!("expected 'OFFSET/HEX[%MASK]', found '{word}'");
        let (negated, rest) = word.strip_prefix('!').map_or((false, word), |r| (true, r));
        let (offset, digits) = rest.split_once('/').ok_or_else(bad)?;
        let offset: usize = offset.parse().map_err(|_| bad())?;
        let (digits, mask_digits) = digits.split_once('%').map_or((digits, None), |(d, m)| (d, Some(m)));
        let nibbles = |text: &str, wild: bool| -> Result<Vec<(u8, u8)>, String> {
            let one = |c: char| match c.to_digit(16) {
                Some(d) => Ok((d as u8, 15)),
                None if c == '?' && wild => Ok((0, 0)),
                None => Err(bad()),
            };
            let all: Result<Vec<_>, _> = text.chars().map(one).collect();
            all.and_then(|a| {
                if a.len() % 2 == 0 { Ok(a) } else { Err(format!("odd number of digits in '{word}'")) }
            })
        };
        let given = nibbles(digits, true)?;
        let (value, mut mask): (Vec<u8>, Vec<u8>) =
            given.chunks(2).map(|n| (n[0].0 << 4 | n[1].0, n[0].1 << 4 | n[1].1)).unzip();
        if let Some(text) = mask_digits {
            let other = nibbles(text, false)?;
            if other.len() != given.len() {
                return Err(format!("mask and value differ in length in '{word}'"));
            }
            mask.iter_mut().zip(other.chunks(2)).for_each(|(m, n)| *m &= n[0].0 << 4 | n[1].0);
        }
        if offset > 65_535 || value.is_empty() {
            return Err(bad());
        }
        Ok(Self { offset, value, mask, negated })
    }

    fn matches(&self, bytes: &[u8]) -> bool {
        let field = bytes.get(self.offset..self.offset + self.value.len());
        let equal = field
            .is_some_and(|f| f.iter().zip(&self.value).zip(&self.mask).all(|((b, v), m)| (b ^ v) & m == 0));
        equal != self.negated
    }
}

/// Sends the packets of a batch to outputs. Packets in a row for the same output leave together.
pub fn distribute(cx: &Cx<'_>, mut batch: Batch, output: impl Fn(&Packet) -> Option<usize>) {
    let (mut run, mut port) = (Batch::default(), 0);
    for p in batch.drain(..) {
        match output(&p) {
            Some(to) if to < cx.outputs() => {
                if to != port {
                    cx.push(port, std::mem::take(&mut run));
                    port = to;
                }
                run.push(p);
            }
            _ => cx.drop("no match", p),
        }
    }
    cx.push(port, run);
}

struct Classifier(Vec<Vec<Clause>>);

impl Element for Classifier {
    fn push(&self, cx: &Cx<'_>, _: usize, batch: Batch) {
        distribute(cx, batch, |p| self.0.iter().position(|c| c.iter().all(|c| c.matches(p.data()))));
    }
}

class!(CLASSIFIER, "Classifier", "1/-", "h/h", [], |args, setup| {
    let patterns = args.rest();
    if patterns.len() != setup.outputs {
        args.error(format!("need {} patterns, one for each output, found {}", setup.outputs, patterns.len()));
    }
    let mut all = Vec::new();
    for pattern in patterns {
        let words = pattern.split_ascii_whitespace().filter(|w| *w != "-");
        match words.map(Clause::parse).collect() {
            Ok(clauses) => all.push(clauses),
            Err(e) => args.error(e),
        }
    }
    Box::new(Classifier(all))
});
