//! Connections, and the requests that wait for their answers.

use crate::head::{Found, Head, Kind, LONGEST, beginning, begins, kind};
use crate::tables::{self, Params, RequestOutcome as Outcome};
use flame_module::{Entry, FixedText, FlowTable, Ip, Out, Packet, Partial, Partials, tcp};

/// The longest texts that are kept of a request, in bytes.
const METHOD: usize = 24;
const HOST: usize = 256;
const TARGET: usize = 2048;
const AGENT: usize = 512;
/// The largest number of requests of a connection that wait at once.
const PIPELINED: usize = 32;
/// The largest number of heads that are read from one segment.
const HEADS: usize = 64;

/// The endpoints of a connection, from the client to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    src: Ip,
    sport: u16,
    dst: Ip,
    dport: u16,
}

impl Ends {
    fn of(packet: &Packet<'_>) -> Option<Self> {
        Some(Self { src: packet.src()?, sport: packet.sport()?, dst: packet.dst()?, dport: packet.dport()? })
    }

    fn reversed(&self) -> Self {
        Self { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport }
    }
}

/// A request that waits for its answer.
#[derive(Default)]
struct Request {
    /// The number under which its place was taken; 0 if the place is free.
    taken: u32,
    ends: Ends,
    first: u64,
    method: FixedText<METHOD>,
    host: FixedText<HOST>,
    target: FixedText<TARGET>,
    agent: FixedText<AGENT>,
    version: FixedText<8>,
    length: u64,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The sequence number at which the partial head begins, and its first packet's time.
    base: u32,
    first: u64,
    partial: Partial,
    /// The sequence number up to which everything was read or is a body.
    read: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    ends: Ends,
    used: u64,
    /// By kind of head: requests of the client, answers of the server.
    streams: [Stream; 2],
    /// The requests that wait, the oldest first, by the numbers under which they were taken.
    waiting: [u32; PIPELINED],
    count: u8,
}

impl Entry for Connection {
    fn used(&self) -> u64 {
        self.used
    }
}

pub struct Exchanges {
    connections: FlowTable<Connection>,
    partials: Partials<LONGEST>,
    requests: Box<[Request]>,
    last: u32,
    timeout: u64,
    pub malformed: u64,
    pub too_long: u64,
    pub evicted_requests: u64,
}

/// The first bytes of a head: from a sequence number on, and the time of the first one.
#[derive(Clone, Copy)]
struct Start<'a> {
    seq: u32,
    first: u64,
    bytes: &'a [u8],
}

/// The head of an answer with the time of its first byte.
struct Answer<'a> {
    head: Head<'a>,
    first: u64,
}

impl Exchanges {
    pub fn new(params: &Params) -> Self {
        Self {
            connections: FlowTable::new(params.max_connections as usize, params.timeout),
            partials: Partials::new(params.max_partial.into()),
            requests: (0..params.max_requests).map(|_| Request::default()).collect(),
            last: 0,
            timeout: params.timeout,
            malformed: 0,
            too_long: 0,
            evicted_requests: 0,
        }
    }

    pub fn incomplete(&self) -> u64 {
        self.partials.lost + self.partials.taken() as u64
    }

    pub fn evicted_connections(&self) -> u64 {
        self.connections.evicted
    }

    /// Processes a TCP segment.
    #[inline]
    pub fn segment(&mut self, packet: &Packet<'_>, out: &mut Out) {
        let payload = packet.payload();
        let found = kind(payload).or_else(|| beginning(payload));
        if payload.is_empty() || found.is_none() && !self.partials.may_have(packet.hash) {
            return;
        }
        self.heads(packet, payload, found, out);
    }

    #[inline(never)]
    fn heads(&mut self, packet: &Packet<'_>, payload: &[u8], found: Option<Kind>, out: &mut Out) {
        let (Some(ends), Some(tcp)) = (Ends::of(packet), packet.tcp()) else { return };
        let reversed = ends.reversed();
        let now = packet.ts_ns;
        let is = |c: &Connection| c.ends == ends || c.ends == reversed;
        let index = match (self.connections.find(packet.hash, now, is), found) {
            (Some(index), _) => index,
            (None, Some(kind)) => {
                let ends = if kind == Kind::Request { ends } else { reversed };
                self.connections.insert(
                    packet.hash,
                    now,
                    Connection { ends, used: now, ..Connection::default() },
                )
            }
            (None, None) => return,
        };
        let is_client = self.connections.get(index).ends == ends;
        let side = if is_client { Kind::Request } else { Kind::Answer };
        self.connections.get(index).used = now;
        let stream = self.connections.get(index).streams[side as usize];
        // Data of a SYN (RFC 7413) follow its own number.
        let mut seq = tcp.seq().wrapping_add(u32::from(tcp.has(tcp::SYN)));
        if let Some(gather) = self.partials.get(stream.partial) {
            let offset = seq.wrapping_sub(stream.base) as usize;
            if offset < LONGEST {
                gather.add(offset, payload);
                let whole = *gather;
                let start = Start { seq: stream.base, first: stream.first, bytes: whole.prefix() };
                if !begins(start.bytes, side) {
                    // The first few bytes could begin a head, and others follow.
                    self.partials.free(stream.partial);
                } else if !self.read(index, side, start, packet, out) {
                    return;
                }
            }
        }
        let mut rest = payload;
        for _ in 0..HEADS {
            let stream = &mut self.connections.get(index).streams[side as usize];
            // What was read, or is a body whose length was stated.
            if let Some(ahead) = stream.read.map(|read| read.wrapping_sub(seq)).filter(|n| *n as i32 > 0) {
                seq = seq.wrapping_add(ahead);
                rest = rest.get(ahead as usize..).unwrap_or(&[]);
            }
            let is_head = begins(rest, side);
            if !is_head || !self.read(index, side, Start { seq, first: now, bytes: rest }, packet, out) {
                return;
            }
        }
    }

    /// Reads a head. Returns whether it was whole.
    fn read(
        &mut self,
        index: usize,
        side: Kind,
        start: Start<'_>,
        packet: &Packet<'_>,
        out: &mut Out,
    ) -> bool {
        let Start { seq, first, bytes } = start;
        let connection = self.connections.get(index);
        let stream = &mut connection.streams[side as usize];
        // The rest of a packet that is cut off never comes, so its head is what is there.
        let is_cut = packet.payload_len().is_some_and(|len| len > packet.payload().len());
        match Head::read(bytes, side) {
            Found::Head(head) | Found::Part(Some(head)) if head.end > 0 || is_cut => {
                self.partials.free(stream.partial);
                let len = match (side, head.status) {
                    (_, 100..200 | 204 | 304) => 0,
                    _ if head.is_chunked => 0,
                    _ => head.length.unwrap_or(0).min(1 << 30) as u32,
                };
                let end = if head.end > 0 { head.end } else { bytes.len() };
                stream.read = Some(seq.wrapping_add(end as u32).wrapping_add(len));
                match side {
                    Kind::Request => self.ask(index, &head, packet.ts_ns, out),
                    // The final answer follows an interim one (RFC 9110, section 15.2).
                    Kind::Answer if (100..200).contains(&head.status) && head.status != 101 => {}
                    Kind::Answer => self.answer(index, &Answer { head, first }, out),
                }
                return true;
            }
            Found::Part(_) if bytes.len() < LONGEST => {
                if self.partials.get(stream.partial).is_none() {
                    stream.partial = self.partials.take(packet.hash);
                    (stream.base, stream.first) = (seq, first);
                    if let Some(gather) = self.partials.get(stream.partial) {
                        gather.add(0, bytes);
                    }
                }
            }
            Found::Part(_) => {
                self.too_long += 1;
                self.partials.free(stream.partial);
            }
            Found::Malformed | Found::Head(_) => {
                self.malformed += 1;
                self.partials.free(stream.partial);
            }
        }
        false
    }

    fn ask(&mut self, index: usize, head: &Head<'_>, now: u64, out: &mut Out) {
        self.last = self.last.wrapping_add(1).max(1);
        let place = self.last as usize % self.requests.len();
        if self.requests[place].taken != 0 {
            let is_late = now.saturating_sub(self.requests[place].first) > self.timeout;
            self.evicted_requests += u64::from(!is_late);
            self.finish(place, if is_late { Outcome::Unanswered } else { Outcome::Evicted }, None, out);
        }
        let connection = self.connections.get(index);
        let request = &mut self.requests[place];
        *request = Request {
            taken: self.last,
            ends: connection.ends,
            first: now,
            length: head.length.unwrap_or(0),
            ..Request::default()
        };
        request.method.push_bytes(head.method);
        request.host.push_bytes(head.host);
        request.target.push_bytes(head.target);
        request.agent.push_bytes(head.agent);
        request.version.push_bytes(head.version);
        let count = usize::from(connection.count);
        if count == PIPELINED {
            let oldest = connection.waiting[0];
            connection.waiting.rotate_left(1);
            connection.waiting[PIPELINED - 1] = self.last;
            self.finish_number(oldest, Outcome::Unanswered, out);
        } else {
            connection.waiting[count] = self.last;
            connection.count += 1;
        }
    }

    fn answer(&mut self, index: usize, answer: &Answer<'_>, out: &mut Out) {
        let connection = self.connections.get(index);
        let ends = connection.ends;
        for _ in 0..PIPELINED {
            if connection.count == 0 {
                break;
            }
            let oldest = connection.waiting[0];
            connection.waiting.rotate_left(1);
            connection.count -= 1;
            let place = oldest as usize % self.requests.len();
            if self.requests[place].taken == oldest {
                if self.requests[place].method.as_str() == "HEAD" {
                    // It has no body, whatever its length field states (RFC 9110, section 9.3.2).
                    let stream = &mut connection.streams[Kind::Answer as usize];
                    let len = answer.head.length.unwrap_or(0).min(1 << 30) as u32;
                    stream.read = stream.read.map(|read| read.wrapping_sub(len));
                }
                return self.finish(place, Outcome::Answered, Some(answer), out);
            }
        }
        row(
            &Request { ends, first: answer.first, ..Request::default() },
            Outcome::Unasked,
            Some(answer),
            out,
        );
    }

    /// Ends the requests whose timeout is over.
    pub fn scan(&mut self, now: u64, out: &mut Out) {
        for place in 0..self.requests.len() {
            let request = &self.requests[place];
            if request.taken != 0 && now.saturating_sub(request.first) > self.timeout {
                self.finish(place, Outcome::Unanswered, None, out);
            }
        }
    }

    fn finish_number(&mut self, taken: u32, outcome: Outcome, out: &mut Out) {
        let place = taken as usize % self.requests.len();
        if self.requests[place].taken == taken {
            self.finish(place, outcome, None, out);
        }
    }

    fn finish(&mut self, place: usize, outcome: Outcome, answer: Option<&Answer<'_>>, out: &mut Out) {
        let request = &mut self.requests[place];
        request.taken = 0;
        row(request, outcome, answer, out);
    }
}

fn row(request: &Request, outcome: Outcome, answer: Option<&Answer<'_>>, out: &mut Out) {
    let mut version = request.version;
    if let Some(Answer { head, .. }) = answer.filter(|_| version.is_empty()) {
        version.push_bytes(head.version);
    }
    out.write(&tables::Request {
        ts_ns: request.first,
        src: request.ends.src,
        sport: request.ends.sport,
        dst: request.ends.dst,
        dport: request.ends.dport,
        method: request.method.as_str(),
        host: request.host.as_str(),
        target: request.target.as_str(),
        outcome,
        status: answer.map_or(0, |a| a.head.status),
        time_ns: answer.map_or(0, |a| a.first.saturating_sub(request.first)) as i64,
        request_length: request.length,
        response_length: answer.and_then(|a| a.head.length).unwrap_or(0),
        agent: request.agent.as_str(),
        version: version.as_str(),
    });
}
