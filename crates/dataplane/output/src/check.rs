//! The checks of untrusted output: frames and rows in the layout of [`flame_abi::output`].

use crate::channel::{channel, check_channel};
use crate::error::{Fault, OutputError};
use crate::held::{Held, held};
use crate::send::{Sent, plain_send, run, send};
use crate::service::{call, check_call, check_reply, reply};
use flame_abi::LinkType;
use flame_abi::manifest::{ColumnType, Manifest};
use flame_abi::output::{
    CALL, CHANNEL, COPY, FRAME, HOLD, LOG, LOST, MAX_LOG, MAX_PAYLOAD, MESSAGE, PACKET, PACKET_HEAD, RELEASE,
    REPLY, SEND,
};
use flame_plan::Forward;

/// No rights.
const NONE: Forward = Forward { modify: false, transmit: false, hold: false };

/// The permitted output of one module: its tables, compiled to the few checks that a row needs.
#[derive(Debug, Clone)]
pub struct Schema {
    tables: Vec<Shape>,
    packets: bool,
    log: bool,
    /// The number of channels.
    channels: usize,
    /// The numbers of services that it offers and that it uses.
    services: usize,
    uses: usize,
    /// The number of outputs of a module that forwards packets, or 0.
    outputs: u32,
    /// The number of slots for packets that it holds.
    held: u32,
    /// The rights that it asks for, and those that it has.
    declared: Forward,
    granted: Forward,
}

/// The contents of an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCounts {
    pub records: u64,
    pub messages: u64,
    pub packets: u64,
    /// Packets that were sent from an output, held or released.
    pub sent: u64,
    /// The first of the packets that were sent and their output, if the output consists of packets of the
    /// batch that follow each other and are sent as they came.
    pub run: Option<(u16, u16)>,
    /// Texts for the operator.
    pub logs: u64,
    /// Frames for channels.
    pub on_channels: u64,
    /// Calls of services, and replies to them.
    pub calls: u64,
    pub replies: u64,
    /// The number of records that the module reports as dropped. It saturates, because the module may report
    /// any number.
    pub lost: u64,
}

/// The progress of a check ([`Schema::check_piece`]).
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckProgress {
    /// The bytes that were checked, at the end of a frame, and the number of their frames.
    pub bytes: usize,
    pub frames: usize,
    /// The contents of these frames.
    pub counts: FrameCounts,
}

#[derive(Debug, Clone)]
struct Shape {
    name: String,
    columns: Vec<(String, Step)>,
    /// The columns as steps, with adjacent steps of arbitrary bytes merged into one.
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A number of bytes with any value.
    Any(usize),
    Bool,
    /// One byte with a value below this.
    Enum(u8),
    Ip,
    Text,
}

/// The number of bytes of an `ip`: the family and 16 bytes of address.
const IP: usize = 17;

impl Schema {
    pub fn new(manifest: &Manifest) -> Self {
        let shape = |table: &flame_abi::manifest::Table| {
            let step = |c: &flame_abi::manifest::Column| (c.name.clone(), Step::of(c.kind, c.values.len()));
            let columns: Vec<_> = table.columns.iter().map(step).collect();
            let mut steps: Vec<Step> = Vec::with_capacity(columns.len());
            for (_, step) in &columns {
                match (steps.last_mut(), *step) {
                    (Some(Step::Any(run)), Step::Any(n)) => *run += n,
                    (_, step) => steps.push(step),
                }
            }
            Shape { name: table.name.clone(), columns, steps }
        };
        let tables = manifest.tables.iter().map(shape).collect();
        let ports = manifest.ports;
        let declared =
            ports.map_or(NONE, |p| Forward { modify: p.modify, transmit: p.transmit, hold: p.held > 0 });
        let (outputs, held) = ports.map_or((0, 0), |p| (p.outputs, p.held));
        let (packets, log, channels) = (manifest.packets, manifest.log, manifest.channels.len());
        let (services, uses) = (manifest.services.len(), manifest.uses.len());
        Self { tables, packets, log, channels, services, uses, outputs, held, declared, granted: NONE }
    }

    /// Lets a module that forwards packets use these of the rights that its manifest asks for.
    #[must_use]
    pub fn forwarding(self, rights: Forward) -> Self {
        let granted = Forward {
            modify: self.declared.modify && rights.modify,
            transmit: self.declared.transmit && rights.transmit,
            hold: self.declared.hold && rights.hold,
        };
        Self { granted, ..self }
    }

    /// Checks `output`, the bytes that one call returned, and counts its frames. Afterwards [`frames`] and
    /// `flame_record::Rows` read it without failure. Allocates only for an error. `has_slow_path` states
    /// whether messages have a receiver.
    ///
    /// # Errors
    ///
    /// Returns the first fault in `output`.
    pub fn check(&self, output: &[u8], has_slow_path: bool) -> Result<FrameCounts, OutputError> {
        self.check_sent(output, has_slow_path, None)
    }

    /// Checks the output of `flame_push`, or of a call for its rest, as [`Schema::check`] does that of
    /// others. `sent` are the packets of the batch that were sent by then.
    ///
    /// # Errors
    ///
    /// Returns the first fault in `output`.
    pub fn check_sent(
        &self,
        output: &[u8],
        has_slow_path: bool,
        sent: Option<&mut Sent>,
    ) -> Result<FrameCounts, OutputError> {
        let mut progress = CheckProgress::default();
        self.check_piece(output, &mut progress, usize::MAX, has_slow_path, sent)?;
        Ok(progress.counts)
    }

    /// Continues the check of `output` until `piece` more bytes are checked, or a frame more where that is
    /// longer. It is over once [`CheckProgress::bytes`] is the length of `output`, which must not change
    /// before.
    ///
    /// # Errors
    ///
    /// Returns the first fault in `output`.
    pub fn check_piece(
        &self,
        output: &[u8],
        progress: &mut CheckProgress,
        piece: usize,
        has_slow_path: bool,
        mut sent: Option<&mut Sent>,
    ) -> Result<(), OutputError> {
        let CheckProgress { bytes, frames: frame, counts } = progress;
        if *bytes == 0
            && let Some(sent) = sent.as_deref_mut()
            && let Some((first, port, count)) = run(output)
            && u32::from(port) < self.outputs
            && sent.send_run(first, count)
        {
            *counts = FrameCounts { sent: count.into(), run: Some((first, port)), ..*counts };
            (*bytes, *frame) = (output.len(), count.into());
            return Ok(());
        }
        let (mut counted, mut number) = (*counts, *frame);
        let mut rest = output.get(*bytes..).unwrap_or_default();
        let end = rest.len().saturating_sub(piece);
        while rest.len() > end {
            // Most frames of a module that forwards; all others, and faults, are found below.
            if let Some(sent) = sent.as_deref_mut()
                && let Some((index, port, next)) = plain_send(rest)
                && u32::from(port) < self.outputs
                && sent.send(index).is_ok()
            {
                counted.sent += 1;
                rest = next;
                number += 1;
                continue;
            }
            let start = output.len() - rest.len();
            let fail = |inside: usize, fault| OutputError { frame: number, offset: start + inside, fault };
            let Some((head, after)) = rest.split_first_chunk::<FRAME>() else {
                return Err(fail(0, Fault::Head { left: rest.len() }));
            };
            let (length, kind, reserved) = split_head(head);
            if length as usize > MAX_PAYLOAD {
                return Err(fail(0, Fault::TooLong { length }));
            }
            let is_table_of_lost = kind == LOST && usize::from(reserved) <= self.tables.len();
            if reserved != 0 && !is_table_of_lost {
                return Err(fail(6, Fault::Reserved { found: reserved }));
            }
            let Some((payload, next)) = after.split_at_checked(length as usize) else {
                return Err(fail(0, Fault::Beyond { length, left: after.len() }));
            };
            match kind {
                MESSAGE if has_slow_path => counted.messages += 1,
                MESSAGE => return Err(fail(4, Fault::Message)),
                PACKET if !self.packets => return Err(fail(4, Fault::Packets)),
                PACKET => match packet(payload) {
                    Some(_) => counted.packets += 1,
                    None => return Err(fail(FRAME, Fault::Packet { length: payload.len() })),
                },
                SEND => match sent.as_deref_mut().filter(|_| self.outputs > 0) {
                    None => return Err(fail(4, Fault::Send)),
                    Some(sent) => {
                        self.send(payload, sent).map_err(|fault| fail(FRAME, fault))?;
                        counted.sent += 1;
                    }
                },
                HOLD | RELEASE | COPY => match sent.as_deref_mut().filter(|_| self.outputs > 0) {
                    None => return Err(fail(4, Fault::Send)),
                    Some(sent) => {
                        self.hold(held(kind, payload), payload.len(), sent)
                            .map_err(|fault| fail(FRAME, fault))?;
                        counted.sent += 1;
                    }
                },
                LOG if !self.log => return Err(fail(4, Fault::Log)),
                LOG => match log(payload) {
                    Ok(_) => counted.logs += 1,
                    Err(fault) => return Err(fail(FRAME, fault)),
                },
                CHANNEL => {
                    check_channel(payload, self.channels).map_err(|fault| fail(FRAME, fault))?;
                    counted.on_channels += 1;
                }
                CALL => {
                    check_call(payload, self.uses).map_err(|fault| fail(FRAME, fault))?;
                    counted.calls += 1;
                }
                REPLY => {
                    check_reply(payload, self.services).map_err(|fault| fail(FRAME, fault))?;
                    counted.replies += 1;
                }
                LOST => match payload.try_into() {
                    Ok(n) => counted.lost = counted.lost.saturating_add(u64::from_le_bytes(n)),
                    Err(_) => return Err(fail(FRAME, Fault::Lost { length: payload.len() })),
                },
                _ => {
                    let Some(shape) = self.tables.get(usize::from(kind)) else {
                        return Err(fail(4, Fault::Kind { found: kind, tables: self.tables.len() }));
                    };
                    if !shape.fits(payload) {
                        let (inside, fault) = shape.explain(payload);
                        return Err(fail(FRAME + inside, fault));
                    }
                    counted.records += 1;
                }
            }
            rest = next;
            number += 1;
        }
        (*bytes, *frame, *counts) = (output.len() - rest.len(), number, counted);
        Ok(())
    }
}

impl Schema {
    fn send(&self, payload: &[u8], sent: &mut Sent) -> Result<(), Fault> {
        let Some((packet, port, bytes)) = send(payload) else {
            return Err(Fault::SendHead { length: payload.len() });
        };
        if u32::from(port) >= self.outputs {
            return Err(Fault::Port { found: port, outputs: self.outputs });
        }
        match packet {
            Some(index) => {
                sent.send(index)?;
                if !bytes.is_empty() && !self.granted.modify {
                    return Err(Fault::Modify { declared: self.declared.modify });
                }
            }
            None if !self.granted.transmit => {
                return Err(Fault::Transmit { declared: self.declared.transmit });
            }
            None if bytes.is_empty() => return Err(Fault::Nothing),
            None => {}
        }
        Ok(())
    }
}

impl Schema {
    fn hold(&self, held: Option<Held>, length: usize, sent: &mut Sent) -> Result<(), Fault> {
        let Some(held) = held else { return Err(Fault::HeldLength { length }) };
        if !self.granted.hold {
            return Err(Fault::Hold { declared: self.declared.hold });
        }
        let (Held::Hold { slot, .. } | Held::Release { slot, .. } | Held::Copy { slot, .. }) = held;
        if u32::from(slot) >= self.held {
            return Err(Fault::Slot { found: slot, held: self.held });
        }
        match held {
            Held::Hold { packet, .. } => sent.send(packet),
            Held::Copy { .. } if !self.granted.transmit => {
                Err(Fault::Transmit { declared: self.declared.transmit })
            }
            Held::Release { port, .. } | Held::Copy { port, .. } if u32::from(port) >= self.outputs => {
                Err(Fault::Port { found: port, outputs: self.outputs })
            }
            Held::Release { .. } | Held::Copy { .. } => Ok(()),
        }
    }
}

impl Step {
    fn of(kind: ColumnType, values: usize) -> Self {
        match kind {
            ColumnType::Bool => Self::Bool,
            ColumnType::U8 => Self::Any(1),
            ColumnType::U16 => Self::Any(2),
            ColumnType::U32 => Self::Any(4),
            ColumnType::U64 | ColumnType::I64 | ColumnType::F64 | ColumnType::Time | ColumnType::Duration => {
                Self::Any(8)
            }
            ColumnType::Mac => Self::Any(6),
            ColumnType::Ip => Self::Ip,
            ColumnType::Text => Self::Text,
            // The manifest's parser allows at most 255 values; a longer list could not be indexed anyway.
            ColumnType::Enum => Self::Enum(u8::try_from(values).unwrap_or(u8::MAX)),
        }
    }

    /// Returns the bytes of `row` after this step, if the row passes it.
    #[inline]
    fn pass(self, row: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Any(n) => row.get(n..),
            Self::Bool => row.split_first().filter(|(b, _)| **b <= 1).map(|(_, rest)| rest),
            Self::Enum(n) => row.split_first().filter(|(b, _)| **b < n).map(|(_, rest)| rest),
            Self::Ip => {
                let (ip, rest) = row.split_first_chunk::<IP>()?;
                (ip[0] == 6 || (ip[0] == 4 && ip[5..] == [0; 12])).then_some(rest)
            }
            Self::Text => {
                let (length, rest) = row.split_first_chunk::<2>()?;
                let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
                std::str::from_utf8(text).is_ok().then_some(rest)
            }
        }
    }

    /// Returns the reason why `row` does not pass this step, and its offset in bytes.
    fn fault(self, row: &[u8], at: String) -> (usize, Fault) {
        let needs = match self {
            Self::Any(n) => n,
            Self::Bool | Self::Enum(_) => 1,
            Self::Ip => IP,
            Self::Text => 2 + row.first_chunk().map_or(0, |n| usize::from(u16::from_le_bytes(*n))),
        };
        let Some(bytes) = row.get(..needs) else {
            return (0, Fault::Short { at, needs, left: row.len() });
        };
        match self {
            Self::Any(_) => (0, Fault::Short { at, needs, left: row.len() }),
            Self::Bool => (0, Fault::Bool { at, found: bytes[0] }),
            Self::Enum(n) => (0, Fault::Enum { at, found: bytes[0], values: n.into() }),
            Self::Ip if bytes[0] == 4 => (5, Fault::Padding { at }),
            Self::Ip => (0, Fault::Family { at, found: bytes[0] }),
            Self::Text => {
                let valid = std::str::from_utf8(&bytes[2..]).map_or_else(|e| e.valid_up_to(), str::len);
                (2 + valid, Fault::Text { at, valid, length: needs - 2 })
            }
        }
    }
}

impl Shape {
    #[inline]
    fn fits(&self, row: &[u8]) -> bool {
        let mut rest = row;
        for step in &self.steps {
            match step.pass(rest) {
                Some(r) => rest = r,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// Checks a row that does not fit again, column by column, to locate the fault.
    fn explain(&self, row: &[u8]) -> (usize, Fault) {
        let mut rest = row;
        for (name, step) in &self.columns {
            match step.pass(rest) {
                Some(r) => rest = r,
                None => {
                    let (inside, fault) = step.fault(rest, format!("{}.{name}", self.name));
                    return (row.len() - rest.len() + inside, fault);
                }
            }
        }
        (row.len() - rest.len(), Fault::Extra { table: self.name.clone(), extra: rest.len() })
    }
}

fn split_head(head: &[u8; FRAME]) -> (u32, u16, u16) {
    let [a, b, c, d, e, f, g, h] = *head;
    (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]), u16::from_le_bytes([g, h]))
}

/// One frame of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    Record {
        table: u16,
        row: &'a [u8],
    },
    Message(&'a [u8]),
    Packet(Packet<'a>),
    /// A packet that is sent from an output: one of the batch, with other bytes if there are any, or a new
    /// one.
    Send {
        packet: Option<u16>,
        port: u16,
        bytes: &'a [u8],
    },
    /// A packet that is held, or was.
    Held(Held),
    /// A text for the operator, which has any characters.
    Log(&'a str),
    /// A link-layer frame that is sent on a channel.
    Channel {
        channel: u16,
        bytes: &'a [u8],
    },
    /// A call of a service, by the number of its entry in `[[uses]]`.
    Call {
        used: u16,
        token: u64,
        request: &'a [u8],
    },
    /// A reply to a call of a service of the module.
    Reply {
        call: u64,
        reply: &'a [u8],
    },
    /// The number of records that the module dropped, and their table if they are of one.
    Lost {
        records: u64,
        table: Option<u16>,
    },
}

/// A packet that a module wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The time in nanoseconds since 1970.
    pub ts_ns: u64,
    /// The length on the wire in bytes.
    pub wire_len: u32,
    pub link: LinkType,
    pub bytes: &'a [u8],
}

fn packet(payload: &[u8]) -> Option<Packet<'_>> {
    let (head, bytes) = payload.split_first_chunk::<PACKET_HEAD>()?;
    let [ts @ .., a, b, c, d, e, f, 0, 0] = *head else { return None };
    Some(Packet {
        ts_ns: u64::from_le_bytes(ts),
        wire_len: u32::from_le_bytes([a, b, c, d]),
        link: LinkType(u16::from_le_bytes([e, f])),
        bytes,
    })
}

fn log(payload: &[u8]) -> Result<&str, Fault> {
    let length = payload.len();
    if length > MAX_LOG {
        return Err(Fault::LongLog { length });
    }
    std::str::from_utf8(payload).map_err(|e| Fault::LogText { valid: e.valid_up_to(), length })
}

/// Returns the frames of an output that passed [`Schema::check`], in order. For other bytes it ends early.
pub fn frames(output: &[u8]) -> Frames<'_> {
    Frames { rest: output }
}

/// Returns the length of the first frames of an output that passed [`Schema::check`]: the least that is
/// `piece` or more, or all.
pub fn first_frames(output: &[u8], piece: usize) -> usize {
    let mut end = 0;
    while end < piece
        && let Some((head, _)) = output.get(end..).and_then(|rest| rest.split_first_chunk::<FRAME>())
    {
        end += FRAME + split_head(head).0 as usize;
    }
    if end < piece { output.len() } else { end.min(output.len()) }
}

/// The iterator of [`frames`].
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Returns the output after the frames that were returned.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the frames, each with its bytes.
    pub fn with_bytes(mut self) -> impl Iterator<Item = (Frame<'a>, &'a [u8])> {
        std::iter::from_fn(move || {
            let before = self.rest;
            let frame = self.next()?;
            Some((frame, &before[..before.len() - self.rest.len()]))
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        let (head, after) = self.rest.split_first_chunk::<FRAME>()?;
        let (length, kind, more) = split_head(head);
        let (payload, rest) = after.split_at_checked(length as usize)?;
        self.rest = rest;
        Some(match kind {
            MESSAGE => Frame::Message(payload),
            PACKET => Frame::Packet(packet(payload)?),
            SEND => {
                let (packet, port, bytes) = send(payload)?;
                Frame::Send { packet, port, bytes }
            }
            HOLD | RELEASE | COPY => Frame::Held(held(kind, payload)?),
            LOG => Frame::Log(log(payload).ok()?),
            CHANNEL => {
                let (channel, bytes) = channel(payload)?;
                Frame::Channel { channel, bytes }
            }
            CALL => {
                let (used, token, request) = call(payload)?;
                Frame::Call { used, token, request }
            }
            REPLY => {
                let (call, reply) = reply(payload)?;
                Frame::Reply { call, reply }
            }
            LOST => Frame::Lost {
                records: u64::from_le_bytes(payload.try_into().ok()?),
                table: more.checked_sub(1),
            },
            table => Frame::Record { table, row: payload },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let text = r#"
            abi = 1
            name = "probe"
            version = "1.0.0"
            description = "one of each checked type"
            [[tables]]
            name = "t"
            columns = [
                { name = "n", type = "u32" }, { name = "m", type = "u16" }, { name = "ok", type = "bool" },
                { name = "end", type = "enum", values = ["a", "b"] }, { name = "ip", type = "ip" },
                { name = "note", type = "text" },
            ]
        "#;
        Schema::new(&Manifest::parse(text.as_bytes()).unwrap())
    }

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut f = (payload.len() as u32).to_le_bytes().to_vec();
        f.extend(kind.to_le_bytes());
        f.extend([0, 0]);
        f.extend(payload);
        f
    }

    /// n, m | ok | end | ip | note
    fn row() -> Vec<u8> {
        let mut r = vec![1, 0, 0, 0, 2, 0, 1, 1, 4, 192, 0, 2, 1];
        r.extend([0; 12]);
        r.extend([2, 0, b'h', b'i']);
        r
    }

    #[test]
    fn runs_are_merged_and_good_output_counts() {
        let s = schema();
        assert_eq!(s.tables[0].steps[..2], [Step::Any(6), Step::Bool]);
        let mut output = frame(0, &row());
        output.extend(frame(MESSAGE, b"hello"));
        output.extend(frame(LOST, &7u64.to_le_bytes()));
        let mut of_table = frame(LOST, &u64::MAX.to_le_bytes());
        of_table[6] = 1;
        output.extend(of_table);
        let counts = FrameCounts { records: 1, messages: 1, lost: u64::MAX, ..FrameCounts::default() };
        assert_eq!(s.check(&output, true), Ok(counts));
        assert_eq!(s.check(&[], true), Ok(FrameCounts::default()));
        let row = row();
        let expected = [
            Frame::Record { table: 0, row: &row },
            Frame::Message(b"hello"),
            Frame::Lost { records: 7, table: None },
            Frame::Lost { records: u64::MAX, table: Some(0) },
        ];
        assert_eq!(frames(&output).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_fault_names_its_place() {
        let changed = |at: usize, to: u8| {
            let mut r = row();
            r[at] = to;
            frame(0, &r)
        };
        let mut long = frame(0, &row());
        long[..4].copy_from_slice(&65_537u32.to_le_bytes());
        let mut beyond = frame(0, &row());
        beyond[..4].copy_from_slice(&60u32.to_le_bytes());
        let mut reserved = frame(0, &row());
        reserved[6] = 9;
        let mut no_table = frame(LOST, &[0; 8]);
        no_table[6] = 2;
        let mut extra = row();
        extra.extend([0; 3]);
        let cases = [
            (vec![0; 7], "frame 1, byte 37: a frame's head is 8 bytes, 7 are left"),
            (long, "frame 1, byte 37: payload is 65537 bytes, at most 65536"),
            (beyond, "frame 1, byte 37: payload is 60 bytes, 29 are left"),
            (reserved, "frame 1, byte 43: the last two bytes of a frame's head are 0x0009"),
            (no_table, "frame 1, byte 43: the last two bytes of a frame's head are 0x0002"),
            (frame(1, &[]), "frame 1, byte 41: kind 1 is no table: the manifest lists 1"),
            (frame(MESSAGE, &[]), "frame 1, byte 41: a message, but nothing here takes one"),
            (frame(LOST, &[0; 7]), "frame 1, byte 45: a count of lost records is 8 bytes, found 7"),
            (frame(0, &row()[..3]), "frame 1, byte 45: t.n: needs 4 bytes, 3 are left"),
            (frame(0, &row()[..5]), "frame 1, byte 49: t.m: needs 2 bytes, 1 are left"),
            (frame(0, &row()[..6]), "frame 1, byte 51: t.ok: needs 1 bytes, 0 are left"),
            (frame(0, &row()[..20]), "frame 1, byte 53: t.ip: needs 17 bytes, 12 are left"),
            (frame(0, &row()[..26]), "frame 1, byte 70: t.note: needs 2 bytes, 1 are left"),
            (frame(0, &row()[..28]), "frame 1, byte 70: t.note: needs 4 bytes, 3 are left"),
            (frame(0, &extra), "frame 1, byte 74: t: 3 bytes after the last column"),
            (changed(6, 2), "frame 1, byte 51: t.ok: expected 0 or 1, found 2"),
            (changed(7, 2), "frame 1, byte 52: t.end: index 2, the manifest lists 2 values"),
            (changed(8, 5), "frame 1, byte 53: t.ip: address family 5, expected 4 or 6"),
            (changed(24, 1), "frame 1, byte 58: t.ip: an IPv4 address is followed by 12 zero bytes"),
            (changed(28, 0xff), "frame 1, byte 73: t.note: not UTF-8 from byte 1 of 2"),
        ];
        for (bad, expected) in cases {
            let mut output = frame(0, &row());
            output.extend(bad);
            let error = schema().check(&output, false).unwrap_err().to_string();
            assert!(error.starts_with(&format!("output {expected}")), "{expected}\n{error}");
        }
    }

    #[test]
    fn texts_for_the_operator_are_declared_short_and_utf8() {
        let manifest = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\nlog = true";
        let logs = Schema::new(&Manifest::parse(manifest.as_bytes()).unwrap());
        let output = [frame(LOG, "é\n\u{1b}".as_bytes()), frame(LOG, &[b'x'; MAX_LOG])].concat();
        assert_eq!(logs.check(&output, false).unwrap().logs, 2);
        assert_eq!(frames(&output).next(), Some(Frame::Log("é\n\u{1b}")));
        for (bytes, expected) in [
            (&[b'x'; MAX_LOG + 1][..], "a text for the operator is at most 512 bytes, found 513"),
            (b"ab\xff", "a text for the operator is not UTF-8 from byte 2 of 3"),
        ] {
            let error = logs.check(&frame(LOG, bytes), false).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
            assert_eq!(frames(&frame(LOG, bytes)).count(), 0);
        }
        let error = schema().check(&frame(LOG, b"x"), false).unwrap_err().to_string();
        assert!(error.ends_with("but the manifest lacks `log = true`"), "{error}");
    }

    #[test]
    fn frames_end_early_on_unchecked_bytes() {
        assert_eq!(frames(&[1, 2, 3]).count(), 0);
        assert_eq!(frames(&[255; 64]).count(), 0);
    }
}
