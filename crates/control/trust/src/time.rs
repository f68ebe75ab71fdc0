//! Times in policies and credentials: RFC 3339 in text, seconds since 1970 in values.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a time such as `2026-01-31T12:00:00Z` to seconds since 1970. The offset is required.
pub fn parse(text: &str) -> Result<u64, String> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339).ok();
    let seconds = parsed.and_then(|t| u64::try_from(t.unix_timestamp()).ok());
    seconds.ok_or_else(|| format!("{text:?} is no time: expected one as in 2026-01-31T12:00:00Z"))
}

pub fn show(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    time.and_then(|t| t.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{seconds} s since 1970"))
}

/// Returns the time of this machine's clock in seconds since 1970.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
