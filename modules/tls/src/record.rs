//! Records of TLS (RFC 8446, section 5.1), and the handshake message in them.

use crate::flow::LONGEST;
use crate::quic::Side;

/// The length of a record's header.
const HEADER: usize = 5;
/// The largest number of records that hold one hello.
const RECORDS: usize = 16;

/// What the first bytes of a stream hold.
pub enum Found<'a> {
    /// A whole message.
    Message(&'a [u8]),
    /// The beginning of one.
    Part,
    TooLong,
    /// Something else.
    Nothing,
}

/// Returns the length of the records that may come before a hello: warnings of a server, and the change of
/// cipher that a client sends before its second hello for compatibility (RFC 8446, D.4).
#[inline]
pub fn before(bytes: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..2 {
        match bytes.get(at..) {
            Some([20 | 21, 3, 0..=4, 0, len @ 1..=2, ..]) => at += HEADER + usize::from(*len),
            _ => break,
        }
    }
    at
}

/// Returns the side whose hello begins with these bytes, if they are the first ones of one.
#[inline]
pub fn hello_in_records(bytes: &[u8]) -> Option<Side> {
    match bytes {
        [22, 3, 0..=4, high, _, 1, ..] if *high < 0x42 => Some(Side::Client),
        [22, 3, 0..=4, high, _, 2, ..] if *high < 0x42 => Some(Side::Server),
        _ => None,
    }
}

/// Returns whether these bytes are the first few of a hello, too few to state whose it is.
#[inline]
pub fn begins_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [22] | [22, 3] | [22, 3, 0..=4] | [22, 3, 0..=4, ..=0x41] | [22, 3, 0..=4, ..=0x41, _])
}

/// Returns the first handshake message of a side's stream of records. If it lies in several records, it is
/// put together in `scratch`.
pub fn handshake<'a>(stream: &'a [u8], side: Side, scratch: &'a mut [u8; LONGEST]) -> Found<'a> {
    if begins_hello(stream) {
        return Found::Part;
    }
    if hello_in_records(stream) != Some(side) {
        return Found::Nothing;
    }
    let Some(head) = stream.first_chunk::<9>() else { return Found::Part };
    let of_record = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let len = 4 + u32::from_be_bytes([0, head[6], head[7], head[8]]) as usize;
    if len + HEADER * RECORDS > LONGEST {
        return Found::TooLong;
    }
    if len <= of_record {
        return stream.get(HEADER..HEADER + len).map_or(Found::Part, Found::Message);
    }
    let (mut at, mut used) = (0, 0);
    for _ in 0..RECORDS {
        let Some([kind, _, _, high, low]) = stream.get(at..).and_then(|s| s.first_chunk::<HEADER>()) else {
            return Found::Part;
        };
        if *kind != 22 {
            return Found::Nothing;
        }
        let of_record = usize::from(u16::from_be_bytes([*high, *low])).min(len - used);
        let Some(part) = stream.get(at + HEADER..at + HEADER + of_record) else { return Found::Part };
        scratch[used..used + of_record].copy_from_slice(part);
        (at, used) = (at + HEADER + of_record, used + of_record);
        if used == len {
            return Found::Message(&scratch[..len]);
        }
    }
    Found::TooLong
}
