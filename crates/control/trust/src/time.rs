//! Times in policies and credentials: RFC 3339, in seconds since 1970.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Seconds of `2026-01-31T12:00:00Z`; an offset is needed.
pub fn parse(text: &str) -> Result<u64, String> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339).ok();
    let seconds = parsed.and_then(|t| u64::try_from(t.unix_timestamp()).ok());
    seconds.ok_or_else(|| format!("{text:?} is no time: expected one as in 2026-01-31T12:00:00Z"))
}

pub fn show(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok());
    time.and_then(|t| t.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{seconds} s since 1970"))
}

/// Now, by this machine's clock.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}
