//! Values of `--format`.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use flame_record::Format;

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

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        format.0
    }
}

/// The format of an answer.
#[derive(Clone, Copy, ValueEnum)]
pub enum OutputFormat {
    Table,
    Json,
}
