//! Classes of bytes, in brackets or by name.

use super::bytes::Set;
use super::syntax::{Escape, Reader};
use super::tree::Node;

pub(super) const DIGIT: fn() -> Set = || Set::range(b'0', b'9');
pub(super) const ALPHA: fn() -> Set = || Set::range(b'a', b'z').or(Set::range(b'A', b'Z'));
pub(super) const WORD: fn() -> Set = || ALPHA().or(DIGIT()).or(Set::of(b'_'));
pub(super) const SPACE: fn() -> Set = || Set::range(9, 13).or(Set::of(b' '));
pub(super) const BLANK: fn() -> Set = || Set::all_of(b"\t \xa0");
pub(super) const VERTICAL: fn() -> Set = || Set::range(10, 13).or(Set::of(0x85));

impl Reader<'_> {
    /// Reads a class, after its bracket.
    pub(super) fn class(&mut self) -> Result<Node, String> {
        if self.pattern[self.at..].starts_with(b"[:<:]]") || self.pattern[self.at..].starts_with(b"[:>:]]") {
            return self.refuse("the start or the end of a word as a class");
        }
        let not = self.strip(b"^");
        let mut set = Set::NONE;
        // The last byte, from which a range may begin.
        let mut last: Option<u8> = None;
        let mut is_first = true;
        loop {
            let Some(byte) = self.take() else { return Err(self.fault("`[` without `]`")) };
            let found = match byte {
                b']' if !is_first => break,
                b'[' if matches!(self.peek(), Some(b':' | b'.' | b'=')) => match self.posix()? {
                    Some(named) => Escape::Set(named),
                    None => Escape::Byte(b'['),
                },
                b'\\' => self.in_class()?,
                b' ' | b'\t' if self.options.extended_more => continue,
                byte => Escape::Byte(byte),
            };
            is_first = false;
            match found {
                Escape::Byte(byte) => {
                    set = set.or(Set::of(byte));
                    last = Some(byte);
                }
                Escape::Set(more) => {
                    set = set.or(more);
                    last = None;
                }
                Escape::Quote => {
                    let quoted = self.quoted();
                    let (more, end) = (Set::all_of(quoted), quoted.last().copied());
                    set = set.or(more);
                    last = end.or(last);
                }
                Escape::Node(_) | Escape::Nothing => {}
            }
            // A hyphen between two bytes makes a range; anywhere else it stands for itself.
            if let (Some(first), Some(b'-')) = (last, self.peek())
                && self.pattern.get(self.at + 1).is_some_and(|byte| *byte != b']')
            {
                let hyphen = self.at;
                self.at += 1;
                let end = match self.take() {
                    Some(b'\\') => self.in_class()?,
                    Some(b'[') if matches!(self.peek(), Some(b':')) => match self.posix()? {
                        Some(named) => Escape::Set(named),
                        None => Escape::Byte(b'['),
                    },
                    Some(byte) => Escape::Byte(byte),
                    None => Escape::Nothing,
                };
                match end {
                    Escape::Byte(end) if end < first => {
                        self.at = hyphen;
                        return Err(self.fault("a range in ascending order"));
                    }
                    Escape::Byte(end) => set = set.or(Set::range(first, end)),
                    _ => {
                        set = set.or(Set::of(b'-'));
                        self.at = hyphen + 1;
                    }
                }
                last = None;
            }
        }
        let set = if self.options.any_case { set.in_any_case() } else { set };
        Ok(Node::Set(if not { set.not() } else { set }))
    }

    /// Reads what follows a backslash in a class.
    fn in_class(&mut self) -> Result<Escape, String> {
        match self.peek() {
            Some(b'b') => {
                self.at += 1;
                Ok(Escape::Byte(8))
            }
            Some(b'B' | b'R' | b'X' | b'N') => Err(self.fault(r"no \B, \N, \R and \X in a class")),
            _ => self.escape_anywhere(),
        }
    }

    /// Reads the name of a class, as `[:alpha:]`, after its first bracket.
    fn posix(&mut self) -> Result<Option<Set>, String> {
        let rest = &self.pattern[self.at..];
        let kind = rest[0];
        let Some(end) = rest[1..].windows(2).position(|two| two == [kind, b']']) else { return Ok(None) };
        let name = &rest[1..1 + end];
        if kind != b':' {
            return self.refuse("a collating element");
        }
        let (not, name) = name.strip_prefix(b"^").map_or((false, name), |name| (true, name));
        if !name.iter().all(u8::is_ascii_lowercase) {
            return Ok(None);
        }
        let any_case = self.options.any_case;
        let graph = Set::range(0x21, 0x7e);
        let set = match name {
            b"alpha" => ALPHA(),
            b"lower" | b"upper" if any_case => ALPHA(),
            b"lower" => Set::range(b'a', b'z'),
            b"upper" => Set::range(b'A', b'Z'),
            b"digit" => DIGIT(),
            b"alnum" => ALPHA().or(DIGIT()),
            b"word" => WORD(),
            b"space" => SPACE(),
            b"blank" => Set::all_of(b"\t "),
            b"cntrl" => Set::range(0, 31).or(Set::of(127)),
            b"graph" => graph,
            b"print" => graph.or(Set::of(b' ')),
            b"punct" => graph.and(ALPHA().or(DIGIT()).not()),
            b"xdigit" => DIGIT().or(Set::range(b'a', b'f')).or(Set::range(b'A', b'F')),
            b"ascii" => Set::range(0, 127),
            _ => return Err(self.fault("the name of a class, as [:alpha:]")),
        };
        self.at += end + 3;
        Ok(Some(if not { set.not() } else { set }))
    }
}
