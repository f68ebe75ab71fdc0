//! Forms of times for programs.

use crate::number;
use chrono::DateTime;
use std::str::FromStr;

/// The form of times in JSON, CSV and Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// Nanoseconds since 1970 as an integer.
    Ns,
    /// `2026-01-31T23:59:59.123456789Z` in text, and a timestamp in Parquet.
    Rfc3339,
    /// Seconds since 1970 with nine decimals in text, and a timestamp in Parquet.
    Unix,
}

impl TimeFormat {
    pub const ALL: [Self; 3] = [Self::Ns, Self::Rfc3339, Self::Unix];

    /// Returns the name that `--time` uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Rfc3339 => "rfc3339",
            Self::Unix => "unix",
        }
    }

    /// Returns an explanation for help.
    pub fn about(self) -> &'static str {
        match self {
            Self::Ns => "Nanoseconds since 1970, an integer (default in json and csv)",
            Self::Rfc3339 => "2026-01-31T23:59:59.123456789Z; in parquet a timestamp (default there)",
            Self::Unix => "Seconds since 1970 with nine decimals; in parquet a timestamp",
        }
    }

    /// Writes a time of `ns` nanoseconds since 1970 to text. `quote` stands around what is no number.
    pub(crate) fn write(self, out: &mut Vec<u8>, ns: u64, quote: &str) {
        const SECOND: u64 = 1_000_000_000;
        match self {
            Self::Ns => number::unsigned(out, ns),
            Self::Unix => {
                number::unsigned(out, ns / SECOND);
                out.push(b'.');
                number::padded(out, ns % SECOND, 9);
            }
            Self::Rfc3339 => {
                out.extend_from_slice(quote.as_bytes());
                number::utc(out, ns, 9);
                out.push(b'Z');
                out.extend_from_slice(quote.as_bytes());
            }
        }
    }
}

impl FromStr for TimeFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| format!("{text:?}: expected {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Formats a time in nanoseconds since 1970 by RFC 3339, in UTC, with all nine decimals.
pub fn rfc3339(ns: u64) -> String {
    let mut text = Vec::with_capacity(30);
    TimeFormat::Rfc3339.write(&mut text, ns, "");
    String::from_utf8(text).unwrap_or_default()
}

/// Reads a time of RFC 3339 as nanoseconds since 1970. Returns `None` for other text, and for times that are
/// not between 1970 and 2262.
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    time.timestamp_nanos_opt().and_then(|ns| u64::try_from(ns).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds() {
        let text = |format: TimeFormat, ns| {
            let mut out = Vec::new();
            format.write(&mut out, ns, "\"");
            String::from_utf8(out).unwrap()
        };
        for (ns, iso, unix) in [
            (0, "1970-01-01T00:00:00.000000000Z", "0.000000000"),
            (951_782_400_123_456_789, "2000-02-29T00:00:00.123456789Z", "951782400.123456789"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z", "18446744073.709551615"),
        ] {
            assert_eq!(text(TimeFormat::Ns, ns), ns.to_string());
            assert_eq!(text(TimeFormat::Rfc3339, ns), format!("\"{iso}\""));
            assert_eq!(text(TimeFormat::Unix, ns), unix);
        }
        for ns in [0, 1, 951_782_400_123_456_789, i64::MAX as u64] {
            assert_eq!(parse_rfc3339(&rfc3339(ns)), Some(ns));
        }
        for wrong in ["", "1", "2026-01-31", "1969-12-31T23:59:59Z", "2263-01-01T00:00:00Z"] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
        assert_eq!("rfc3339".parse(), Ok(TimeFormat::Rfc3339));
        assert_eq!("ms".parse::<TimeFormat>().unwrap_err(), "\"ms\": expected ns, rfc3339, unix");
    }
}
