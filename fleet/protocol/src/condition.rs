//! Conditions over the labels of nodes: `site = "penn" and speed >= 10G`.

use std::collections::BTreeMap;
use std::fmt;

/// The most characters of a condition.
pub const MAX_TEXT: usize = 2048;
/// The most comparisons, and the most levels of parentheses and `not`.
pub const MAX_TERMS: usize = 64;
const MAX_DEPTH: usize = 16;
/// The most characters of a name or of a text.
const MAX_WORD: usize = 128;

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    Text(String),
    Number(u64),
}

/// The labels of a node by name.
pub type Labels = BTreeMap<String, Label>;

/// A condition over labels.
///
/// ```text
/// condition   = and { "or" and }          and        = not { "and" not }
/// not         = [ "not" ] ( comparison | "(" condition ")" )
/// comparison  = name ( "=" | "!=" ) ( text | number ) | name ( "<" | "<=" | ">" | ">=" ) number
/// number      = digits [ "k" | "K" | "M" | "G" | "T" ], of 1000 each
/// ```
///
/// A comparison with a label that the node lacks, or has as a value of another kind, is false; its `not` is
/// true. The empty condition is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(Option<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Any(Vec<Term>),
    All(Vec<Term>),
    Not(Box<Term>),
    Compare(String, Operator, Label),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The fault of a condition, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: found {found}, expected {expected}")]
pub struct ConditionError {
    pub column: usize,
    pub found: String,
    pub expected: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Number(u64),
    Operator(Operator),
    Open,
    Close,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Text(text) => write!(f, "the text {text:?}"),
            Self::Number(number) => write!(f, "the number {number}"),
            Self::Operator(_) => f.write_str("a comparison"),
            Self::Open => f.write_str("\"(\""),
            Self::Close => f.write_str("\")\""),
        }
    }
}

fn fault(column: usize, found: impl Into<String>, expected: &'static str) -> ConditionError {
    ConditionError { column: column + 1, found: found.into(), expected }
}

/// Returns the tokens of a text, each with its column from 0.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ConditionError> {
    let chars: Vec<char> = text.chars().take(MAX_TEXT + 1).collect();
    if chars.len() > MAX_TEXT {
        return Err(fault(
            MAX_TEXT,
            "more text",
            "a condition of at most 2048 characters: use a label for it",
        ));
    }
    let (mut at, mut all) = (0, Vec::new());
    while let Some(&c) = chars.get(at) {
        let start = at;
        let run = |from: usize, is: fn(&char) -> bool| chars[from..].iter().take_while(|c| is(c)).count();
        let next_is_equal = chars.get(at + 1) == Some(&'=');
        at += 1;
        let token = match c {
            c if c.is_ascii_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            '=' => Token::Operator(Operator::Equal),
            '!' | '<' | '>' if next_is_equal => {
                at += 1;
                Token::Operator(match c {
                    '!' => Operator::Unequal,
                    '<' => Operator::AtMost,
                    _ => Operator::AtLeast,
                })
            }
            '<' => Token::Operator(Operator::Less),
            '>' => Token::Operator(Operator::More),
            '"' => {
                let length = run(at, |c| *c != '"' && !c.is_control());
                let text: String = chars[at..at + length].iter().collect();
                at += length + 1;
                if chars.get(at - 1) != Some(&'"') || length > MAX_WORD {
                    return Err(fault(start, "a text without an end", "a \" after at most 128 characters"));
                }
                Token::Text(text)
            }
            '0'..='9' => {
                at = start + run(start, |c| c.is_ascii_alphanumeric() || *c == '.');
                let text: String = chars[start..at].iter().collect();
                let expected = "a whole number below 2^64, as 10, 10k, 10M, 10G or 10T";
                Token::Number(number(&text).ok_or_else(|| fault(start, format!("{text:?}"), expected))?)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                at = start + run(start, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
                let word: String = chars[start..at].iter().collect();
                if word.len() > MAX_WORD {
                    return Err(fault(start, "a longer name", "a name of at most 128 characters"));
                }
                Token::Word(word)
            }
            c => {
                let expected = "a name, a comparison, a number, a text in \"\", and, or, not, ( or )";
                return Err(fault(start, format!("{c:?}"), expected));
            }
        };
        all.push((start, token));
    }
    Ok(all)
}

/// Reads a number of a condition or a label: digits, and k, M, G or T for 1000 each.
pub fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<(usize, Token)>>,
    /// The column behind the text.
    end: usize,
    terms: usize,
}

impl Parser {
    fn is_word(&mut self, word: &str) -> bool {
        self.tokens.next_if(|(_, token)| *token == Token::Word(word.to_owned())).is_some()
    }

    /// Returns the error about the next token.
    fn unexpected(&mut self, expected: &'static str) -> ConditionError {
        match self.tokens.next() {
            Some((at, token)) => fault(at, token.to_string(), expected),
            None => fault(self.end, "the end", expected),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Term, ConditionError> {
        let mut all = vec![self.all(depth)?];
        while self.is_word("or") {
            all.push(self.all(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Term::Any(all) })
    }

    fn all(&mut self, depth: usize) -> Result<Term, ConditionError> {
        let mut all = vec![self.not(depth)?];
        while self.is_word("and") {
            all.push(self.not(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Term::All(all) })
    }

    fn not(&mut self, depth: usize) -> Result<Term, ConditionError> {
        if depth == 0 {
            return Err(self.unexpected("at most 16 levels of ( and not: state it as flat as it can be"));
        }
        if self.is_word("not") {
            return Ok(Term::Not(Box::new(self.not(depth - 1)?)));
        }
        if self.tokens.next_if(|(_, token)| *token == Token::Open).is_some() {
            let inner = self.any(depth - 1)?;
            return match self.tokens.next_if(|(_, token)| *token == Token::Close) {
                Some(_) => Ok(inner),
                None => Err(self.unexpected("and, or, or )")),
            };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Term, ConditionError> {
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(self.unexpected("at most 64 comparisons: give the nodes a label for this"));
        }
        let is_free = |word: &str| !matches!(word, "and" | "or" | "not");
        let is_name = |(_, token): &(usize, Token)| matches!(token, Token::Word(word) if is_free(word));
        let Some((_, Token::Word(name))) = self.tokens.next_if(is_name) else {
            return Err(self.unexpected("the name of a label, not, or ("));
        };
        let Some((_, Token::Operator(operator))) =
            self.tokens.next_if(|(_, token)| matches!(token, Token::Operator(_)))
        else {
            return Err(self.unexpected("=, !=, <, <=, > or >="));
        };
        let is_equality = matches!(operator, Operator::Equal | Operator::Unequal);
        let is_value = |(_, token): &(usize, Token)| match token {
            Token::Number(_) => true,
            Token::Text(_) => is_equality,
            _ => false,
        };
        match self.tokens.next_if(is_value) {
            Some((_, Token::Number(number))) => Ok(Term::Compare(name, operator, Label::Number(number))),
            Some((_, Token::Text(text))) => Ok(Term::Compare(name, operator, Label::Text(text))),
            _ if is_equality => Err(self.unexpected("a number, or a text in \"\"")),
            _ => Err(self.unexpected("a number, as 10G: only = and != compare texts")),
        }
    }
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    ///
    /// Returns the first fault with its column.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Ok(Self(None));
        }
        let mut parser =
            Parser { tokens: tokens.into_iter().peekable(), end: text.chars().count(), terms: 0 };
        let term = parser.any(MAX_DEPTH)?;
        match parser.tokens.peek() {
            None => Ok(Self(Some(term))),
            Some(_) => Err(parser.unexpected("and, or, or the end")),
        }
    }

    /// Returns whether a node with these labels meets the condition.
    pub fn holds(&self, labels: &Labels) -> bool {
        self.0.as_ref().is_none_or(|term| term.holds(labels))
    }
}

impl Term {
    fn holds(&self, labels: &Labels) -> bool {
        match self {
            Self::Any(terms) => terms.iter().any(|term| term.holds(labels)),
            Self::All(terms) => terms.iter().all(|term| term.holds(labels)),
            Self::Not(term) => !term.holds(labels),
            Self::Compare(name, operator, value) => match (labels.get(name), value) {
                (Some(Label::Text(found)), Label::Text(value)) => operator.holds(found, value),
                (Some(Label::Number(found)), Label::Number(value)) => operator.holds(found, value),
                _ => false,
            },
        }
    }
}

impl Operator {
    fn holds<T: Ord>(self, found: T, value: T) -> bool {
        match self {
            Self::Equal => found == value,
            Self::Unequal => found != value,
            Self::Less => found < value,
            Self::AtMost => found <= value,
            Self::More => found > value,
            Self::AtLeast => found >= value,
        }
    }
}
