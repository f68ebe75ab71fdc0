//! Faults in a module's output, for which the module alone is responsible.

use flame_abi::output::{
    CALL_HEAD, CHANNEL_HEAD, FRAME, HELD, LEAST_SENT, MAX_LOG, MAX_PAYLOAD, MAX_REQUEST, MOST_SENT,
    PACKET_HEAD, REPLY_HEAD, SEND_HEAD,
};

/// Returns the reason why a module has not the right `call`: its manifest does not ask for it, or its grant
/// does not give it.
fn without(declared: bool, call: &str) -> String {
    match declared {
        true => format!("the grant has no {call}"),
        false => format!("the manifest lacks `{call} = true` in [ports]"),
    }
}

/// The first fault in the output of one call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("output frame {frame}, byte {offset}: {fault}")]
pub struct OutputError {
    /// The index of the frame in this output.
    pub frame: usize,
    /// The offset of the fault in the output in bytes.
    pub offset: usize,
    pub fault: Fault,
}

/// A kind of fault. `at` is `table.column`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("a frame's head is {FRAME} bytes, {left} are left")]
    Head { left: usize },
    #[error("payload is {length} bytes, at most {MAX_PAYLOAD} are allowed")]
    TooLong { length: u32 },
    #[error("payload is {length} bytes, {left} are left in the output")]
    Beyond { length: u32, left: usize },
    #[error("the last two bytes of a frame's head are {found:#06x}, expected 0")]
    Reserved { found: u16 },
    #[error("kind {found} is no table: the manifest lists {tables}")]
    Kind { found: u16, tables: usize },
    #[error("a message, but nothing here takes one: export flame_message, and send from the fast path only")]
    Message,
    #[error(
        "a packet that is sent, but only flame_push of a module whose manifest has [ports] sends packets"
    )]
    Send,
    #[error("a packet that is sent begins with {SEND_HEAD} bytes: index, output; found {length} bytes")]
    SendHead { length: usize },
    #[error("output {found}, the module has {outputs}")]
    Port { found: u16, outputs: u32 },
    #[error("packet {found} of a batch of {count}")]
    Index { found: u16, count: u32 },
    #[error("packet {found} is sent twice")]
    Twice { found: u16 },
    #[error("changed bytes of a packet, but {}", without(*.declared, "modify"))]
    Modify { declared: bool },
    #[error("a packet that is held, but {}", if *.declared { "the grant has no hold" } else { "the manifest lacks `held` in [ports]" })]
    Hold { declared: bool },
    #[error("slot {found}, the module has {held} (`held` in [ports])")]
    Slot { found: u16, held: u32 },
    #[error("a frame about a held packet is {HELD} bytes, found {length}")]
    HeldLength { length: usize },
    #[error("a new packet, but {}", without(*.declared, "transmit"))]
    Transmit { declared: bool },
    #[error("a new packet of no bytes")]
    Nothing,
    #[error("a packet, but the manifest lacks `packets = true`")]
    Packets,
    #[error(
        "a packet begins with {PACKET_HEAD} bytes: time, length, link type, 0; found {length} bytes that do not"
    )]
    Packet { length: usize },
    #[error("a text for the operator, but the manifest lacks `log = true`")]
    Log,
    #[error("a text for the operator is at most {MAX_LOG} bytes, found {length}")]
    LongLog { length: usize },
    #[error("a text for the operator is not UTF-8 from byte {valid} of {length}")]
    LogText { valid: usize, length: usize },
    #[error("a frame for a channel begins with {CHANNEL_HEAD} bytes: channel, 0; found {length} that do not")]
    ChannelHead { length: usize },
    #[error("channel {found}, the manifest lists {channels} in [[channels]]")]
    Channel { found: u16, channels: usize },
    #[error("a frame of {length} bytes, a channel takes {LEAST_SENT} to {MOST_SENT}")]
    SentLength { length: usize },
    #[error(
        "a call of a service begins with {CALL_HEAD} bytes: number, 0, 0, token; found {length} that do not"
    )]
    CallHead { length: usize },
    #[error("service {found}, the manifest lists {uses} in [[uses]]")]
    Use { found: u16, uses: usize },
    #[error("a reply, but the manifest offers nothing in [[services]]")]
    Serve,
    #[error("a reply begins with {REPLY_HEAD} bytes: the number of its call; found {length}")]
    ReplyHead { length: usize },
    #[error("{length} bytes for a service or from it, at most {MAX_REQUEST} are allowed")]
    LongRequest { length: usize },
    #[error("a count of lost records is 8 bytes, found {length}")]
    Lost { length: usize },
    #[error("{at}: needs {needs} bytes, {left} are left in the row: does it match the manifest?")]
    Short { at: String, needs: usize, left: usize },
    #[error("{table}: {extra} bytes after the last column: does the row match the manifest?")]
    Extra { table: String, extra: usize },
    #[error("{at}: expected 0 or 1, found {found}")]
    Bool { at: String, found: u8 },
    #[error("{at}: index {found}, the manifest lists {values} values")]
    Enum { at: String, found: u8, values: usize },
    #[error("{at}: address family {found}, expected 4 or 6")]
    Family { at: String, found: u8 },
    #[error("{at}: an IPv4 address is followed by 12 zero bytes")]
    Padding { at: String },
    #[error("{at}: not UTF-8 from byte {valid} of {length}")]
    Text { at: String, valid: usize, length: usize },
}
