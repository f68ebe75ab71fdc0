//! The data types of arguments.

use crate::addr::{Ip, Mac, Prefix};
use crate::scope::Scope;
use crate::text::{decode, encode, unquote};
use crate::time::Nanos;

/// A type of argument.
pub trait Value: Sized {
    /// The name of the type in messages.
    const KIND: &'static str;
    /// Returns the value, or `None` if the text has another type.
    fn read(text: &str, scope: &Scope<'_>) -> Option<Self>;
}

/// Bytes of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data(pub Vec<u8>);

/// Bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(pub u64);

/// A text as it was written, with its quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub String);

/// Reads an integer: decimal, `0x`, `0b` or octal, with `k`, `M` or `G` for powers of a thousand.
pub fn integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let (digits, scale) = match digits.as_bytes().last() {
        Some(b'k') if radix == 10 => (&digits[..digits.len() - 1], 1_000),
        Some(b'M') if radix == 10 => (&digits[..digits.len() - 1], 1_000_000),
        Some(b'G') if radix == 10 => (&digits[..digits.len() - 1], 1_000_000_000),
        _ => (digits, 1),
    };
    if digits.is_empty() || digits.len() > 30 || !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?.checked_mul(scale)?;
    Some(if negative { -value } else { value })
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Value for $t {
            const KIND: &'static str = concat!("an integer (", stringify!($t), ")");
            fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
                integer(&unquote(text)).and_then(|v| v.try_into().ok())
            }
        }
    )* };
}
integers!(u8 u16 u32 u64 usize i8 i16 i32 i64);

/// Reads a truth value.
pub fn boolean(text: &str) -> Option<bool> {
    match text.trim() {
        "true" | "yes" | "1" | "t" | "on" => Some(true),
        "false" | "no" | "0" | "f" | "off" => Some(false),
        _ => None,
    }
}

impl Value for bool {
    const KIND: &'static str = "true or false";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        boolean(&unquote(text))
    }
}

impl Value for f64 {
    const KIND: &'static str = "a number";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        unquote(text).trim().parse().ok().filter(|v: &f64| v.is_finite())
    }
}

impl Value for String {
    const KIND: &'static str = "text";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        Some(unquote(text))
    }
}

impl Value for Raw {
    const KIND: &'static str = "text";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

impl Value for Data {
    const KIND: &'static str = "data";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        Some(Self(encode(&unquote(text))))
    }
}

impl Value for Nanos {
    const KIND: &'static str = "a time in seconds, or with a unit (s, ms, us, ns, min, h)";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        Self::parse(unquote(text).trim())
    }
}

impl Value for Rate {
    const KIND: &'static str = "a rate, such as 1000, 8kbps or 2MBps";
    fn read(text: &str, _: &Scope<'_>) -> Option<Self> {
        let text = unquote(text);
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (text[..end].parse::<f64>().ok()?, text[end..].trim());
        let (scale, unit) = match unit.chars().next() {
            Some('k' | 'K') => (1e3, &unit[1..]),
            Some('M') => (1e6, &unit[1..]),
            Some('G') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let bytes = match unit {
            "" | "Bps" | "B/s" => number * scale,
            "bps" | "b/s" => number * scale / 8.0,
            _ => return None,
        };
        (bytes < 1e18).then_some(Self(bytes.round() as u64))
    }
}

impl Value for Ip {
    const KIND: &'static str = "an IP address";
    fn read(text: &str, scope: &Scope<'_>) -> Option<Self> {
        let text = unquote(text);
        Self::parse(&text).or_else(|| scope.ip(&text))
    }
}

impl Value for Prefix {
    const KIND: &'static str = "an IP prefix";
    fn read(text: &str, scope: &Scope<'_>) -> Option<Self> {
        let text = unquote(text);
        Self::parse(&text).or_else(|| scope.prefix(&text))
    }
}

impl Value for Mac {
    const KIND: &'static str = "an Ethernet address";
    fn read(text: &str, scope: &Scope<'_>) -> Option<Self> {
        let text = unquote(text);
        Self::parse(&text).or_else(|| scope.mac(&text))
    }
}

/// Writes bytes as text that [`Data`] reads.
pub fn unparse_data(bytes: &[u8]) -> String {
    crate::text::quote(&decode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Value>(text: &str) -> Option<T> {
        T::read(text, &Scope::none())
    }

    #[test]
    fn integers_have_a_radix_a_range_and_suffixes() {
        assert_eq!(read::<u16>("0x0800"), Some(2048));
        assert_eq!(read::<u16>("010"), Some(8));
        assert_eq!(read::<u8>("256"), None);
        assert_eq!(read::<u32>("-1"), None);
        assert_eq!(read::<i32>("-1"), Some(-1));
        assert_eq!(read::<u32>("10k"), Some(10_000));
        for bad in ["", "-", "0x", "1e3", "08", "1 2", "99999999999999999999999999999999999"] {
            assert_eq!(read::<i64>(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_are_bytes_per_second() {
        assert_eq!(read::<Rate>("100kb/s"), Some(Rate(12_500)));
        assert_eq!(read::<Rate>("200Bps"), Some(Rate(200)));
        assert_eq!(read::<Rate>("1.5MBps"), Some(Rate(1_500_000)));
        assert_eq!(read::<Rate>("9 parsecs"), None);
    }
}
