//! Reads one file: detects its format and fills blocks from it.

use super::ahead::Ahead;
use super::divided::Divided;
use super::input::Input;
use super::spares::Spares;
use super::step::Step;
use super::{pcap, pcapng};
use crate::{Damage, DamageKind, Next, RawBlock, RawPacket, SourceError};
use bytes::Bytes;
use flame_abi::{LinkType, MAX_BLOCK_BYTES, MAX_BLOCK_PACKETS};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A capture format. Its parser determines the kind and length of the item at the beginning of the given
/// bytes.
pub enum Parser {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

impl Parser {
    fn step(&mut self, bytes: &[u8]) -> (Step, usize) {
        match self {
            Self::Pcap(p) => p.step(bytes),
            Self::Pcapng(p) => p.step(bytes),
        }
    }

    /// Returns whether times are moved, since one was before 1970.
    fn is_moved(&self) -> bool {
        matches!(self, Self::Pcapng(p) if p.is_moved())
    }

    /// Returns whether a packet may be an aggregated frame.
    fn may_aggregate(&self) -> bool {
        match self {
            Self::Pcap(p) => flame_decode::may_aggregate(p.link),
            Self::Pcapng(_) => true,
        }
    }
}

/// What is noted of a file once.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    back: bool,
    short: bool,
    drops: bool,
    moved: bool,
}

/// The time, in nanoseconds, by which times may go back unnoticed: packets of several queues of a card are a
/// little out of order.
const MAX_BACK_NS: u64 = 1_000_000_000;

pub struct Reader {
    pub file: String,
    pub input: Input,
    parser: Parser,
    /// The position in memory or in the stream's chunk.
    at: usize,
    pub snaplen: u32,
    ended: bool,
    /// Whether a packet has been seen. Its link type decides whether the file is read.
    begun: bool,
    /// The number of packets of earlier blocks.
    packets: u64,
    /// The latest time so far.
    latest_ns: u64,
    /// What was noted of the file already.
    noted: Noted,
    divided: Divided,
    /// Whether the file is one of a folder, where an undecodable file is reported instead of an error.
    pub of_folder: bool,
}

impl Reader {
    pub fn open(path: &Path, snaplen: u32, spares: &Arc<Spares>) -> Result<Self, SourceError> {
        let file =
            if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
        Self::new(file, Input::open(path, spares)?, snaplen)
    }

    /// Opens a regular file from its beginning, once more.
    pub fn reopen(
        name: String,
        file: Arc<File>,
        snaplen: u32,
        spares: &Arc<Spares>,
    ) -> Result<Self, SourceError> {
        let input = Input::reopen(file, &name, spares)?;
        Self::new(name, input, snaplen)
    }

    pub fn from_memory(file: &str, bytes: Bytes, snaplen: u32) -> Result<Self, SourceError> {
        Self::new(file.to_owned(), Input::Memory(bytes), snaplen)
    }

    fn new(file: String, mut input: Input, snaplen: u32) -> Result<Self, SourceError> {
        if let Input::Stream(stream) = &mut input {
            while stream.chunk.len() < pcap::HEADER && !stream.ended {
                stream.advance(0, pcap::HEADER);
            }
        }
        let head = match &input {
            Input::Memory(bytes) => bytes,
            Input::Stream(stream) => &stream.chunk,
        };
        let (parser, at) = if let Some(found) = pcap::Pcap::new(head) {
            (Parser::Pcap(found), pcap::HEADER)
        } else if pcapng::Pcapng::begins(head) {
            (Parser::Pcapng(pcapng::Pcapng::default()), 0)
        } else {
            let bytes = &head[..head.len().min(4)];
            let broken = match &input {
                Input::Stream(stream) => stream.broken.as_ref(),
                Input::Memory(_) => None,
            };
            return Err(match broken {
                Some(error) => SourceError::Damaged { file, reason: error.clone() },
                None if bytes.is_empty() => SourceError::Empty { file },
                None if pcap::Pcap::begins(head) => {
                    let reason = format!("cut short: {} bytes are left of its header", head.len());
                    SourceError::Damaged { file, reason }
                }
                None => match unread(head) {
                    Some((format, program)) => {
                        let remedy =
                            format!("decompress it first, as with `{program} -dc {file} | flame … -r -`");
                        SourceError::Compressed { file, format, remedy }
                    }
                    None => SourceError::NotACapture { file, found: format!("{bytes:02x?}") },
                },
            });
        };
        if let Parser::Pcap(p) = &parser
            && !p.link.is_decoded()
        {
            return Err(not_decoded(file, p.link));
        }
        let noted = Noted::default();
        Ok(Self {
            file,
            input,
            parser,
            at,
            snaplen,
            ended: false,
            begun: false,
            packets: 0,
            latest_ns: 0,
            noted,
            divided: Divided::default(),
            of_folder: false,
        })
    }

    /// Sets whether the file is one of a folder.
    pub fn in_folder(mut self, of_folder: bool) -> Self {
        self.of_folder = of_folder;
        self
    }

    /// Returns the file of which other threads may read parts ahead, if it is one.
    pub fn ahead(&self) -> Option<&Arc<Ahead>> {
        self.input.ahead()
    }

    /// Returns whether times may be finer than a microsecond. Of pcapng in a pipe, what is described may not
    /// be there yet.
    pub fn is_nano(&self) -> bool {
        match (&self.parser, &self.input) {
            (Parser::Pcap(parser), _) => parser.is_nano(),
            (Parser::Pcapng(_), Input::Memory(bytes)) => pcapng::Pcapng::is_nano(bytes),
            (Parser::Pcapng(_), Input::Stream(stream)) => {
                self.waits() || pcapng::Pcapng::is_nano(&stream.chunk)
            }
        }
    }

    /// Returns whether bytes may come that do not exist yet.
    pub fn waits(&self) -> bool {
        self.input.waits()
    }

    pub fn consumed(&self) -> (u64, Option<u64>) {
        self.input.consumed(self.at as u64)
    }

    /// Lets [`Reader::next`] return [`Next::Quiet`] instead of waiting for long.
    pub fn tell_when_quiet(&mut self) {
        if let Input::Stream(stream) = &mut self.input {
            stream.tell_when_quiet();
        }
    }

    /// Fills `block`. Damage ends the file, after the packets before it.
    pub fn next(&mut self, block: &mut RawBlock, damage: &mut Vec<Damage>) -> Result<Next, SourceError> {
        block.packets.clear();
        block.shared_offset = None;
        // Dropped, so that a stream can reuse its chunk.
        block.data = Bytes::new();
        if self.divided.next(block) {
            return Ok(Next::Packets);
        }
        let mut start = self.at;
        let (mut captured, mut begun) = (0, None);
        while !self.ended && block.packets.len() < MAX_BLOCK_PACKETS && captured < MAX_BLOCK_BYTES {
            let bytes = match &self.input {
                Input::Memory(bytes) => bytes,
                Input::Stream(stream) => &stream.chunk,
            };
            // Skipped bytes between packets must not extend a block beyond 32-bit offsets.
            if self.at - start > 1 << 28 && !block.packets.is_empty() {
                break;
            }
            let (step, length) = self.parser.step(&bytes[self.at..]);
            match step {
                Step::Packet(mut p) => {
                    if !self.begun {
                        self.begun = true;
                        if let Some(link) = self.undecoded(p.link) {
                            let error = not_decoded(self.file.clone(), link);
                            if !self.of_folder {
                                return Err(error);
                            }
                            self.ended = true;
                            damage.push(super::skip(&self.file, error)?);
                            return Ok(Next::End);
                        }
                    }
                    if block.packets.is_empty() {
                        start = self.at;
                    }
                    if self.parser.is_moved() && !std::mem::replace(&mut self.noted.moved, true) {
                        let number = self.packets + block.packets.len() as u64 + 1;
                        damage.push(Damage::remark(&self.file, moved(number)));
                    }
                    if p.wire_len < p.cap_len {
                        let number = self.packets + block.packets.len() as u64 + 1;
                        note_short((&self.file, &mut self.noted), number, &p, damage);
                        p.wire_len = p.cap_len;
                    }
                    p.offset += (self.at - start) as u32;
                    p.cap_len = p.cap_len.min(self.snaplen);
                    captured += p.cap_len as usize;
                    block.packets.push(p);
                    self.at += length;
                    if let Parser::Pcap(pcap) = &self.parser {
                        let mut room = pcap::Room { packets: &mut block.packets, captured: &mut captured };
                        self.at = pcap.run(bytes, self.at, start, self.snaplen, &mut room);
                    }
                }
                Step::Skip => self.at += length,
                Step::Damage(reason) => self.damaged(reason, damage),
                Step::More => match &mut self.input {
                    Input::Memory(bytes) => {
                        let left = bytes.len() - self.at;
                        self.ended = true;
                        if left > 0 {
                            let reason = format!("cut short: {left} bytes are left of what begins here");
                            self.damaged(reason, damage);
                        }
                    }
                    // The packets of the block lie in this chunk, so the next chunk begins another block.
                    Input::Stream(_) if !block.packets.is_empty() => break,
                    Input::Stream(stream) => {
                        if stream.ended {
                            self.ended = true;
                            let left = stream.chunk.len() - self.at;
                            let reason = match stream.broken.take() {
                                Some(error) => error,
                                None if left > 0 => {
                                    format!("cut short: {left} bytes are left of what begins here")
                                }
                                None => continue,
                            };
                            self.damaged(reason, damage);
                        } else if stream.is_late(&mut begun) {
                            return Ok(Next::Quiet);
                        } else {
                            let came = stream.advance(self.at, length);
                            (self.at, start) = (0, 0);
                            if !came {
                                return Ok(Next::Quiet);
                            }
                        }
                    }
                },
            }
        }
        self.look_back(&block.packets, damage);
        if block.packets.is_empty() {
            self.note_drops(damage);
            if self.of_folder && !self.begun && !damage.iter().any(|d| d.file == self.file) {
                let (file, reason) = (self.file.clone(), "the capture has no packets".to_owned());
                damage.push(Damage { file, kind: DamageKind::NoPackets, offset: 0, reason });
            }
            return Ok(Next::End);
        }
        let bytes = match &self.input {
            Input::Memory(bytes) => bytes,
            Input::Stream(stream) => &stream.chunk,
        };
        block.data = bytes.slice(start..self.at);
        if let Input::Stream(stream) = &mut self.input
            && let Some(large) = stream.let_go(self.at)
        {
            self.at = 0;
            if captured < large / 4 {
                pack(block, captured);
            }
        }
        if self.parser.may_aggregate() {
            self.divided.divide(block);
        }
        Ok(Next::Packets)
    }

    /// Counts the packets of a block, and notes the first one whose time is much before another's.
    fn look_back(&mut self, packets: &[RawPacket], damage: &mut Vec<Damage>) {
        let times = || packets.iter().map(|packet| packet.ts_ns);
        let (oldest, newest) =
            times().fold((u64::MAX, 0), |(low, high), time| (low.min(time), high.max(time)));
        // A packet without a time is not older than others.
        let is_back = |time: u64, latest: u64| time != 0 && latest.saturating_sub(time) > MAX_BACK_NS;
        if !self.noted.back && (oldest == 0 || is_back(oldest, self.latest_ns.max(newest))) {
            let mut latest = self.latest_ns;
            let found = times().position(|time| {
                let before = latest;
                latest = before.max(time);
                is_back(time, before)
            });
            if let Some(at) = found {
                self.noted.back = true;
                let latest = times().take(at).fold(self.latest_ns, u64::max);
                let seconds = (latest - packets[at].ts_ns) as f64 / 1e9;
                let number = self.packets + at as u64 + 1;
                let reason = format!(
                    "the time of packet {number} is {seconds:.1} s before that of an earlier packet; later such \
                     packets are not noted"
                );
                self.remark(reason, damage);
            }
        }
        self.packets += packets.len() as u64;
        self.latest_ns = self.latest_ns.max(newest);
    }

    /// Notes the drops that the statistics of the file state.
    fn note_drops(&mut self, damage: &mut Vec<Damage>) {
        let Parser::Pcapng(parser) = &self.parser else { return };
        let drops = parser.drops();
        if drops != pcapng::Drops::default() && !std::mem::replace(&mut self.noted.drops, true) {
            let pcapng::Drops { interface, system } = drops;
            let reason = format!(
                "its statistics state that packets were dropped when it was captured: {interface} by the \
                 interface, {system} by the system"
            );
            self.remark(reason, damage);
        }
    }

    fn remark(&self, reason: String, damage: &mut Vec<Damage>) {
        damage.push(Damage::remark(&self.file, reason));
    }

    fn damaged(&mut self, reason: String, damage: &mut Vec<Damage>) {
        self.ended = true;
        let base = match &self.input {
            Input::Memory(_) => 0,
            Input::Stream(stream) => stream.base,
        };
        let kind = DamageKind::Damaged;
        damage.push(Damage { file: self.file.clone(), kind, offset: base + self.at as u64, reason });
    }

    /// Returns the link type of a file of which nothing is decoded.
    fn undecoded(&self, link: LinkType) -> Option<LinkType> {
        let any = match &self.parser {
            Parser::Pcap(_) => true,
            Parser::Pcapng(p) => p.any_decoded(),
        };
        (!any).then_some(link)
    }
}

/// Copies the packets of a block that lies in a buffer with mostly other bytes. They may wait for long, as
/// those of a file that others overlap in time.
fn pack(block: &mut RawBlock, captured: usize) {
    let mut data = Vec::with_capacity(captured);
    for p in &mut block.packets {
        let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
        p.offset = data.len() as u32;
        data.extend_from_slice(bytes);
    }
    block.data = data.into();
}

/// Returns the note about the first packet of a file before 1970.
fn moved(number: u64) -> String {
    format!(
        "the time of packet {number} is before 1970: from it on, times are given 36,525 days (100 years) \
         later, so that their differences are right"
    )
}

/// Notes the first packet of a file with a length on the wire below the captured one.
fn note_short((file, noted): (&str, &mut Noted), number: u64, packet: &RawPacket, damage: &mut Vec<Damage>) {
    if !std::mem::replace(&mut noted.short, true) {
        let RawPacket { wire_len, cap_len, .. } = packet;
        let reason = format!(
            "packet {number} states {wire_len} bytes on the wire and {cap_len} captured ones, which count instead, \
             as in later such packets"
        );
        damage.push(Damage::remark(file, reason));
    }
}

/// Returns the name of a form of compression that is not read, by a file's first bytes, and of the program
/// that decompresses it.
fn unread(head: &[u8]) -> Option<(&'static str, &'static str)> {
    match head {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(("xz", "xz")),
        [b'B', b'Z', b'h', ..] => Some(("bzip2", "bzip2")),
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Some(("LZ4", "lz4")),
        [b'L', b'Z', b'I', b'P', ..] => Some(("lzip", "lzip")),
        [0x1f, 0x9d, ..] => Some(("compress", "uncompress")),
        [0x5d, 0, 0, ..] => Some(("LZMA", "xz")),
        _ => None,
    }
}

fn not_decoded(file: String, link: LinkType) -> SourceError {
    SourceError::LinkType { file, number: link.0, name: crate::link_name(link) }
}
