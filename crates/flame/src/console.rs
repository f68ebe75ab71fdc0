//! Output of lines on standard output and standard error, with control characters escaped, so that a terminal
//! obeys none of them. All lines are printed through this module.

use flame_record::escape;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints a line as `println!` does, but ends the command without an error if the reader is gone (`| head`).
macro_rules! say {
    () => { crate::console::line(format_args!("")) };
    ($($text:tt)*) => { crate::console::line(format_args!($($text)*)) };
}
/// Prints a value, written as for `json!`, as one line of JSON.
macro_rules! say_json {
    ($($value:tt)*) => { crate::console::value(&serde_json::json!($($value)*)) };
}

/// Prints a line on standard error as `eprintln!` does, but ignores errors.
macro_rules! complain {
    ($($text:tt)*) => { crate::console::error(format_args!($($text)*)) };
}
pub(crate) use {complain, say, say_json};

pub fn value(value: &serde_json::Value) {
    // In JSON text escaped in this way, no control characters are left for `line` to escape in another way.
    line(format_args!("{}", escape::json(&value.to_string())));
}

pub fn error(text: Arguments<'_>) {
    // If standard error is closed, the message is lost.
    let _ = writeln!(std::io::stderr().lock(), "{}", escape::lines(&text.to_string()));
}

pub fn line(text: Arguments<'_>) {
    written(writeln!(std::io::stdout().lock(), "{}", escape::lines(&text.to_string())));
}

/// Prints text of this program that contains no text from outside, such as a script for a shell.
pub fn raw(text: &[u8]) {
    written(std::io::stdout().lock().write_all(text));
}

fn written(result: std::io::Result<()>) {
    match result {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            complain!("flame: standard output: {e}");
            std::process::exit(1)
        }
    }
}
