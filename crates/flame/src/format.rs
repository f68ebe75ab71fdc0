//! Values of `--format`.

use clap::ValueEnum;

/// The format of records.
#[derive(Clone, Copy, ValueEnum)]
pub enum FormatArg {
    Table,
    Json,
    Csv,
    Parquet,
    /// Alerts in the format of Suricata
    Eve,
}

impl From<FormatArg> for flame_record::Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Table => Self::Table,
            FormatArg::Json => Self::Json,
            FormatArg::Csv => Self::Csv,
            FormatArg::Parquet => Self::Parquet,
            FormatArg::Eve => Self::Eve,
        }
    }
}

/// The format of an answer.
#[derive(Clone, Copy, ValueEnum)]
pub enum OutputFormat {
    Table,
    Json,
}
