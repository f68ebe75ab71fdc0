use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::{IntoParams, ToSchema};

/// The header with the cursor of the first row of a reply.
pub const CURSOR: &str = "flame-cursor";
/// The header with the number of rows that were lost before the first one, or `unknown` after a restart.
pub const LOST: &str = "flame-lost";

/// The form of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// One object per line.
    #[default]
    Json,
    /// One table, with a header.
    Csv,
    /// Alerts, one event per line.
    Eve,
    /// Tables for people, at the end.
    Table,
    /// Frames, from which clients make all formats of `flame run`: the length of a JSON object (4 bytes, big
    /// endian), that object (`Frame`), the length of an Arrow IPC stream, and that stream with one batch.
    Arrow,
}

impl Encoding {
    pub const ALL: [Self; 5] = [Self::Json, Self::Csv, Self::Eve, Self::Table, Self::Arrow];

    /// Returns the media type of a reply in this form.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Eve => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Table => "text/plain; charset=utf-8",
            Self::Arrow => "application/vnd.flame.arrow-frames",
        }
    }
}

/// The object at the beginning of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Frame {
    /// The number of the first row.
    pub first: u64,
    /// The name of the table.
    pub table: String,
    /// The module's manifest as TOML, in the first frame.
    pub manifest: Option<String>,
    /// The SHA-256 of the module's file in hexadecimal digits.
    pub hash: String,
}

/// The maximum length of each part of a frame in bytes.
pub const MAX_FRAME: usize = 256 << 20;

/// The choice of rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RecordsQuery {
    /// The row to begin with, as in the header `flame-cursor`. By default the oldest.
    pub cursor: Option<String>,
    #[serde(default)]
    #[param(inline)]
    pub format: Encoding,
    /// Whether to wait for further rows. The reply then ends when rows were lost, the module was updated or
    /// removed, or the node stops.
    #[serde(default)]
    pub follow: bool,
    /// The principal, for the operator.
    pub principal: Option<String>,
}

/// The choice of rows of the accounting.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AccountingQuery {
    /// The row to begin with, as in the header `flame-cursor`. By default the oldest.
    pub cursor: Option<String>,
    #[serde(default)]
    #[param(inline)]
    pub format: Encoding,
    /// Whether to wait for further rows.
    #[serde(default)]
    pub follow: bool,
}

/// The place of a row in a module's spool: `EPOCH.ROW`. The epoch changes when the node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub epoch: u64,
    pub row: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{}", self.epoch, self.row)
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('.').and_then(|(epoch, row)| {
            let plain = row.bytes().all(|b| b.is_ascii_digit()) && epoch.len() == 16;
            Some(Self {
                epoch: u64::from_str_radix(epoch, 16).ok().filter(|_| plain)?,
                row: row.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!(
                "cursor {shown:?}: expected 16 hexadecimal digits, a dot and a number, as in flame-cursor"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let cursor = Cursor { epoch: 0xabc, row: 17 };
        assert_eq!(cursor.to_string(), "0000000000000abc.17");
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for wrong in ["", ".", "1.2", "0000000000000abc.", "0000000000000abc.-1", "0000000000000abc.+1", "é"]
        {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
