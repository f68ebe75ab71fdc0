//! Reads the arguments of an element: positional ones in order, keywords anywhere.

use crate::scope::Scope;
use crate::text::{first_word, split};
use crate::value::Value;

/// The arguments that are not yet read, and the errors so far.
pub struct Args<'a> {
    scope: Scope<'a>,
    /// The keywords of the class.
    names: Vec<String>,
    positional: std::collections::VecDeque<String>,
    keywords: Vec<(String, String)>,
    errors: Vec<String>,
}

/// Returns whether a word has the form of a keyword.
fn is_keyword(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Returns whether one letter of a keyword is wrong, missing, too many or swapped with the next.
fn is_slip(word: &str, known: &str) -> bool {
    let same = word.bytes().zip(known.bytes()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&word.as_bytes()[same..], &known.as_bytes()[same..]);
    let same = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let one = match (&a[..a.len() - same], &b[..b.len() - same]) {
        ([_], [_]) | ([], [_]) | ([_], []) => true,
        ([a, b], [c, d]) => a == d && b == c,
        _ => false,
    };
    one && known.len() > 3
}

impl<'a> Args<'a> {
    /// Splits a configuration. An argument whose first word is one of `names` is a keyword argument.
    pub fn new(config: &str, names: &[&str], scope: Scope<'a>) -> Self {
        Self::of(split(config), names, scope)
    }

    /// Takes arguments that are split already. An argument whose first word is one of `names` is a keyword
    /// argument.
    pub fn of(args: Vec<String>, names: &[&str], scope: Scope<'a>) -> Self {
        let mut new = Self {
            scope,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            positional: Default::default(),
            keywords: Vec::new(),
            errors: Vec::new(),
        };
        for arg in args {
            let (word, rest) = first_word(&arg);
            match names.contains(&word.as_str()) {
                true => new.keywords.push((word, rest)),
                false => new.positional.push_back(arg),
            }
        }
        new
    }

    /// Returns the scope of the arguments.
    pub fn scope(&self) -> Scope<'a> {
        self.scope
    }

    fn convert<T: Value>(&mut self, name: &str, text: &str) -> Option<T> {
        let value = T::read(text, &self.scope);
        if value.is_none() {
            self.errors.push(format!("{name}: expected {}, found '{text}'", T::KIND));
        }
        value
    }

    /// Takes the next positional argument. Those before it that are unknown keywords become errors: arguments
    /// of the form of a keyword that are no value of this type, or differ from a keyword by one slip.
    fn next_positional<T: Value>(&mut self) -> Option<String> {
        loop {
            let text = self.positional.pop_front()?;
            let (word, rest) = first_word(&text);
            let is_value = T::read(&text, &self.scope).is_some();
            let is_meant = !is_value || self.names.iter().any(|known| is_slip(&word, known));
            if !is_keyword(&word) || rest.is_empty() || !is_meant {
                return Some(text);
            }
            self.unknown(&word);
        }
    }

    /// Adds the error of a keyword that the class does not have.
    fn unknown(&mut self, word: &str) {
        let meant = self.names.iter().find(|known| is_slip(word, known));
        let known = match meant {
            Some(meant) => format!(" (did you mean {meant}?)"),
            None if self.names.is_empty() => String::new(),
            None => format!(" (known: {})", self.names.join(", ")),
        };
        self.errors.push(format!("unknown keyword argument {word}{known}"));
    }

    /// Reads a keyword argument. The last of several wins.
    pub fn key<T: Value>(&mut self, name: &str) -> Option<T> {
        let mut found = None;
        self.keywords.retain(|(word, rest)| {
            let is_it = word == name;
            if is_it {
                found = Some(rest.clone());
            }
            !is_it
        });
        self.convert(name, &found?)
    }

    /// Reads all keyword arguments of a name.
    pub fn all<T: Value>(&mut self, name: &str) -> Vec<T> {
        let (those, rest) =
            std::mem::take(&mut self.keywords).into_iter().partition(|(word, _)| word == name);
        self.keywords = rest;
        let those: Vec<(String, String)> = those;
        those.iter().filter_map(|(_, text)| self.convert(name, text)).collect()
    }

    /// Reads an argument that may be a keyword argument or the next positional one, or missing.
    pub fn opt<T: Value>(&mut self, name: &str) -> Option<T> {
        if self.keywords.iter().any(|(word, _)| word == name) {
            return self.key(name);
        }
        let text = self.next_positional::<T>()?;
        self.convert(name, &text)
    }

    /// Reads an argument that must be there.
    pub fn req<T: Value + Default>(&mut self, name: &str) -> T {
        if self.positional.is_empty() && !self.keywords.iter().any(|(word, _)| word == name) {
            self.errors.push(format!("{name}: required argument missing"));
            return T::default();
        }
        self.opt(name).unwrap_or_default()
    }

    /// Takes all positional arguments that are left.
    pub fn rest(&mut self) -> Vec<String> {
        self.positional.drain(..).collect()
    }

    /// Returns the next positional argument without taking it.
    pub fn peek(&self) -> Option<&str> {
        self.positional.front().map(String::as_str)
    }

    /// Returns whether an argument was wrong so far.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds an error, which [`Args::finish`] returns.
    pub fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    /// Reads a keyword argument that has no effect here, but is accepted. `docs/click.md` lists all of them;
    /// a keyword that is neither read nor listed is an error.
    pub fn ignore<T: Value>(&mut self, name: &str) {
        self.key::<T>(name);
    }

    /// Reports arguments that were not read, and all errors.
    ///
    /// # Errors
    ///
    /// Returns all errors so far, and one for arguments that were not read.
    pub fn finish(mut self) -> Result<(), Vec<String>> {
        let words = self.positional.iter().map(|a| first_word(a));
        let unknown: Vec<String> =
            words.filter(|(w, rest)| is_keyword(w) && !rest.is_empty()).map(|(w, _)| w).collect();
        if unknown.is_empty() && !self.positional.is_empty() {
            self.errors.push("too many arguments".into());
        }
        unknown.iter().for_each(|word| self.unknown(word));
        let unread: Vec<&str> = self.keywords.iter().map(|(word, _)| word.as_str()).collect();
        if !unread.is_empty() {
            self.errors.push(format!("keyword argument {} is not available here", unread.join(", ")));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_stand_anywhere() {
        let mut args =
            Args::new("LIMIT 5, \"x y\", 7, STOP true", &["DATA", "LIMIT", "N", "STOP"], Scope::none());
        assert_eq!(args.req::<String>("DATA"), "x y");
        assert_eq!(args.opt::<u32>("LIMIT"), Some(5));
        assert_eq!(args.opt::<u32>("N"), Some(7));
        assert_eq!(args.key::<bool>("STOP"), Some(true));
        assert_eq!(args.finish(), Ok(()));
    }

    #[test]
    fn errors_name_argument_found_and_expected() {
        let mut args = Args::new("LIMIT x, 1, FOO 2", &["LIMIT", "N"], Scope::none());
        args.opt::<u8>("LIMIT");
        args.opt::<u8>("N");
        assert_eq!(
            args.finish().unwrap_err(),
            ["LIMIT: expected an integer (u8), found 'x'", "unknown keyword argument FOO (known: LIMIT, N)"]
        );
        // A keyword that the class knows and does not read.
        let mut args = Args::new("N 1, CAPACITY 9", &["N", "CAPACITY"], Scope::none());
        args.req::<u8>("N");
        assert_eq!(args.finish().unwrap_err(), ["keyword argument CAPACITY is not available here"]);
        let mut args = Args::new("", &["N"], Scope::none());
        args.req::<u8>("N");
        assert_eq!(args.finish().unwrap_err(), ["N: required argument missing"]);
        assert_eq!(Args::new("1", &[], Scope::none()).finish().unwrap_err(), ["too many arguments"]);
    }

    #[test]
    fn an_unknown_keyword_is_no_value() {
        let known = &["CAPACITY", "DATA", "LIMIT"];
        let mut args = Args::new("CAPACTY 5, 7", known, Scope::none());
        assert_eq!(args.opt::<u32>("CAPACITY"), Some(7));
        assert_eq!(args.finish().unwrap_err(), ["unknown keyword argument CAPACTY (did you mean CAPACITY?)"]);
        // Text may begin with a word in capitals, but hardly with a keyword that has a slip.
        let mut args = Args::new("HELLO world", known, Scope::none());
        assert_eq!(args.opt::<String>("DATA").as_deref(), Some("HELLO world"));
        assert_eq!(args.finish(), Ok(()));
        for slip in ["LIMI 3", "LIMITS 3", "LMIIT 3", "LIMOT 3"] {
            let mut args = Args::new(slip, known, Scope::none());
            assert_eq!(args.opt::<String>("DATA"), None, "{slip}");
            assert!(args.finish().unwrap_err()[0].ends_with("(did you mean LIMIT?)"), "{slip}");
        }
        let mut args = Args::new("LIMIT FOO 3", known, Scope::none());
        assert_eq!(args.key::<u8>("LIMIT"), None);
        assert_eq!(args.finish().unwrap_err(), ["LIMIT: expected an integer (u8), found 'FOO 3'"]);
    }
}
