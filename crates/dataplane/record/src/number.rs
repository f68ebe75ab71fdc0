//! Decimal numbers, addresses and parts of times as text, for the sinks that write one for each cell.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

/// The two digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// Writes a number in decimal.
pub(crate) fn unsigned(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while n >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(n % 100) as usize]);
        n /= 100;
    }
    let [ten, one] = PAIRS[n as usize];
    at -= 1;
    digits[at] = one;
    if n >= 10 {
        at -= 1;
        digits[at] = ten;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes a number in decimal, with its sign.
pub(crate) fn signed(out: &mut Vec<u8>, n: i64) {
    if n < 0 {
        out.push(b'-');
    }
    unsigned(out, n.unsigned_abs());
}

/// Writes the last `width` digits of a number, with zeros before it.
pub(crate) fn padded(out: &mut Vec<u8>, mut n: u64, width: usize) {
    let mut digits = [b'0'; 20];
    for digit in digits[20 - width..].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    out.extend_from_slice(&digits[20 - width..]);
}

/// Writes an address as RFC 5952 states.
pub(crate) fn address(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => octets(out, ip.octets()),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(mapped) => {
                out.extend_from_slice(b"::ffff:");
                octets(out, mapped.octets());
            }
            None => groups(out, ip),
        },
    }
}

fn octets(out: &mut Vec<u8>, octets: [u8; 4]) {
    for (i, octet) in octets.into_iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        unsigned(out, octet.into());
    }
}

/// Writes the groups of an address, the first of the longest runs of two or more zeros as `::`.
fn groups(out: &mut Vec<u8>, ip: Ipv6Addr) {
    let groups = ip.segments();
    let (mut longest, mut run) = (0..0, 0);
    for (i, group) in groups.iter().enumerate() {
        run = if *group == 0 { run + 1 } else { 0 };
        if run > longest.len() {
            longest = i + 1 - run..i + 1;
        }
    }
    if longest.len() < 2 {
        longest = 8..8;
    }
    for (i, group) in groups.into_iter().enumerate() {
        if longest.contains(&i) {
            if i == longest.start {
                out.extend_from_slice(b"::");
            }
            continue;
        }
        if i > 0 && i != longest.end {
            out.push(b':');
        }
        hexadecimal(out, group);
    }
}

fn hexadecimal(out: &mut Vec<u8>, n: u16) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = [12, 8, 4, 0].map(|shift| DIGITS[usize::from(n >> shift & 15)]);
    let zeros = (n.leading_zeros() as usize / 4).min(3);
    out.extend_from_slice(&digits[zeros..]);
}

/// Writes a time in nanoseconds since 1970 as date and time in UTC, `2026-01-31T23:59:59.123456` with six
/// decimals.
pub(crate) fn utc(out: &mut Vec<u8>, ns: u64, decimals: usize) {
    const SECOND: u64 = 1_000_000_000;
    let (seconds, rest) = (ns / SECOND, ns % SECOND);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    padded(out, year, 4);
    for (before, n) in [(b'-', month), (b'-', day), (b'T', seconds / 3600), (b':', seconds / 60 % 60)] {
        out.push(before);
        padded(out, n, 2);
    }
    out.push(b':');
    padded(out, seconds % 60, 2);
    out.push(b'.');
    padded(out, rest / 10u64.pow(9 - decimals as u32), decimals);
}

/// Returns year, month and day of a day since 1970, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that a leap day is the last one. The first of them begins in year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, of_month)
}

/// Writes a floating-point number as Rust does.
pub(crate) fn float(out: &mut Vec<u8>, x: f64) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, SecondsFormat};

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Returns numbers of every length, and their neighbours.
    fn numbers() -> Vec<u64> {
        let powers = (0..20).map(|n| 10u64.pow(n)).chain((0..64).map(|n| 1 << n)).chain([u64::MAX]);
        powers.flat_map(|n| [n.saturating_sub(1), n, n.saturating_add(1)]).chain(0..1100).collect()
    }

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        for n in numbers() {
            assert_eq!(text(|out| unsigned(out, n)), n.to_string());
            assert_eq!(text(|out| signed(out, n as i64)), (n as i64).to_string());
        }
        assert_eq!(text(|out| signed(out, i64::MIN)), i64::MIN.to_string());
        assert_eq!(text(|out| padded(out, 7, 6)), "000007");
    }

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        // Every pattern of groups that are zero, and groups of each length.
        for pattern in 0..=255u16 {
            for value in [1, 0xf, 0x10, 0xabc, 0xffff] {
                let groups: [u16; 8] = std::array::from_fn(|i| if pattern >> i & 1 == 1 { value } else { 0 });
                let ip = IpAddr::V6(groups.into());
                assert_eq!(text(|out| address(out, ip)), ip.to_string());
            }
        }
        for ip in ["0.0.0.0", "255.255.255.255", "10.9.0.2", "100.64.1.10", "::ffff:192.0.2.1", "::1.2.3.4"] {
            let ip: IpAddr = ip.parse().unwrap();
            assert_eq!(text(|out| address(out, ip)), ip.to_string());
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let day = 86_400_000_000_000;
        // Every day up to 2554, at another time of the day.
        for ns in (0..u64::MAX / day).map(|n| n * day + n * 1_234_567_891 % day).chain([u64::MAX]) {
            let time = DateTime::from_timestamp((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32);
            let expected = time.unwrap().to_rfc3339_opts(SecondsFormat::Nanos, true);
            assert_eq!(text(|out| utc(out, ns, 9)) + "Z", expected);
        }
        assert_eq!(text(|out| utc(out, 951_782_400_123_456_789, 6)), "2000-02-29T00:00:00.123456");
    }
}
