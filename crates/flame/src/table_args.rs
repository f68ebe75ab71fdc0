//! Options for the columns and the width of tables.

use clap::Args;
use flame_record::{Form, Options};
use std::io::IsTerminal;
use std::path::Path;

/// The width of a terminal that does not report one.
const USUAL: u16 = 80;

#[derive(Args, Clone, Debug, Default)]
pub struct TableArgs {
    /// Write only these columns, in any format: names as in any of the tables, with or without _ns; +NAME
    /// adds one to all others, as in +app. A number is a width, as for --width
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    columns: Vec<String>,

    /// Width that tables must fit, 0 for any [default: that of the terminal, or COLUMNS; a pipe or file has
    /// none]
    #[arg(long, value_name = "CHARACTERS")]
    width: Option<u16>,

    /// Write tables with a line for each value, as is done if they are too wide
    #[arg(long)]
    vertical: bool,
}

impl TableArgs {
    /// Returns `options` with the columns and the form of tables for this output.
    pub fn apply(&self, options: Options, output: Option<&Path>) -> Options {
        let (number, columns) = match &self.columns[..] {
            [one] => match one.parse() {
                Ok(number) => (Some(number), Vec::new()),
                Err(_) => (None, vec![one.clone()]),
            },
            many => (None, many.to_vec()),
        };
        let form = if self.vertical { Form::Vertical } else { Form::Auto };
        let is_file = output.is_some_and(|path| path.as_os_str() != "-");
        let width = match (self.width.or(number), is_file) {
            (given @ Some(_), _) => given.filter(|width| *width > 0),
            (None, true) => None,
            (None, false) => width_of(&std::io::stdout()),
        };
        Options { columns, form, width, ..options }
    }
}

/// Returns the width that tables on an output must fit.
pub fn width_of(out: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<u16> {
    let reported = terminal_size::terminal_size_of(out).map(|(width, _)| width.0);
    width(std::env::var("COLUMNS").ok().as_deref(), out.is_terminal(), reported)
}

/// Returns the width by the variable COLUMNS, or else by the terminal. A width of 0 sets no limit.
fn width(columns: Option<&str>, is_terminal: bool, reported: Option<u16>) -> Option<u16> {
    let stated = columns.and_then(|text| text.trim().parse().ok());
    let known = stated.filter(|width| *width > 0).or(reported.filter(|width| *width > 0));
    if is_terminal { known.or(Some(USUAL)) } else { stated.filter(|width| *width > 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_precedes_the_terminal_and_zeros_are_no_width() {
        assert_eq!(width(None, true, Some(120)), Some(120));
        assert_eq!(width(Some("100"), true, Some(120)), Some(100));
        for odd in ["0", "", "wide", "-5", "70000"] {
            assert_eq!(width(Some(odd), true, Some(120)), Some(120), "{odd}");
        }
        assert_eq!(width(None, true, Some(0)), Some(USUAL));
        assert_eq!(width(None, true, None), Some(USUAL));
        assert_eq!(width(None, false, None), None);
        assert_eq!(width(Some("100"), false, None), Some(100));
        assert_eq!(width(Some("0"), false, None), None);
    }
}
