//! Times in policies and credentials: RFC 3339 in text, seconds since 1970 in values.

use time::format_description::well_known::{Iso8601, Rfc3339};
use time::{Date, OffsetDateTime};

/// Parses a time such as `2026-01-31T12:00:00Z` to seconds since 1970. The offset is required. A date alone
/// is an error: it leaves open whether its day is included, and in which zone.
///
/// # Errors
///
/// Returns a description of the fault if the text is no time, has no offset, or lies before 1970.
pub fn parse(text: &str) -> Result<u64, String> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339).ok();
    let seconds = parsed.and_then(|t| u64::try_from(t.unix_timestamp()).ok());
    seconds.ok_or_else(|| match Date::parse(text, &Iso8601::DATE) {
        Ok(_) => {
            format!("{text:?} is a date without a time: expected {text}T00:00:00Z or another time of it")
        }
        Err(_) => format!("{text:?} is no time: expected one as in 2026-01-31T12:00:00Z"),
    })
}

/// Returns a time in seconds since 1970 as text (RFC 3339).
pub fn show(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    time.and_then(|t| t.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{seconds} s since 1970"))
}

/// Returns the time of this machine's clock in seconds since 1970.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_alone_is_refused_with_the_time_that_it_lacks() {
        assert_eq!(parse("1970-01-02T00:00:00Z"), Ok(86_400));
        assert!(parse("2026-01-31").unwrap_err().contains("2026-01-31T00:00:00Z"));
        assert!(parse("2026-02-31").unwrap_err().contains("is no time"));
        assert!(parse("tomorrow").unwrap_err().contains("is no time"));
    }
}
