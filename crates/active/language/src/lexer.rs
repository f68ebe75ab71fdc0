//! Words of a text, with their places.

use crate::ProgramError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    Word(&'a str),
    Number(i64),
    Text(&'a str),
    Sign(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub struct Placed<'a> {
    pub token: Token<'a>,
    pub line: usize,
    pub column: usize,
}

/// Signs; longer ones before their beginnings.
const SIGNS: [&str; 20] =
    ["==", "!=", "<=", ">=", "<", ">", "=", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",", ";", ":", "."];

/// Returns the words of a text, and its end.
pub fn words(text: &str) -> Result<Vec<Placed<'_>>, ProgramError> {
    let mut all = Vec::new();
    let (mut line, mut start, mut at) = (1, 0, 0);
    while let Some(next) = text[at..].chars().next() {
        let column = text[start..at].chars().count() + 1;
        let rest = &text[at..];
        let error =
            |text: String, remedy: &str| ProgramError { line, column, text, remedy: remedy.to_owned() };
        let (token, length) = if next == '\n' {
            (line, start, at) = (line + 1, at + 1, at + 1);
            continue;
        } else if next.is_whitespace() {
            at += next.len_utf8();
            continue;
        } else if next == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if next.is_ascii_digit() {
            let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..length].parse().map_err(|_| {
                error(
                    format!("found the number {}, expected less than 2^63", &rest[..length]),
                    "make it smaller",
                )
            })?;
            (Token::Number(number), length)
        } else if next.is_ascii_alphabetic() || next == '_' {
            let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            let length = rest.find(is_end).unwrap_or(rest.len());
            (Token::Word(&rest[..length]), length)
        } else if next == '"' {
            let end = rest[1..].find(['"', '\n']).filter(|end| rest[1 + end..].starts_with('"'));
            let end = end.ok_or_else(|| {
                error(
                    "found the beginning of a name, expected its end in the same line".to_owned(),
                    "add a \"",
                )
            })?;
            (Token::Text(&rest[1..=end]), end + 2)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            let found = next.escape_debug();
            return Err(error(format!("found `{found}`, expected a word, a number or a sign"), "remove it"));
        };
        all.push(Placed { token, line, column });
        at += length;
    }
    all.push(Placed { token: Token::End, line, column: text[start..].chars().count() + 1 });
    Ok(all)
}
