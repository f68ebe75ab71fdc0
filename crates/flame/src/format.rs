//! Values of `--format`.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use flame_record::{Format, SinkError};
use std::path::Path;

/// The format of records: those of the sinks.
#[derive(Clone, Copy)]
pub struct FormatArg(pub Format);

static FORMATS: [FormatArg; Format::ALL.len()] = {
    let mut all = [FormatArg(Format::Table); Format::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = FormatArg(Format::ALL[at]);
        at += 1;
    }
    all
};

impl ValueEnum for FormatArg {
    fn value_variants<'a>() -> &'a [Self] {
        &FORMATS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.name());
        Some(match self.0.about() {
            Some(about) => value.help(about),
            None => value,
        })
    }
}

/// Returns the format of an output: as stated, or else by the name of its file.
///
/// # Errors
///
/// Returns an error if the file has the name of another format.
pub fn of(stated: Option<FormatArg>, output: Option<&Path>) -> Result<Format, SinkError> {
    Format::of(stated.map(|format| format.0), output)
}

/// The format of an answer.
#[derive(Clone, Copy, ValueEnum)]
pub enum OutputFormat {
    Table,
    Json,
}
