//! Names of a module's functions, made safe to display.

use std::fmt::Write;

/// The number of characters of a name that are shown.
pub const MAX_NAME: usize = 200;

/// Returns the readable part of a function's name: `crate::module::function`, without Rust's hash, at most
/// [`MAX_NAME`] characters, none of them a control character.
///
/// Names come from the module and may be as long as its file. They are cut before and after demangling,
/// because a short mangled name may stand for a long one.
pub fn readable_name(name: &str) -> String {
    let end = name.char_indices().nth(MAX_NAME).map_or(name.len(), |(at, _)| at);
    let mut shown = Cut { text: String::new(), left: MAX_NAME };
    // The error only reports that the text is full.
    let _ = write!(shown, "{:#}", rustc_demangle::demangle(&name[..end]));
    shown.text.replace(char::is_control, " ")
}

/// A writer that stops after `left` characters.
struct Cut {
    text: String,
    left: usize,
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let before = self.text.len();
        self.text.extend(text.chars().take(self.left));
        self.left -= self.text[before..].chars().count();
        if self.left == 0 { Err(std::fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::readable_name;

    #[test]
    fn names_are_cut_whatever_they_stand_for() {
        assert_eq!(readable_name("_ZN4core9panicking5panic17h0123456789abcdefE"), "core::panicking::panic");
        assert_eq!(readable_name(&"é".repeat(15 << 20)).chars().count(), 200);
        assert_eq!(readable_name("a\u{1b}b"), "a b");
        // A v0 name that refers back to itself repeatedly.
        let folded = format!("_RINvC1a1fT{}E", "TB7_B7_E".repeat(20));
        assert!(readable_name(&folded).chars().count() <= 200);
    }
}
