//! Connections, their rows, and the sums over all of them.

use crate::analysis::{Finding, Segment, Side, analyse, is};
use crate::rtt::Times;
use crate::tables::{self, ConnectionEnd as End, ConnectionHandshake as Handshake, Params};
use crate::totals::Totals;
use flame_module::{Entry, FlowTable, Ip, Out, Packet, tcp};

/// The endpoints, from the sender to the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    src: Ip,
    sport: u16,
    dst: Ip,
    dport: u16,
}

/// The counters of one direction, by the bits of [`is`].
pub type Counts = [u32; is::COUNTED];

#[derive(Clone, Copy, Debug)]
struct Connection {
    /// The endpoints, from the client to the server.
    ends: Ends,
    first: u64,
    last: u64,
    sides: [Side; 2],
    counts: [Counts; 2],
    packets: [u64; 2],
    in_flight: [u32; 2],
    times: Times<u16>,
    /// The time of the client's last SYN.
    syn_at: u64,
    /// The initial sequence number of each side, once it is known.
    initial: [Option<u32>; 2],
    handshake: Handshake,
    /// The time of the handshake; 0 if not known.
    first_rtt: u64,
    is_reset: bool,
    fins: u8,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            ends: Ends::default(),
            first: 0,
            last: 0,
            sides: Default::default(),
            counts: Default::default(),
            packets: [0; 2],
            in_flight: [0; 2],
            times: Times::default(),
            syn_at: 0,
            initial: [None; 2],
            handshake: Handshake::Unseen,
            first_rtt: 0,
            is_reset: false,
            fins: 0,
        }
    }
}

impl Entry for Connection {
    fn used(&self) -> u64 {
        self.last
    }
}

pub struct Connections {
    table: FlowTable<Connection>,
    idle: u64,
    linger: u64,
    has_rows: bool,
    pub totals: Totals,
}

/// Returns the fields of a segment with its endpoints.
fn segment(packet: &Packet<'_>) -> Option<(Ends, Segment)> {
    let header = packet.tcp()?;
    if header.header_len() < 20 {
        return None;
    }
    let ends = Ends { src: packet.src()?, sport: header.sport(), dst: packet.dst()?, dport: header.dport() };
    // Segmentation offload leaves the length out; then the frame has it.
    let rest = packet.wire_len.saturating_sub(u32::from(packet.l4) + header.header_len() as u32);
    let mut segment = Segment {
        at: packet.ts_ns,
        seq: header.seq(),
        ack: header.ack(),
        flags: header.flags(),
        window: header.window(),
        len: packet.payload_len().map_or(rest, |len| len as u32),
        ..Segment::default()
    };
    if header.flags() & tcp::SYN != 0 {
        segment.scale = header.option(3).and_then(|option| option.first().copied());
    }
    Some((ends, segment))
}

impl Connections {
    pub fn new(params: &Params) -> Self {
        Self {
            table: FlowTable::new(params.max_connections as usize, params.idle_timeout),
            idle: params.idle_timeout,
            linger: params.linger,
            has_rows: params.connections,
            totals: Totals::default(),
        }
    }

    pub fn evicted(&self) -> u64 {
        self.table.evicted
    }

    /// Processes one packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>, out: &mut Out) {
        let Some((ends, s)) = segment(packet) else { return };
        let reversed = Ends { src: ends.dst, sport: ends.dport, dst: ends.src, dport: ends.sport };
        let find = |c: &Connection| c.ends == ends || c.ends == reversed;
        let is_syn = s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN;
        let mut found = self.table.find(packet.hash, s.at, find);
        if let Some(index) = found.filter(|_| is_syn) {
            // A SYN of another sequence begins another connection between the same ports.
            let connection = self.table.get(index);
            let initial = connection.initial[usize::from(connection.ends != ends)];
            if initial.is_some_and(|initial| initial != s.seq) {
                let connection = *connection;
                self.table.remove(index);
                self.finish(&connection, End::Reused, out);
                found = None;
            }
        }
        let index = match found {
            Some(index) => index,
            None => self.begin(packet.hash, ends, reversed, &s, out),
        };
        let connection = self.table.get(index);
        let from = usize::from(connection.ends != ends);
        connection.segment(from, &s, &mut self.totals);
    }

    #[inline(never)]
    fn begin(&mut self, hash: u32, ends: Ends, reversed: Ends, s: &Segment, out: &mut Out) -> usize {
        // The answer to a SYN that was not captured still identifies the client.
        let is_answer = s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN | tcp::ACK;
        let ends = if is_answer { reversed } else { ends };
        let new = Connection { ends, first: s.at, last: s.at, ..Connection::default() };
        let (idle, mut replaced) = (self.idle, None);
        let index = self.table.insert_with(hash, s.at, new, |old| {
            let is_late = s.at.saturating_sub(old.last) > idle;
            replaced = Some((*old, if is_late { End::Idle } else { End::Evicted }));
        });
        if let Some((old, end)) = replaced {
            self.finish(&old, end, out);
        }
        self.totals.connections += 1;
        index
    }

    /// Ends the connections that are silent for too long.
    pub fn scan(&mut self, now: u64, out: &mut Out) {
        for place in 0..self.table.places() {
            let Some(connection) = self.table.in_place(place) else { continue };
            let limit = if connection.is_closed() { self.linger } else { self.idle };
            if now.saturating_sub(connection.last) > limit {
                let connection = *connection;
                self.table.remove(place);
                self.finish(&connection, if now == u64::MAX { End::End } else { End::Idle }, out);
            }
        }
    }

    #[inline(never)]
    fn finish(&mut self, connection: &Connection, end: End, out: &mut Out) {
        let handshake = connection.handshake;
        self.totals.refused += u64::from(handshake == Handshake::Refused);
        self.totals.unanswered += u64::from(handshake == Handshake::Unanswered);
        if self.has_rows {
            connection.write(end, out);
        }
    }
}

impl Connection {
    fn is_closed(&self) -> bool {
        self.is_reset || self.fins == 3
    }

    fn segment(&mut self, from: usize, s: &Segment, totals: &mut Totals) {
        let [a, b] = &mut self.sides;
        let (fwd, rev) = if from == 0 { (a, b) } else { (b, a) };
        let is_syn = s.flags & tcp::SYN != 0;
        self.initial[from].get_or_insert(if is_syn { s.seq } else { s.seq.wrapping_sub(1) });
        if s.flags & tcp::ACK != 0 {
            self.initial[1 - from].get_or_insert(s.ack.wrapping_sub(1));
        }
        let first_rtt = (self.first_rtt != 0).then_some(self.first_rtt);
        let Finding { is, in_flight, rtt } = analyse(fwd, rev, s, first_rtt);
        self.handshake(from, s, totals);
        self.last = self.last.max(s.at);
        self.packets[from] += 1;
        totals.packets += 1;
        self.is_reset |= s.flags & tcp::RST != 0;
        if s.flags & tcp::FIN != 0 {
            self.fins |= 1 << from;
        }
        if is != 0 {
            for n in 0..is::COUNTED {
                let one = u32::from(is >> n & 1);
                self.counts[from][n] += one;
                totals.counts[n] += u64::from(one);
            }
        }
        if let Some(bytes) = in_flight {
            self.in_flight[from] = self.in_flight[from].max(bytes);
            totals.in_flight = totals.in_flight.max(bytes.into());
        }
        if let Some(ns) = rtt {
            self.times.add(ns);
            totals.times.add(ns);
        }
    }

    fn handshake(&mut self, from: usize, s: &Segment, totals: &mut Totals) {
        let marks = s.flags & (tcp::SYN | tcp::ACK | tcp::RST);
        match (self.handshake, from) {
            (_, 0) if marks == tcp::SYN => {
                self.syn_at = s.at;
                self.handshake = Handshake::Unanswered;
            }
            (Handshake::Unanswered | Handshake::Unseen, 1) if marks == tcp::SYN | tcp::ACK => {
                self.handshake = Handshake::Half;
            }
            (Handshake::Unanswered, 1) if marks & tcp::RST != 0 => self.handshake = Handshake::Refused,
            (Handshake::Half | Handshake::Unanswered, 0) if marks == tcp::ACK => {
                self.handshake = Handshake::Complete;
                totals.handshakes += 1;
            }
            _ => {}
        }
        if self.first_rtt == 0 && self.syn_at != 0 && marks & (tcp::SYN | tcp::ACK) == tcp::ACK {
            self.first_rtt = s.at.saturating_sub(self.syn_at);
        }
    }

    fn write(&self, end: End, out: &mut Out) {
        let end = match end {
            End::Idle | End::End if self.is_reset => End::Rst,
            End::Idle | End::End if self.fins == 3 => End::Fin,
            other => other,
        };
        let [fwd, rev] = self.counts.map(|counts| counts.map(u64::from));
        let times = self.times.summary();
        let [rtt_p50_ns, rtt_p95_ns, rtt_p99_ns] = times.percentiles;
        out.write(&tables::Connection {
            src: self.ends.src,
            sport: self.ends.sport,
            dst: self.ends.dst,
            dport: self.ends.dport,
            first_ns: self.first,
            last_ns: self.last,
            handshake: self.handshake,
            end,
            packets_fwd: self.packets[0],
            packets_rev: self.packets[1],
            retransmissions_fwd: fwd[0],
            retransmissions_rev: rev[0],
            out_of_order_fwd: fwd[3],
            out_of_order_rev: rev[3],
            duplicate_acks_fwd: fwd[4],
            duplicate_acks_rev: rev[4],
            fast_retransmissions_fwd: fwd[1],
            fast_retransmissions_rev: rev[1],
            spurious_retransmissions_fwd: fwd[2],
            spurious_retransmissions_rev: rev[2],
            lost_fwd: fwd[5],
            lost_rev: rev[5],
            zero_windows_fwd: fwd[6],
            zero_windows_rev: rev[6],
            full_windows_fwd: fwd[7],
            full_windows_rev: rev[7],
            keep_alives_fwd: fwd[8],
            keep_alives_rev: rev[8],
            resets_fwd: fwd[9],
            resets_rev: rev[9],
            in_flight_fwd: self.in_flight[0],
            in_flight_rev: self.in_flight[1],
            rtts: times.count,
            rtt_min_ns: times.least,
            rtt_p50_ns,
            rtt_p95_ns,
            rtt_p99_ns,
            rtt_max_ns: times.most,
        });
    }
}
