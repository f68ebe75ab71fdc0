//! Names, durations and sizes as the configuration writes them.

use crate::config::Fault;
use toml::Spanned;

/// The form of names, for errors.
pub const NAME: &str = "expected a lower-case letter, then up to 31 of letters, digits, _ and -";

/// Returns whether `name` can name a source or a module: as a manifest's names.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    name.len() <= 32 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
}

/// Parses a duration as in manifests, in nanoseconds.
pub fn duration(text: &Spanned<String>) -> Result<u64, Fault> {
    match flame_abi::manifest::duration_ns(text.get_ref()) {
        Ok(ns) if ns > 0 => Ok(ns as u64),
        Ok(_) => Err((text.span().start, format!("{:?}: must be longer than 0", text.get_ref()))),
        Err(reason) => Err((text.span().start, reason)),
    }
}

/// Parses a size in bytes: `8MiB`, `64KiB`, `1GiB`, or a number.
pub fn size(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    units.into_iter().find_map(|(unit, shift)| {
        let digits = text.strip_suffix(unit)?;
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok())??;
        number.checked_mul(1 << shift)
    })
}

/// Parses a part of one processor, `5%`, `0.25%` or `160%`, in millionths.
pub fn percent(text: &str) -> Option<u64> {
    let number = text.strip_suffix('%')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 4 || number.ends_with('.') {
        return None;
    }
    let part: u64 = format!("{part:0<4}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(10_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_are_millionths() {
        for (text, ppm) in [("5%", 50_000), ("0.25%", 2_500), ("160%", 1_600_000), ("0.0001%", 1), ("0%", 0)]
        {
            assert_eq!(percent(text), Some(ppm), "{text}");
        }
        for wrong in
            ["", "%", "5", "-1%", "+1%", ".5%", "1.%", "1.00001%", "1e3%", "99999999999999999999%", "é%"]
        {
            assert_eq!(percent(wrong), None, "{wrong}");
        }
    }
}
