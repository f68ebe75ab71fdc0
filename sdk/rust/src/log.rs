//! Texts for the operator: see [`crate::log!`].

use crate::Out;
use crate::out::{TEXT_BYTES, TextBytes};
use flame_abi::output::{FRAME, LOG, MAX_LOG};
use std::cell::RefCell;
use std::fmt::{self, Write};

/// Sends a text to the operator, formatted as by `format!`: `log!("{} rules", rules.len())`. `flame run`
/// prints it on standard error after the module's name.
///
/// `module.toml` needs `log = true`. A text has at most 512 bytes; a longer one is truncated. The host
/// delivers 32 texts a second of packet time and drops the others, which it counts. Texts leave the sandbox,
/// so under a grant they need the right `log`.
///
/// A text without values costs a constant number of instructions. Formatting values has no bound, so a module
/// that does so for a packet is metered.
#[macro_export]
macro_rules! log {
    ($text:literal $(,)?) => {
        if const { $crate::log::is_plain($text) } {
            $crate::log::text($text)
        } else {
            $crate::log::formatted(::core::format_args!($text))
        }
    };
    ($($text:tt)*) => { $crate::log::formatted(::core::format_args!($($text)*)) };
}

/// Returns whether a format string stands for itself.
pub const fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if matches!(bytes[at], b'{' | b'}') {
            return false;
        }
        at += 1;
    }
    true
}

struct Texts {
    /// Allocated with the first text.
    bytes: TextBytes,
    len: usize,
    /// The number of texts for which there was no room.
    dropped: u32,
    /// The size of the frame after `len` that states their number.
    note: usize,
}

thread_local! {
    static TEXTS: RefCell<Texts> =
        const { RefCell::new(Texts { bytes: None, len: 0, dropped: 0, note: 0 }) };
}

/// The text that is being written.
struct Line<'a> {
    to: &'a mut [u8],
    len: usize,
}

impl Line<'_> {
    #[inline]
    fn push(&mut self, text: &str) {
        let mut end = text.len().min(self.to.len() - self.len);
        // A character has at most four bytes; unlike the standard library's search, this has a bound.
        for _ in 0..3 {
            if !text.is_char_boundary(end) {
                end -= 1;
            }
        }
        self.bytes(&text.as_bytes()[..end]);
        // Nothing follows a text that was truncated.
        if end < text.len() {
            self.to = &mut std::mem::take(&mut self.to)[..self.len];
        }
    }

    /// Adds whole characters, of which those that do not fit are left out.
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let end = bytes.len().min(self.to.len() - self.len).min(MAX_LOG);
        self.to[self.len..self.len + end].copy_from_slice(&bytes[..end]);
        self.len += end;
    }
}

impl Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

impl Texts {
    /// Adds a text.
    fn write(&mut self, write: impl FnOnce(&mut Line<'_>)) {
        if self.len <= LAST {
            self.len += self.frame(write);
            return;
        }
        // Sent here, so that the end of a call costs nothing.
        self.dropped = self.dropped.saturating_add(1);
        let dropped = self.dropped;
        self.note = self.frame(|line| {
            push_number(line, dropped);
            line.push(" more texts of this call were dropped: eight of the longest fit");
        });
    }

    /// Writes a frame after those that are there, and returns its size.
    fn frame(&mut self, write: impl FnOnce(&mut Line<'_>)) -> usize {
        let bytes = self.bytes.get_or_insert_with(|| Box::new([0; TEXT_BYTES]));
        let Some(frame) = bytes.get_mut(self.len..self.len + FRAME + MAX_LOG) else { return 0 };
        let (head, to) = frame.split_at_mut(FRAME);
        let mut line = Line { to, len: 0 };
        write(&mut line);
        let len = line.len;
        head[..4].copy_from_slice(&(len as u32).to_le_bytes());
        head[4..6].copy_from_slice(&LOG.to_le_bytes());
        head[6..].fill(0);
        FRAME + len
    }
}

/// Sends a text to the operator.
#[inline]
pub fn text(text: &str) {
    TEXTS.with_borrow_mut(|texts| texts.write(|line| line.push(text)));
}

/// Formats a text and sends it to the operator.
pub fn formatted(arguments: fmt::Arguments<'_>) {
    // A value whose formatting itself logs would borrow twice, so it is formatted first.
    let mut bytes = [0; MAX_LOG];
    let mut line = Line { to: &mut bytes, len: 0 };
    let _ = line.write_fmt(arguments);
    let len = line.len;
    TEXTS.with_borrow_mut(|texts| texts.write(|line| line.bytes(&bytes[..len])));
}

/// The last offset at which a text may begin, so that a note has room after it.
const LAST: usize = TEXT_BYTES - 2 * (FRAME + MAX_LOG);

/// Hands the texts that wait over to the output of a call. Only two addresses are exchanged, so a call in
/// which nothing is logged costs no more than before.
#[inline]
pub(crate) fn flush(out: &mut Out) {
    TEXTS.with_borrow_mut(|texts| {
        if texts.len > 0 {
            flush_texts(texts, out);
        }
    });
}

#[cold]
fn flush_texts(texts: &mut Texts, out: &mut Out) {
    crate::cold();
    out.exchange_texts(&mut texts.bytes, texts.len + texts.note);
    (texts.len, texts.dropped, texts.note) = (0, 0, 0);
}

/// Writes a number in decimal with a constant cost.
fn push_number(line: &mut Line<'_>, number: u32) {
    let (mut digits, mut rest) = ([b'0'; 10], number);
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    let zeros = digits[..9].iter().take_while(|digit| **digit == b'0').count();
    line.bytes(&digits[zeros..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(out: &mut Out) -> Vec<String> {
        flush(out);
        let all = out.hand().0.to_vec();
        let mut rest = &all[..];
        if !rest.is_empty() {
            assert_eq!(out.hand(), (&[][..], false));
        }
        let mut all = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<FRAME>() {
            let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            assert_eq!(head[4..], [LOG as u8, (LOG >> 8) as u8, 0, 0]);
            all.push(String::from_utf8(behind[..len].to_vec()).unwrap());
            rest = &behind[len..];
        }
        all
    }

    #[test]
    fn a_text_is_formatted_and_cut_at_a_character() {
        let mut out = Out::default();
        let (rules, name) = (3, "x");
        crate::log!("plain");
        crate::log!("{rules} of {{{name}}}");
        crate::log!("{} rules in {:>3}", rules, name,);
        crate::log!("{}{}", "é".repeat(300), "y");
        assert_eq!(
            texts(&mut out),
            ["plain".to_owned(), "3 of {x}".into(), "3 rules in   x".into(), "é".repeat(256)]
        );
        // Nothing is left of the texts of an earlier call.
        crate::log!("a");
        crate::log!("b");
        assert_eq!(texts(&mut out), ["a", "b"]);
        assert_eq!(texts(&mut out), Vec::<String>::new());
    }

    #[test]
    fn too_many_texts_of_one_call_are_counted() {
        let mut out = Out::default();
        (0..50_000).for_each(|n| crate::log!("text {n:0>507}"));
        let all = texts(&mut out);
        assert_eq!((all.len(), all[7].len()), (9, 512));
        assert!(all[8].starts_with("49992 more texts of this call were dropped"), "{}", all[8]);
        assert!(is_plain("plain") && !is_plain("{}") && !is_plain("a}}"));
    }
}
