//! Tokens.

use crate::error::Errors;
use crate::variables::LONGEST;
use flame_click::text::decode;
use std::rc::Rc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Name(String),
    Variable(String),
    /// `->`
    Arrow,
    /// `=>`
    DoubleArrow,
    /// `::`
    Colons,
    /// `||`
    Bars,
    /// `...`
    Dots,
    /// Any other character.
    Char(char),
    End,
}

impl Token {
    pub fn text(&self) -> String {
        match self {
            Self::Name(n) => n.clone(),
            Self::Variable(n) => format!("${n}"),
            Self::Arrow => "->".into(),
            Self::DoubleArrow => "=>".into(),
            Self::Colons => "::".into(),
            Self::Bars => "||".into(),
            Self::Dots => "...".into(),
            Self::Char(c) => c.to_string(),
            Self::End => "end of file".into(),
        }
    }
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Rc<str>,
    pub line: u32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

pub struct Lexer<'a> {
    s: &'a [u8],
    at: usize,
    file: Rc<str>,
    line: u32,
    /// The place of the last token.
    last: Place,
    /// Tokens that were put back, with their places.
    back: Vec<(Token, Place)>,
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'@')
}

impl<'a> Lexer<'a> {
    pub fn new(s: &'a [u8], file: &str) -> Self {
        let file: Rc<str> = file.into();
        Self { s, at: 0, file: file.clone(), line: 1, last: Place { file, line: 1 }, back: Vec::new() }
    }

    pub fn place(&self) -> Place {
        self.last.clone()
    }

    fn starts(&self, with: &[u8]) -> bool {
        self.s[self.at..].starts_with(with)
    }

    fn advance(&mut self, to: usize) {
        let to = to.min(self.s.len());
        self.line += self.s[self.at..to].iter().filter(|b| **b == b'\n').count() as u32;
        self.at = to;
    }

    fn find(&self, from: usize, what: &[u8]) -> usize {
        let rest = &self.s[from.min(self.s.len())..];
        rest.windows(what.len()).position(|w| w == what).map_or(self.s.len(), |n| from + n + what.len())
    }

    /// Reads `# 10 "file"` or `#line 10 "file"` at the beginning of a line.
    fn directive(&mut self) {
        let end = self.find(self.at, b"\n");
        let line = decode(&self.s[self.at..end]);
        self.advance(end);
        let rest = line[1..].trim();
        let rest = rest.strip_prefix("line").unwrap_or(rest).trim();
        let (number, name) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        if let Ok(number) = number.parse() {
            self.line = number;
            if let Some(name) = name.trim().strip_prefix('"').and_then(|n| n.split('"').next()) {
                self.file = name.into();
            }
        }
    }

    fn skip_space(&mut self) {
        while let Some(c) = self.s.get(self.at) {
            match c {
                b'#' if self.at == 0 || self.s[self.at - 1] == b'\n' => self.directive(),
                c if c.is_ascii_whitespace() => self.advance(self.at + 1),
                _ if self.starts(b"//") => self.advance(self.find(self.at, b"\n")),
                _ if self.starts(b"/*") => self.advance(self.find(self.at + 2, b"*/")),
                _ => break,
            }
        }
    }

    pub fn next(&mut self) -> Token {
        if let Some((token, place)) = self.back.pop() {
            self.last = place;
            return token;
        }
        self.skip_space();
        self.last = Place { file: self.file.clone(), line: self.line };
        let start = self.at;
        let Some(&c) = self.s.get(start) else { return Token::End };
        let variable = c == b'$' && self.s.get(start + 1).is_some_and(|c| is_name(*c));
        if is_name(c) || variable {
            let mut end = start + 1;
            while end < self.s.len() {
                let slash =
                    self.s[end] == b'/' && !variable && self.s.get(end + 1).is_some_and(|c| is_name(*c));
                if !is_name(self.s[end]) && !slash {
                    break;
                }
                end += 1;
            }
            self.at = end;
            let name = decode(&self.s[start..end]);
            return if variable { Token::Variable(name[1..].to_owned()) } else { Token::Name(name) };
        }
        for (symbol, token) in [
            (&b"->"[..], Token::Arrow),
            (b"=>", Token::DoubleArrow),
            (b"::", Token::Colons),
            (b"||", Token::Bars),
            (b"...", Token::Dots),
        ] {
            if self.starts(symbol) {
                self.at += symbol.len();
                return token;
            }
        }
        self.at += 1;
        Token::Char(char::from(c))
    }

    pub fn unget(&mut self, token: Token) {
        self.back.push((token, self.last.clone()));
    }

    pub fn peek(&mut self) -> Token {
        let last = self.last.clone();
        let token = self.next();
        self.unget(token.clone());
        self.last = last;
        token
    }

    /// Reads arguments up to the parenthesis that closes them, which it takes.
    pub fn config(&mut self, errors: &mut Errors) -> String {
        let place = self.place();
        let (mut start, mut depth, mut text) = (self.at, 0_u32, String::new());
        while let Some(&c) = self.s.get(self.at) {
            match c {
                b'(' => depth += 1,
                b')' if depth == 0 => {
                    text.push_str(&decode(&self.s[start..self.at]));
                    self.at += 1;
                    let text = text.trim();
                    if text.len() > LONGEST {
                        errors.add(place.to_string(), "arguments longer than 1 MiB");
                        return String::new();
                    }
                    return text.to_owned();
                }
                b')' => depth -= 1,
                b'"' | b'\'' => {
                    self.skip_quoted(c);
                    continue;
                }
                b'\\' if self.s.get(self.at + 1) == Some(&b'<') => {
                    self.advance(self.find(self.at, b">"));
                    continue;
                }
                b'/' if self.starts(b"//") => {
                    self.advance(self.find(self.at, b"\n"));
                    continue;
                }
                b'/' if self.starts(b"/*") => {
                    self.advance(self.find(self.at + 2, b"*/"));
                    continue;
                }
                b'#' if self.at > 0 && self.s[self.at - 1] == b'\n' => {
                    text.push_str(&decode(&self.s[start..self.at]));
                    self.directive();
                    start = self.at;
                    continue;
                }
                _ => {}
            }
            self.advance(self.at + 1);
        }
        errors.add(place.to_string(), "syntax error: expected ')' before end of file");
        String::new()
    }

    fn skip_quoted(&mut self, quote: u8) {
        let mut i = self.at + 1;
        while i < self.s.len() && self.s[i] != quote {
            i = match (quote, self.s[i], self.s.get(i + 1)) {
                (b'"', b'\\', Some(b'<')) => self.find(i, b">"),
                (b'"', b'\\', _) => i + 2,
                _ => i + 1,
            };
        }
        self.advance(i + 1);
    }
}
