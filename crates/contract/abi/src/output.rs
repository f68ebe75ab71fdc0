//! The return value of a call, and the records and messages to which it refers.
//!
//! A call returns `address | length << 32` of its output in the module's own memory. Bits 30 and 31 are
//! [`REST`] and [`MORE`]; they are free because a module owns at most 1 GiB. 0 means no output.
//!
//! - With [`REST`], which any call may set, the host calls `flame_rest` for the rest of the output, until its
//!   result is without this bit.
//! - With [`MORE`], which has a meaning for `flame_tick` and `flame_end` only, the host then makes the same
//!   call again.
//!
//! `flame_export` returns address and length of a blob instead, with neither bit, and `flame_import` one of
//! [`TAKEN`] and [`REFUSED`].
//!
//! The output is a sequence of frames:
//!
//! ```text
//! u32 length of payload | u16 kind | u16 0 | payload
//! ```
//!
//! `kind` is a table's index in the manifest (the payload is one row) or one of the constants of this file. A
//! row holds its columns in the order of the manifest, packed without padding, little-endian:
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

/// The flag in a returned value that the host shall make the same call again.
pub const MORE: u64 = 1 << 31;
/// The flag in a returned value that `flame_rest` returns more output of this call.
pub const REST: u64 = 1 << 30;

/// The value of `flame_import` for a state that the module has taken.
pub const TAKEN: u64 = 0;
/// The value of `flame_import` for a state that the module refuses. The instance then is as after
/// `flame_init`.
pub const REFUSED: u64 = 1;

/// The size of a frame's head in bytes.
pub const FRAME: usize = 8;

/// The kind of a frame whose payload is a message for the slow instance.
pub const MESSAGE: u16 = 0xffff;
/// The kind of a frame whose payload is a u64: the number of records that the module dropped since its last
/// such frame. The last two bytes of its head are the number of their table plus 1, or 0 if they are of
/// several tables.
pub const LOST: u16 = 0xfffe;

/// The kind of a frame whose payload is a packet for the capture file of `-w`, after a head of
/// [`PACKET_HEAD`] bytes: u64 time in ns since 1970, u32 length on the wire, u16 link type, u16 0. Allowed
/// only if the manifest has `packets = true`.
pub const PACKET: u16 = 0xfffd;

/// The kind of a frame whose payload is a text for the operator: UTF-8 of at most [`MAX_LOG`] bytes. Allowed
/// only if the manifest has `log = true`.
pub const LOG: u16 = 0xfffc;

/// The kind of a frame by which a module that forwards packets sends one. Its payload is a head of
/// [`SEND_HEAD`] bytes, u16 index of the packet in this batch and u16 output port, and then the bytes of the
/// packet, or none if it is sent as it came. The index [`MADE`] sends a new packet. Only `flame_push` and the
/// calls for the rest of its output return such frames; a packet without one is dropped.
pub const SEND: u16 = 0xfffb;

/// The kind of a frame by which a module sends a link-layer frame on one of its channels. Its payload is a
/// head of [`CHANNEL_HEAD`] bytes, u16 number of the channel in the manifest and u16 0, and then the whole
/// frame, of [`LEAST_SENT`] to [`MOST_SENT`] bytes.
pub const CHANNEL: u16 = 0xfffa;

/// The kind of a frame by which a module that forwards packets holds one. Its payload is u16 index of the
/// packet in this batch and u16 slot, below `held` of `[ports]` in the manifest. A packet that was in the
/// slot is dropped.
pub const HOLD: u16 = 0xfff7;

/// The kind of a frame by which a module that forwards packets sends one that it holds, as it came. Its
/// payload is u16 slot and u16 output port. The slot is empty afterwards. An empty slot sends nothing.
pub const RELEASE: u16 = 0xfff6;

/// The kind of a frame as of [`RELEASE`], which sends a copy: the packet stays in its slot.
pub const COPY: u16 = 0xfff5;

/// The least kind of a frame that is no table.
pub const LEAST_KIND: u16 = COPY;

/// The size in bytes of the payload of [`HOLD`], [`RELEASE`] and [`COPY`].
pub const HELD: usize = 4;

/// The size in bytes of the head before a frame that is sent on a channel.
pub const CHANNEL_HEAD: usize = 4;

/// The shortest frame that a channel takes, in bytes: the head of Ethernet.
pub const LEAST_SENT: usize = 14;
/// The longest frame that a channel takes, in bytes.
pub const MOST_SENT: usize = 9216;

/// The kind of a frame by which a module calls a service that its manifest lists in `[[uses]]`. Its payload
/// is a head of [`CALL_HEAD`] bytes, u16 number of the use, u16 0, u32 0 and u64 token, and then the request,
/// of at most [`MAX_REQUEST`] bytes. The token comes back in the call of `flame_done` with the outcome.
pub const CALL: u16 = 0xfff9;

/// The size in bytes of the head before a request.
pub const CALL_HEAD: usize = 16;

/// The kind of a frame by which a module replies to a call of one of its services. Its payload is a head of
/// [`REPLY_HEAD`] bytes, u64 number of the call, and then the reply, of at most [`MAX_REQUEST`] bytes.
pub const REPLY: u16 = 0xfff8;

/// The size in bytes of the head before a reply.
pub const REPLY_HEAD: usize = 8;

/// The largest request and the largest reply in bytes.
pub const MAX_REQUEST: usize = 4096;

/// The size in bytes of the head of the data of `flame_serve`, before the request: u64 number of the call,
/// u16 number of the service, u16 0, u32 0.
pub const SERVE_HEAD: usize = 16;

/// The size in bytes of the head of the data of `flame_done`, before the reply: u64 token, u16 outcome, u16
/// 0, u32 number of calls before this one that were not let out.
pub const DONE_HEAD: usize = 16;

/// The outcome of a call of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Outcome {
    /// The service replied.
    Replied = 0,
    /// No module offers the service.
    Nobody = 1,
    /// The module that offers the service has ended before it replied.
    Ended = 2,
    /// The service did not reply in time.
    Late = 3,
    /// The caller has no processor time left for it.
    Refused = 4,
}

impl Outcome {
    pub const ALL: [Self; 5] = [Self::Replied, Self::Nobody, Self::Ended, Self::Late, Self::Refused];

    /// Returns the outcome with this number, if there is one.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| *outcome as u16 == number)
    }
}

/// The size in bytes of the head of a packet that is sent.
pub const SEND_HEAD: usize = 4;

/// The index of a packet that the module made.
pub const MADE: u16 = 0xffff;

/// The largest text for the operator in bytes.
pub const MAX_LOG: usize = 512;

/// The size in bytes of the head before a packet's bytes.
pub const PACKET_HEAD: usize = 16;

/// The largest payload of a frame in bytes.
pub const MAX_PAYLOAD: usize = 65_536;

/// A returned value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    pub address: u32,
    pub bytes: u32,
    /// Whether [`MORE`] is set.
    pub more: bool,
    /// Whether [`REST`] is set.
    pub rest: bool,
}

/// Splits a returned value.
pub fn unpack(value: u64) -> Value {
    Value {
        address: (value & !(MORE | REST)) as u32,
        bytes: (value >> 32) as u32,
        more: value & MORE != 0,
        rest: value & REST != 0,
    }
}
