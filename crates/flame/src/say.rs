//! Lines for people on standard output.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// As `println!`, but whoever stops reading (`| head`) ends the command, and nothing else happens.
macro_rules! say {
    () => { crate::say::line(format_args!("")) };
    ($($text:tt)*) => { crate::say::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    match out.write_all(format!("{text}\n").as_bytes()) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            eprintln!("flame: standard output: {e}");
            std::process::exit(1)
        }
    }
}
