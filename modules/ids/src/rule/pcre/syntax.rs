//! The syntax of PCRE2 (pcre2pattern, without UTF), read byte by byte.
//!
//! Every construct is either read or refused by its name.

use super::bytes::Set;
use super::classes::{BLANK, DIGIT, SPACE, VERTICAL, WORD};
use super::tree::{Greed, Look, Node};

/// The deepest nesting of groups, and the most quantifiers one after another.
const MOST_DEPTH: u32 = 64;
const MOST_QUANTIFIERS: usize = 4;
/// The largest number of a quantifier.
const MOST_TIMES: u32 = 65_535;

/// The options of an expression, which groups may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Letters match in any case (`i`).
    pub any_case: bool,
    /// `^` and `$` match at newlines (`m`).
    pub lines: bool,
    /// `.` matches a newline (`s`).
    pub dot_all: bool,
    /// White space and comments are skipped (`x`).
    pub extended: bool,
    /// White space in classes is skipped as well (`xx`).
    pub extended_more: bool,
    /// Quantifiers are lazy unless `?` follows (`U`; in a rule `G`).
    pub lazy: bool,
    /// `$` matches at the very end alone (`E`).
    pub dollar_is_end: bool,
}

/// Reads an expression.
///
/// # Errors
///
/// Returns the name of the construct that is refused, or the fault in the syntax, with the offset of a byte.
pub fn read(pattern: &[u8], options: Options) -> Result<Node, String> {
    let mut reader = Reader { pattern, at: 0, options, depth: 0 };
    let node = reader.alternatives()?;
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.fault("`)` without `(`")),
    }
}

pub(super) struct Reader<'a> {
    pub(super) pattern: &'a [u8],
    pub(super) at: usize,
    pub(super) options: Options,
    depth: u32,
}

/// The meaning of a backslash and the characters after it.
pub(super) enum Escape {
    Byte(u8),
    Set(Set),
    Node(Node),
    /// `\Q`: the bytes up to `\E` stand for themselves.
    Quote,
    Nothing,
}

impl<'a> Reader<'a> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.pattern.get(self.at).copied()
    }

    pub(super) fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn strip(&mut self, prefix: &[u8]) -> bool {
        let is_here = self.pattern[self.at..].starts_with(prefix);
        if is_here {
            self.at += prefix.len();
        }
        is_here
    }

    #[cold]
    pub(super) fn fault(&self, what: &str) -> String {
        format!("pcre syntax: {what}, at byte {}", self.at + 1)
    }

    #[cold]
    pub(super) fn refuse<T>(&self, name: &str) -> Result<T, String> {
        Err(format!("pcre with {name}: at byte {}", self.at + 1))
    }

    fn one(&self, byte: u8) -> Node {
        let letter = self.options.any_case && byte.is_ascii_alphabetic();
        Node::Set(if letter { Set::of(byte).or(Set::of(byte ^ 0x20)) } else { Set::of(byte) })
    }

    fn alternatives(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.fault("at most 64 groups in one another"));
        }
        let mut ways = vec![self.sequence()?];
        while self.strip(b"|") {
            ways.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if ways.len() == 1 { ways.swap_remove(0) } else { Node::Either(ways) })
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut all = Vec::new();
        while let Some(byte) = self.peek() {
            if matches!(byte, b'|' | b')') {
                break;
            }
            let from = self.at;
            self.at += 1;
            let node = match byte {
                b'\\' => match self.escape()? {
                    Escape::Byte(byte) => self.one(byte),
                    Escape::Set(set) => Node::Set(set),
                    Escape::Node(node) => node,
                    Escape::Nothing => continue,
                    Escape::Quote => {
                        let Some((last, before)) = self.quoted().split_last() else { continue };
                        all.extend(before.iter().map(|byte| self.one(*byte)));
                        self.one(*last)
                    }
                },
                b'[' => self.class()?,
                b'(' => match self.group()? {
                    Some(node) => node,
                    None => continue,
                },
                b'.' if self.options.dot_all => Node::Set(Set::ALL),
                b'.' => Node::Set(Set::of(b'\n').not()),
                b'^' if self.options.lines => Node::Look(Look::LineStart),
                b'^' => Node::Look(Look::Start),
                b'$' if self.options.lines => Node::Look(Look::LineEnd),
                b'$' if self.options.dollar_is_end => Node::Look(Look::End),
                b'$' => Node::Look(Look::Dollar),
                b'*' | b'+' | b'?' => {
                    self.at = from;
                    return Err(self.fault("a quantifier without anything before it"));
                }
                b' ' | b'\t'..=b'\r' if self.options.extended => continue,
                b'#' if self.options.extended => {
                    while self.take().is_some_and(|byte| byte != b'\n') {}
                    continue;
                }
                other => self.one(other),
            };
            all.push(self.quantified(node)?);
        }
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Node::Concat(all) })
    }

    /// Returns a node with the quantifiers after it.
    fn quantified(&mut self, mut node: Node) -> Result<Node, String> {
        for count in 0.. {
            while self.options.extended && self.peek().is_some_and(|b| b.is_ascii_whitespace() || b == 11) {
                self.at += 1;
            }
            let Some((min, max)) = self.quantifier()? else { break };
            if count == MOST_QUANTIFIERS {
                return Err(self.fault("at most four quantifiers one after another"));
            }
            if matches!(node, Node::Look(_)) {
                return Err(self.fault("a quantifier after a condition"));
            }
            let greed = match self.peek() {
                Some(b'+') => Greed::Possessive,
                Some(b'?') if self.options.lazy => Greed::Greedy,
                Some(b'?') => Greed::Lazy,
                _ if self.options.lazy => Greed::Lazy,
                _ => Greed::Greedy,
            };
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'?')));
            node = Node::Repeat { of: node.into(), min, max, greed };
        }
        Ok(node)
    }

    /// Reads `*`, `+`, `?`, `{N}`, `{N,}` or `{N,M}`; other braces stand for themselves.
    fn quantifier(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let found = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => {
                let before = self.at;
                self.at += 1;
                let least = self.number();
                let most = if self.strip(b",") { self.number().map(Some) } else { least.map(Some) };
                let open = self.pattern[self.at - 1] == b',';
                let (Some(least), true) = (least, self.strip(b"}")) else {
                    self.at = before;
                    return Ok(None);
                };
                let most = if open { None } else { most.flatten() };
                if least.max(most.unwrap_or(0)) > MOST_TIMES {
                    return Err(self.fault("a quantifier up to 65535"));
                }
                if most.is_some_and(|most| most < least) {
                    return Err(self.fault("numbers of a quantifier in ascending order"));
                }
                return Ok(Some((least, most)));
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(found))
    }

    /// Reads a decimal number, if there is one.
    fn number(&mut self) -> Option<u32> {
        let mut value = None;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            self.at += 1;
            value = Some(value.unwrap_or(0u32).saturating_mul(10).saturating_add(u32::from(digit - b'0')));
        }
        value
    }

    /// Reads the bytes up to `\E`.
    pub(super) fn quoted(&mut self) -> &'a [u8] {
        let rest = &self.pattern[self.at..];
        let end = rest.windows(2).position(|two| two == br"\E");
        self.at += end.map_or(rest.len(), |end| end + 2);
        &rest[..end.unwrap_or(rest.len())]
    }

    /// Reads a group, after its parenthesis. A comment, or options that apply to the rest, are none.
    fn group(&mut self) -> Result<Option<Node>, String> {
        if self.peek() == Some(b'*') {
            return self.refuse("a verb, as (*UTF)");
        }
        let outside = self.options;
        let mut atomic = false;
        if self.strip(b"?") {
            match self.take() {
                Some(b':' | b'|') => {}
                Some(b'>') => atomic = true,
                Some(b'#') => {
                    while let Some(byte) = self.take() {
                        if byte == b')' {
                            return Ok(None);
                        }
                    }
                    return Err(self.fault("`)` at the end of a comment"));
                }
                Some(b'=' | b'!') => return self.refuse("a look-ahead"),
                Some(b'<') if matches!(self.peek(), Some(b'=' | b'!')) => {
                    return self.refuse("a look-behind");
                }
                Some(b'<') => self.name(b'>')?,
                Some(b'\'') => self.name(b'\'')?,
                Some(b'P') => match self.take() {
                    Some(b'<') => self.name(b'>')?,
                    Some(b'=') => return self.refuse("a back reference"),
                    _ => return self.refuse("a recursion"),
                },
                Some(b'R' | b'&' | b'0'..=b'9') => return self.refuse("a recursion"),
                Some(b'+' | b'-') if self.peek().is_some_and(|b| b.is_ascii_digit()) => {
                    return self.refuse("a recursion");
                }
                Some(b'(') => return self.refuse("a conditional group"),
                Some(b'C') => return self.refuse("a callout"),
                Some(_) => {
                    self.at -= 1;
                    if self.change_options()? {
                        return Ok(None);
                    }
                }
                None => return Err(self.fault("`(?` at the end")),
            }
        }
        let node = self.alternatives()?;
        if !self.strip(b")") {
            return Err(self.fault("`(` without `)`"));
        }
        self.options = outside;
        Ok(Some(if atomic { Node::Atomic(node.into()) } else { node }))
    }

    fn name(&mut self, end: u8) -> Result<(), String> {
        let from = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
            self.at += 1;
        }
        if self.at == from || !self.strip(&[end]) {
            return Err(self.fault("the name of a group"));
        }
        Ok(())
    }

    /// Reads options after `(?`, and returns whether they apply to the rest of the group around them.
    fn change_options(&mut self) -> Result<bool, String> {
        let mut on = true;
        if self.strip(b"^") {
            let Options { lazy, dollar_is_end, .. } = self.options;
            self.options = Options { lazy, dollar_is_end, ..Options::default() };
        }
        loop {
            let options = &mut self.options;
            match self.pattern.get(self.at).copied() {
                Some(b'i') => options.any_case = on,
                Some(b'm') => options.lines = on,
                Some(b's') => options.dot_all = on,
                Some(b'x') => {
                    options.extended_more = on && self.pattern.get(self.at + 1) == Some(&b'x');
                    options.extended = on;
                }
                Some(b'U') => options.lazy = on,
                // Names may repeat, and groups are not captured: neither changes a match.
                Some(b'J' | b'n') => {}
                Some(b'-') if on => on = false,
                Some(b')') => {
                    self.at += 1;
                    return Ok(true);
                }
                Some(b':') => {
                    self.at += 1;
                    return Ok(false);
                }
                _ => return Err(self.fault("options of a group, as (?i)")),
            }
            self.at += 1;
        }
    }

    /// Reads what follows a backslash outside of a class.
    fn escape(&mut self) -> Result<Escape, String> {
        Ok(match self.peek() {
            Some(b'b') => self.look(Look::Word),
            Some(b'B') => self.look(Look::NotWord),
            Some(b'A') => self.look(Look::Start),
            Some(b'z') => self.look(Look::End),
            Some(b'Z') => self.look(Look::Dollar),
            Some(b'G') => return self.refuse(r"\G"),
            Some(b'X') => return self.refuse(r"\X"),
            // Only the start of the match moves, which no word of a rule refers to.
            Some(b'K') => {
                self.at += 1;
                Escape::Nothing
            }
            Some(b'C') => self.set(Set::ALL),
            Some(b'N') if self.pattern.get(self.at + 1) == Some(&b'{') => {
                return self.refuse("a character of Unicode");
            }
            Some(b'N') => self.set(Set::of(b'\n').not()),
            Some(b'R') => {
                self.at += 1;
                let newline = [b"\r", b"\n"].map(|byte| Node::Set(Set::all_of(byte)));
                let ways = vec![Node::Concat(newline.into()), Node::Set(VERTICAL())];
                Escape::Node(Node::Atomic(Node::Either(ways).into()))
            }
            Some(b'k') => return self.refuse("a back reference"),
            Some(b'g') if matches!(self.pattern.get(self.at + 1), Some(b'<' | b'\'')) => {
                return self.refuse("a recursion");
            }
            Some(b'g' | b'1'..=b'9') if self.refers() => return self.refuse("a back reference"),
            _ => self.escape_anywhere()?,
        })
    }

    /// Returns whether a number after a backslash refers to a group: one digit, or no more than the
    /// parentheses of the expression.
    fn refers(&self) -> bool {
        let mut ahead = Reader { pattern: self.pattern, ..*self };
        let Some(number) = ahead.number() else { return true };
        let groups = self.pattern.iter().filter(|byte| **byte == b'(').count();
        number < 10 || number as usize <= groups || matches!(self.peek(), Some(b'8' | b'9'))
    }

    fn look(&mut self, look: Look) -> Escape {
        self.at += 1;
        Escape::Node(Node::Look(look))
    }

    fn set(&mut self, set: Set) -> Escape {
        self.at += 1;
        Escape::Set(set)
    }

    /// Reads what follows a backslash, where it means the same in a class.
    pub(super) fn escape_anywhere(&mut self) -> Result<Escape, String> {
        let Some(byte) = self.take() else { return Err(self.fault(r"`\` at the end")) };
        Ok(match byte {
            b'd' => Escape::Set(DIGIT()),
            b'D' => Escape::Set(DIGIT().not()),
            b'w' => Escape::Set(WORD()),
            b'W' => Escape::Set(WORD().not()),
            b's' => Escape::Set(SPACE()),
            b'S' => Escape::Set(SPACE().not()),
            b'h' => Escape::Set(BLANK()),
            b'H' => Escape::Set(BLANK().not()),
            b'v' => Escape::Set(VERTICAL()),
            b'V' => Escape::Set(VERTICAL().not()),
            b'a' => Escape::Byte(7),
            b'e' => Escape::Byte(27),
            b'f' => Escape::Byte(12),
            b'n' => Escape::Byte(b'\n'),
            b'r' => Escape::Byte(b'\r'),
            b't' => Escape::Byte(b'\t'),
            b'c' => match self.take() {
                Some(byte @ b' '..=b'~') => Escape::Byte(byte.to_ascii_uppercase() ^ 0x40),
                _ => return Err(self.fault(r"a character after \c")),
            },
            b'x' if self.peek() == Some(b'{') => Escape::Byte(self.in_braces(16)?),
            b'x' => Escape::Byte(self.digits(16, 2)),
            b'o' if self.peek() == Some(b'{') => Escape::Byte(self.in_braces(8)?),
            b'0'..=b'7' => {
                self.at -= 1;
                if matches!(self.pattern[self.at..], [b'4'..=b'7', b'0'..=b'7', b'0'..=b'7', ..]) {
                    return Err(self.fault(r"an octal number up to \377"));
                }
                Escape::Byte(self.digits(8, 3))
            }
            b'Q' => Escape::Quote,
            b'E' => Escape::Nothing,
            b'p' | b'P' => return self.refuse("a property of Unicode"),
            byte if byte.is_ascii_alphanumeric() => {
                return Err(self.fault(&format!(r"\{} is unknown", char::from(byte))));
            }
            byte => Escape::Byte(byte),
        })
    }

    /// Reads up to `most` digits.
    fn digits(&mut self, base: u32, most: usize) -> u8 {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|b| char::from(b).to_digit(base)) else { break };
            self.at += 1;
            value = value * base + digit;
        }
        value as u8
    }

    fn in_braces(&mut self, base: u32) -> Result<u8, String> {
        self.at += 1;
        let rest = &self.pattern[self.at..];
        let end = rest.iter().position(|byte| *byte == b'}');
        let text = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
        let value = text.and_then(|text| u8::from_str_radix(text.trim_matches(' '), base).ok());
        let (Some(end), Some(value)) = (end, value) else {
            return Err(self.fault("a number up to 255 in braces"));
        };
        self.at += end + 1;
        Ok(value)
    }
}
