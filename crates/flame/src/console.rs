//! The only way to standard output and standard error for lines: whatever is in them, a terminal obeys none
//! of it.

use flame_record::escape;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// As `println!`, but whoever stops reading (`| head`) ends the command, and nothing else happens.
macro_rules! say {
    () => { crate::console::line(format_args!("")) };
    ($($text:tt)*) => { crate::console::line(format_args!($($text)*)) };
}
/// A value as one line of JSON, written as for `json!`.
macro_rules! say_json {
    ($($value:tt)*) => { crate::console::value(&serde_json::json!($($value)*)) };
}

/// As `eprintln!`.
macro_rules! complain {
    ($($text:tt)*) => { crate::console::error(format_args!($($text)*)) };
}
pub(crate) use {complain, say, say_json};

pub fn value(value: &serde_json::Value) {
    // As text it has no controls left that a line would escape in another way.
    line(format_args!("{}", escape::json(&value.to_string())));
}

pub fn error(text: Arguments<'_>) {
    // Whoever closed standard error does not want to know.
    let _ = writeln!(std::io::stderr().lock(), "{}", escape::lines(&text.to_string()));
}

pub fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", escape::lines(&text.to_string())) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            complain!("flame: standard output: {e}");
            std::process::exit(1)
        }
    }
}
