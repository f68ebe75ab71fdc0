//! What a call returns, and the records and messages it points to.
//!
//! A call returns `address | length << 32` of its output in the module's own memory. Bit 31 (an
//! address there would lie in the window) is [`MORE`]: call the same export again for the rest; only
//! `flame_tick` and `flame_end` may set it. 0 means no output.
//!
//! The output is a sequence of frames:
//!
//! ```text
//! u32 length of payload | u16 kind | u16 0 | payload
//! ```
//!
//! `kind` is a table's index in the manifest (the payload is one row), or one of the constants here.
//! A row holds its columns in the manifest's order, packed without padding, little-endian:
//!
//! | type | bytes |
//! | --- | --- |
//! | bool, u8, enum (index of the value) | 1 |
//! | u16 | 2 |
//! | u32 | 4 |
//! | u64, i64, f64, time (ns since 1970), duration (ns, signed) | 8 |
//! | mac | 6 |
//! | ip | 17: family (4 or 6), then 16 bytes (IPv4 in the first four, the others 0) |
//! | text | u16 length, then UTF-8 |

/// Set in a returned value when the call has more output.
pub const MORE: u64 = 1 << 31;

/// Bytes of a frame's head.
pub const FRAME: usize = 8;

/// Payload: a message for the slow instance.
pub const MESSAGE: u16 = 0xffff;
/// Payload: u64, records the module had to drop since it last said so.
pub const LOST: u16 = 0xfffe;

/// Payload: a packet for the capture file that `-w` names, after a head of [`PACKET_HEAD`] bytes: u64 time in
/// ns since 1970, u32 length on the wire, u16 link type, u16 0. Only if the manifest says `packets = true`.
pub const PACKET: u16 = 0xfffd;

/// Bytes before those of a packet.
pub const PACKET_HEAD: usize = 16;

/// Largest payload of one frame in bytes.
pub const MAX_PAYLOAD: usize = 65_536;

/// Splits a returned value into address, length and whether there is more.
pub fn unpack(value: u64) -> (u32, u32, bool) {
    (value as u32 & !(MORE as u32), (value >> 32) as u32, value & MORE != 0)
}
