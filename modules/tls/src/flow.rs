//! Connections, and the hellos of which some packets came.

use crate::hello::{ClientHello, ServerHello, TEXT, version_name};
use crate::ja4::ja4;
use crate::quic::{Id, Initial, LARGEST, Side, crypto};
use crate::record::{Found, before, begins_hello, handshake, hello_in_records};
use crate::tables::{self, ClientTransport, Params, ServerTransport};
use flame_module::{Entry, FixedText, FlowTable, Ip, Out, Packet, Partial, Partials, tcp};

/// The longest hello that is put together, in bytes.
pub const LONGEST: usize = 8192;
/// The time in nanoseconds after which a silent connection is forgotten.
const IDLE_NS: u64 = 120_000_000_000;
/// The longest name of a server that its ServerHello's row repeats.
const NAME: usize = 255;

/// The endpoints of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub src: Ip,
    pub sport: u16,
    pub dst: Ip,
    pub dport: u16,
}

impl Ends {
    /// Returns the endpoints of a packet whose header and ports are visible.
    fn of(packet: &Packet<'_>) -> Option<Self> {
        Some(Self { src: packet.src()?, sport: packet.sport()?, dst: packet.dst()?, dport: packet.dport()? })
    }

    fn reversed(&self) -> Self {
        Self { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the next hello begins: a sequence number, or an offset of CRYPTO frames.
    base: u32,
    /// Where the last whole one began, of which a copy may come.
    last: Option<u32>,
    /// What came of it, in how many packets.
    partial: Partial,
    packets: u16,
}

#[derive(Clone, Copy)]
struct Flow {
    /// The endpoints, from the client to the server.
    ends: Ends,
    used: u64,
    /// The time of the ClientHello.
    hello_at: u64,
    id: Id,
    streams: [Stream; 2],
    name: [u8; NAME],
    name_len: u8,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            ends: Ends::default(),
            used: 0,
            hello_at: 0,
            id: Id::default(),
            streams: [Stream::default(); 2],
            name: [0; NAME],
            name_len: 0,
        }
    }
}

impl Entry for Flow {
    fn used(&self) -> u64 {
        self.used
    }
}

#[derive(Default)]
pub struct Counts {
    pub malformed: u64,
    pub too_long: u64,
    pub undecrypted: u64,
}

pub struct Flows {
    flows: FlowTable<Flow>,
    partials: Partials<LONGEST>,
    pub counts: Counts,
}

/// What is known about the packet of a piece.
struct Piece<'a, 'b> {
    packet: &'a Packet<'b>,
    ends: Ends,
    is_quic: bool,
}

impl Flows {
    pub fn new(params: &Params) -> Self {
        Self {
            flows: FlowTable::new(params.max_connections as usize, IDLE_NS),
            partials: Partials::new(params.max_partial.into()),
            counts: Counts::default(),
        }
    }

    pub fn evicted(&self) -> u64 {
        self.flows.evicted
    }

    pub fn incomplete(&self) -> u64 {
        self.partials.lost + self.partials.taken() as u64
    }

    fn find(&mut self, packet: &Packet<'_>, ends: &Ends) -> Option<(usize, Side)> {
        let reversed = ends.reversed();
        let is = |f: &Flow| f.ends == *ends || f.ends == reversed;
        let index = self.flows.find(packet.hash, packet.ts_ns, is)?;
        let is_client = self.flows.get(index).ends == *ends;
        Some((index, if is_client { Side::Client } else { Side::Server }))
    }

    /// Processes a TCP segment.
    #[inline]
    pub fn segment(&mut self, packet: &Packet<'_>, out: &mut Out) {
        let payload = packet.payload();
        let skipped = before(payload);
        let payload = payload.get(skipped..).unwrap_or(&[]);
        let kind = hello_in_records(payload);
        let is_short = begins_hello(payload);
        if kind.is_none() && !is_short && !self.partials.may_have(packet.hash) {
            return;
        }
        let Some((&first, ends)) = payload.first().zip(Ends::of(packet)) else { return };
        let found = self.find(packet, &ends);
        let Some(header) = packet.tcp() else { return };
        // Data of a SYN (RFC 7413) follow its own number.
        let syn = u32::from(header.has(tcp::SYN));
        let seq = header.seq().wrapping_add(syn).wrapping_add(skipped as u32);
        let piece = Piece { packet, ends, is_quic: false };
        match (found, kind.or(is_short.then_some(Side::Client))) {
            (Some((index, side)), _) => {
                let stream = self.flows.get(index).streams[side as usize];
                if self.partials.get(stream.partial).is_some() {
                    let offset = seq.wrapping_sub(stream.base);
                    if (offset as usize) < LONGEST {
                        return self.gather(index, side, offset as usize, payload, &piece, out);
                    }
                }
                if first == 22 && (kind == Some(side) || is_short) && stream.last != Some(seq) {
                    self.begin(index, side, seq, payload, &piece, out);
                }
            }
            // A client speaks first, so what is too short to tell is its.
            (None, Some(Side::Client)) => {
                let index = self.insert(packet, ends, Id::default());
                self.begin(index, Side::Client, seq, payload, &piece, out);
            }
            (None, Some(Side::Server)) => {
                let index = self.insert(packet, ends.reversed(), Id::default());
                self.begin(index, Side::Server, seq, payload, &piece, out);
            }
            (None, None) => {}
        }
    }

    fn insert(&mut self, packet: &Packet<'_>, ends: Ends, id: Id) -> usize {
        let now = packet.ts_ns;
        self.flows.insert(packet.hash, now, Flow { ends, id, used: now, ..Flow::default() })
    }

    /// Processes the first segment of a hello.
    fn begin(
        &mut self,
        index: usize,
        side: Side,
        seq: u32,
        payload: &[u8],
        piece: &Piece<'_, '_>,
        out: &mut Out,
    ) {
        let flow = self.flows.get(index);
        flow.streams[side as usize].base = seq;
        flow.used = piece.packet.ts_ns;
        match handshake(payload, side, &mut [0; LONGEST]) {
            Found::Message(message) => self.whole(index, side, message, 1, piece, out),
            Found::Part => self.gather(index, side, 0, payload, piece, out),
            Found::TooLong => self.counts.too_long += 1,
            Found::Nothing => {}
        }
    }

    /// Adds a piece to the hello of a side, and reads it when it is whole.
    fn gather(
        &mut self,
        index: usize,
        side: Side,
        offset: usize,
        bytes: &[u8],
        piece: &Piece<'_, '_>,
        out: &mut Out,
    ) {
        let stream = &mut self.flows.get(index).streams[side as usize];
        if self.partials.get(stream.partial).is_none() {
            (stream.partial, stream.packets) = (self.partials.take(piece.packet.hash), 0);
        }
        stream.packets = stream.packets.saturating_add(1);
        let (partial, packets) = (stream.partial, stream.packets);
        let Some(gather) = self.partials.get(partial) else { return };
        gather.add(offset, bytes);
        let stream = *gather;
        let mut scratch = [0; LONGEST];
        let found = match piece.is_quic {
            true => message(stream.prefix()),
            false => handshake(stream.prefix(), side, &mut scratch),
        };
        match found {
            Found::Part => return,
            Found::Message(message) => self.whole(index, side, message, packets, piece, out),
            Found::TooLong => self.counts.too_long += 1,
            Found::Nothing => {}
        }
        self.partials.free(partial);
    }

    /// Processes a UDP datagram.
    #[inline]
    pub fn datagram(&mut self, packet: &Packet<'_>, out: &mut Out) {
        let mut rest = packet.payload();
        // A flight has one, and seldom another that acknowledges. Each is decrypted, so more would cost more.
        for _ in 0..2 {
            let Some((initial, next)) = Initial::read(rest) else { return };
            self.initial(packet, &initial, out);
            rest = next;
        }
    }

    fn initial(&mut self, packet: &Packet<'_>, initial: &Initial<'_>, out: &mut Out) {
        let Some(ends) = Ends::of(packet) else { return };
        let found = self.find(packet, &ends);
        let (mut frames, mut len) = ([0; LARGEST], 0);
        let mut keep = |bytes: &[u8]| {
            len = bytes.len().min(LARGEST);
            frames[..len].copy_from_slice(&bytes[..len]);
        };
        let (index, side) = match found {
            Some((index, side)) => {
                let id = self.flows.get(index).id;
                if initial.decrypt(&id, side, &mut keep).is_none() {
                    // After a Retry, the keys follow from the ID that it asked for (RFC 9001, section 5.2).
                    if side == Side::Server || initial.decrypt(&initial.id, side, &mut keep).is_none() {
                        self.counts.undecrypted += 1;
                        return;
                    }
                    self.flows.get(index).id = initial.id;
                }
                (index, side)
            }
            None if initial.decrypt(&initial.id, Side::Client, &mut keep).is_some() => {
                (self.insert(packet, ends, initial.id), Side::Client)
            }
            None => {
                self.counts.undecrypted += 1;
                return;
            }
        };
        self.flows.get(index).used = packet.ts_ns;
        let piece = Piece { packet, ends, is_quic: true };
        // Two, so that one packet cannot ask for more work than hellos take.
        let mut hellos = 0;
        crypto(&frames[..len], |offset, data| {
            if hellos == 2 {
                return;
            }
            let base = u64::from(self.flows.get(index).streams[side as usize].base);
            // What was read already, or lies far ahead: no hello.
            let Some(offset) = offset.checked_sub(base).filter(|o| *o < LONGEST as u64) else { return };
            let before = self.flows.get(index).streams[side as usize].base;
            match message(data) {
                Found::Message(message) if offset == 0 => self.whole(index, side, message, 1, &piece, out),
                Found::Nothing if offset == 0 => {}
                _ => self.gather(index, side, offset as usize, data, &piece, out),
            }
            hellos += u32::from(self.flows.get(index).streams[side as usize].base != before);
        });
    }

    /// Reads a whole handshake message, with its header.
    fn whole(
        &mut self,
        index: usize,
        side: Side,
        message: &[u8],
        packets: u16,
        piece: &Piece<'_, '_>,
        out: &mut Out,
    ) {
        let flow = self.flows.get(index);
        let stream = &mut flow.streams[side as usize];
        stream.last = Some(stream.base);
        stream.partial = Partial::default();
        if piece.is_quic {
            stream.base += message.len() as u32;
        }
        let body = message.get(4..).unwrap_or(&[]);
        let read = match side {
            Side::Client => ClientHello::read(body).map(|hello| flow.client(&hello, packets, piece, out)),
            Side::Server => ServerHello::read(body).map(|hello| flow.server(&hello, packets, piece, out)),
        };
        self.counts.malformed += u64::from(read.is_none());
    }
}

impl Flow {
    fn client(&mut self, hello: &ClientHello<'_>, packets: u16, piece: &Piece<'_, '_>, out: &mut Out) {
        self.hello_at = piece.packet.ts_ns;
        let len = hello.server_name.len().min(NAME);
        self.name[..len].copy_from_slice(&hello.server_name[..len]);
        self.name_len = len as u8;
        let (mut name, mut version) = (FixedText::<TEXT>::default(), FixedText::default());
        name.push_bytes(hello.server_name);
        version_name(hello.best(), &mut version);
        out.write(&tables::Client {
            ts_ns: piece.packet.ts_ns,
            src: piece.ends.src,
            sport: piece.ends.sport,
            dst: piece.ends.dst,
            dport: piece.ends.dport,
            transport: if piece.is_quic { ClientTransport::Quic } else { ClientTransport::Tcp },
            server_name: name.as_str(),
            alpn: hello.alpn.as_str(),
            version: version.as_str(),
            ja4: ja4(hello, piece.is_quic).as_str(),
            legacy_version: hello.legacy_version,
            ciphers: hello.ciphers.count as u16,
            extensions: hello.extensions.count as u16,
            packets,
        });
    }

    fn server(&mut self, hello: &ServerHello<'_>, packets: u16, piece: &Piece<'_, '_>, out: &mut Out) {
        let (mut name, mut version) = (FixedText::<TEXT>::default(), FixedText::default());
        name.push_bytes(&self.name[..self.name_len.into()]);
        version_name(hello.version, &mut version);
        let (mut cipher, mut alpn) = (FixedText::<8>::default(), FixedText::<TEXT>::default());
        cipher.push("0x");
        cipher.push_hex(hello.cipher.into(), 4);
        alpn.push_bytes(hello.alpn);
        let time = if self.hello_at == 0 { 0 } else { piece.packet.ts_ns.saturating_sub(self.hello_at) };
        out.write(&tables::Server {
            ts_ns: piece.packet.ts_ns,
            src: piece.ends.src,
            sport: piece.ends.sport,
            dst: piece.ends.dst,
            dport: piece.ends.dport,
            transport: if piece.is_quic { ServerTransport::Quic } else { ServerTransport::Tcp },
            server_name: name.as_str(),
            version: version.as_str(),
            cipher: cipher.as_str(),
            alpn: alpn.as_str(),
            retry: hello.is_retry,
            time_ns: time as i64,
            packets,
        });
    }
}

/// Returns the handshake message with which a stream without records begins (QUIC).
fn message(stream: &[u8]) -> Found<'_> {
    match stream.first() {
        None => return Found::Part,
        Some(1 | 2) => {}
        Some(_) => return Found::Nothing,
    }
    let Some(head) = stream.first_chunk::<4>() else { return Found::Part };
    let len = 4 + u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    match stream.get(..len) {
        Some(message) => Found::Message(message),
        None if len > LONGEST => Found::TooLong,
        None => Found::Part,
    }
}
