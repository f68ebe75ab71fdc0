//! The steps that rules and checks take for one combination of facts. A step is the time of an operation on
//! numbers; operations on texts and on sets, arrays and maps take more of them, the longer those are.

use super::{MAX_ELEMENTS, pattern};
use biscuit_auth::BlockBuilder;
use biscuit_auth::builder::{Binary, Op, Predicate, Rule, Term, Unary};

/// The number of steps that a regular expression costs, and each of its characters. It is compiled at each
/// use, which takes the longer the longer it is.
const REGEX: u64 = 20_000;
const REGEX_CHARACTER: u64 = 300;
/// The number of bytes of a text that are searched, compared or copied in one step, and of texts among which
/// a new one is looked up.
const BYTES: u64 = 32;
/// The length in bytes of the longest text that the node gives to checks: names, keys and hashes.
const GIVEN_BYTES: u64 = 128;

/// The most that a value contains.
#[derive(Clone, Copy)]
struct Size {
    /// The bytes of its longest text.
    text: u64,
    /// The number of its elements, those of elements included, and itself.
    elements: u64,
}

/// A number, a truth value or a time.
const SCALAR: Size = Size { text: 0, elements: 1 };

impl Size {
    fn of(term: &Term) -> Self {
        match term {
            Term::Str(text) => Self { text: text.len() as u64, ..SCALAR },
            // They are copied and compared with the value, other than texts.
            Term::Bytes(bytes) => Self { elements: 1 + bytes.len() as u64 / BYTES, ..SCALAR },
            Term::Set(set) => Self::of_all(set.iter()),
            Term::Array(array) => Self::of_all(array.iter()),
            // With their keys.
            Term::Map(map) => {
                let values = Self::of_all(map.values());
                Self { elements: values.elements.saturating_add(map.len() as u64), ..values }
            }
            _ => SCALAR,
        }
    }

    fn of_all<'a>(elements: impl Iterator<Item = &'a Term>) -> Self {
        elements.map(Self::of).fold(SCALAR, |all, one| Self {
            text: all.text.max(one.text),
            elements: all.elements.saturating_add(one.elements),
        })
    }

    fn max(self, other: Self) -> Self {
        Self { text: self.text.max(other.text), elements: self.elements.max(other.elements) }
    }

    /// Returns the size of a value that is made of both.
    fn and(self, other: Self) -> Self {
        Self {
            text: self.text.saturating_add(other.text),
            elements: self.elements.saturating_add(other.elements),
        }
    }
}

/// A value while an expression is evaluated.
struct Value {
    size: Size,
    /// The steps of each evaluation, if it is a closure, and whether it has a parameter.
    closure: Option<(u64, bool)>,
}

/// The sizes of the values in some blocks.
pub struct Sizes {
    /// The largest value that a fact may have.
    largest: Size,
    /// The number of names and texts.
    symbols: u64,
}

impl Sizes {
    pub fn of(blocks: &[BlockBuilder]) -> Self {
        let mut all = Self { largest: Size { text: GIVEN_BYTES, ..SCALAR }, symbols: 0 };
        for block in blocks {
            block.facts.iter().for_each(|fact| all.predicate(&fact.predicate));
            let queries = block.checks.iter().flat_map(|check| &check.queries);
            for rule in block.rules.iter().chain(queries) {
                all.predicate(&rule.head);
                rule.body.iter().for_each(|predicate| all.predicate(predicate));
                rule.expressions.iter().for_each(|e| all.ops(&e.ops));
            }
        }
        all
    }

    fn predicate(&mut self, predicate: &Predicate) {
        self.symbols += 1;
        predicate.terms.iter().for_each(|term| self.term(term));
    }

    fn ops(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Value(term) => self.term(term),
                Op::Closure(_, inner) => self.ops(inner),
                Op::Unary(_) | Op::Binary(_) => {}
            }
        }
    }

    fn term(&mut self, term: &Term) {
        let size = Size::of(term);
        self.largest = self.largest.max(size);
        self.symbols = self.symbols.saturating_add(size.elements);
    }

    /// Returns the number of steps of a rule or a query for one combination of facts.
    pub fn steps(&self, rule: &Rule) -> u64 {
        // All values are compared and copied, with their elements, for each predicate.
        let terms: u64 = rule.body.iter().map(|predicate| predicate.terms.len() as u64).sum();
        let values = terms.saturating_mul(rule.body.len() as u64);
        let begun = 1u64.saturating_add(values.saturating_mul(self.largest.elements));
        rule.expressions.iter().fold(begun, |n, e| n.saturating_add(self.evaluated(&e.ops).0))
    }

    /// Returns the number of steps of an expression, and the size of its result.
    fn evaluated(&self, ops: &[Op]) -> (u64, Size) {
        let (mut n, mut stack) = (0u64, Vec::new());
        // An expression that lacks a value ends with an error.
        let unknown = || Value { size: self.largest, closure: None };
        for (at, op) in ops.iter().enumerate() {
            let (steps, value) = match op {
                Op::Value(Term::Variable(_) | Term::Parameter(_)) => (self.largest.elements, unknown()),
                Op::Value(term) => {
                    let size = Size::of(term);
                    (size.elements, Value { size, closure: None })
                }
                Op::Closure(parameters, inner) => {
                    let (steps, size) = self.evaluated(inner);
                    let closure = Some((steps, !parameters.is_empty()));
                    // It is copied.
                    (steps, Value { size, closure })
                }
                Op::Unary(unary) => {
                    let of = stack.pop().unwrap_or_else(unknown);
                    match unary {
                        Unary::Parens => (1, of),
                        // Its result is a text.
                        Unary::TypeOf => (1 + self.symbols / BYTES, Value { size: SCALAR, closure: None }),
                        Unary::Negate | Unary::Length => (1, Value { size: SCALAR, closure: None }),
                        Unary::Ffi(_) => (1, unknown()),
                    }
                }
                Op::Binary(binary) => {
                    let right = stack.pop().unwrap_or_else(unknown);
                    let left = stack.pop().unwrap_or_else(unknown);
                    let (steps, size) = self.binary(binary, &left, &right, &ops[..at]);
                    (steps, Value { size, closure: None })
                }
            };
            n = n.saturating_add(steps);
            stack.push(value);
        }
        (n, stack.pop().map_or(SCALAR, |value| value.size))
    }

    /// Returns the number of steps of an operation, and the size of its result. `before` has the operations
    /// before it.
    fn binary(&self, binary: &Binary, left: &Value, right: &Value, before: &[Op]) -> (u64, Size) {
        let (a, b) = (left.size, right.size);
        // Closures stand on either side. Those of `&&`, `||` and `try_or` have no parameter and run once.
        let closures = [(left.closure, b), (right.closure, a)];
        if let Some((steps, has_parameter, over)) =
            closures.into_iter().find_map(|(closure, over)| closure.map(|(steps, has)| (steps, has, over)))
        {
            let times = if has_parameter { over.elements.max(MAX_ELEMENTS as u64) } else { 1 };
            return (steps.saturating_mul(times).saturating_add(1), a.max(b));
        }
        let both = a.and(b);
        let (texts, elements) = (both.text / BYTES, both.elements - 2);
        let n = 1u64.saturating_add(elements);
        match binary {
            Binary::Contains | Binary::Prefix | Binary::Suffix => (n.saturating_add(texts), SCALAR),
            Binary::Equal | Binary::NotEqual | Binary::HeterogeneousEqual | Binary::HeterogeneousNotEqual => {
                (n, SCALAR)
            }
            Binary::Add => {
                let size = Size { text: both.text, ..SCALAR };
                (1u64.saturating_add(texts).saturating_add(self.symbols / BYTES), size)
            }
            Binary::Union => (n, Size { text: a.text.max(b.text), ..both }),
            Binary::Intersection => (n, a),
            Binary::Get => (1, a),
            Binary::Regex => {
                let length = pattern(before).map_or(usize::MAX, str::len) as u64;
                let compiled = REGEX.saturating_add(length.saturating_mul(REGEX_CHARACTER));
                (compiled.saturating_add(a.text.saturating_mul(length) / BYTES), SCALAR)
            }
            Binary::Ffi(_) => (1, self.largest),
            _ => (1, SCALAR),
        }
    }
}
