//! Round-trip times during a connection: from a segment to its answer.
//!
//! Two methods, each with one timed segment per direction:
//!
//! - *timestamp*: from the first segment with data that carries a new TCP timestamp to the first echo of that
//!   timestamp (as in pping). A repeated segment has a new timestamp or is no longer the first with its own,
//!   so it cannot mislead.
//! - *sequence*: from a segment with new data to the acknowledgement that covers it. Any segment that repeats
//!   old data cancels the measurement (Karn's rule).
//!
//! Both include the delay of acknowledgements by the receiver.

use crate::segment::{Segment, Tuple, at_or_after};
use crate::tables::{self, SampleMethod};
use flame_module::{Entry, FlowTable, Reserved, tcp};

/// The state of one side's transmissions.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// The times at which the timed segments were seen; 0 if there is none.
    clock_at: u64,
    seq_at: u64,
    /// The timestamp whose echo is expected, and the newest one seen.
    clock: u32,
    newest_clock: u32,
    /// The expected acknowledgement, and the end of all data seen.
    seq: u32,
    newest_seq: u32,
    /// The beginning and the time of the newest data.
    newest_start: u32,
    newest_at: u64,
    has_clock: bool,
    has_seq: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// The endpoints in the direction of the first segment with data.
    tuple: Tuple,
    used: u64,
    sides: [Side; 2],
}

impl Entry for Connection {
    fn used(&self) -> u64 {
        self.used
    }
}

/// The time in nanoseconds within which the newest data again are a copy by the capture, as of a port that is
/// mirrored on both sides of a router. No sender repeats them so soon.
const COPY_NS: u64 = 1_000_000;

/// The silence in nanoseconds after which a connection starts anew.
const IDLE_NS: u64 = 300_000_000_000;

pub struct Samples {
    connections: FlowTable<Connection>,
    /// Segments with data that were captured once more.
    pub copies: u64,
}

impl Samples {
    pub fn new(capacity: usize) -> Self {
        Self { connections: FlowTable::new(capacity, IDLE_NS), copies: 0 }
    }

    pub fn evicted(&self) -> u64 {
        self.connections.evicted
    }

    #[inline]
    pub fn segment(&mut self, s: &Segment, out: &mut Reserved<'_>) {
        let reversed = s.tuple.reversed();
        let is = |c: &Connection| c.tuple == s.tuple || c.tuple == reversed;
        let found = self.connections.find(s.hash, s.at, is);
        if s.flags & (tcp::SYN | tcp::RST) != 0 {
            // Sequence numbers and clocks of a next connection are unrelated to these.
            if let Some(index) = found {
                self.connections.remove(index);
            }
            return;
        }
        let index = match found {
            Some(index) => index,
            None if s.len == 0 => return,
            None => {
                let new = Connection { tuple: s.tuple, used: s.at, ..Connection::default() };
                self.connections.insert(s.hash, s.at, new)
            }
        };
        let connection = self.connections.get(index);
        connection.used = connection.used.max(s.at);
        let from = usize::from(connection.tuple != s.tuple);
        if s.flags & tcp::ACK != 0 {
            connection.sides[1 - from].answered(s, &reversed, out);
        }
        if s.len > 0 {
            let is_copy = !connection.sides[from].sent(s);
            self.copies += u64::from(is_copy);
        }
    }
}

impl Side {
    fn answered(&mut self, s: &Segment, sender: &Tuple, out: &mut Reserved<'_>) {
        if let Some(t) = s.timestamps
            && self.clock_at != 0
            && at_or_after(t.echo, self.clock)
        {
            // A later echo means that this one was skipped, so there is no value.
            if t.echo == self.clock {
                write(s, sender, self.clock_at, SampleMethod::Timestamp, out);
            }
            self.clock_at = 0;
        }
        if self.seq_at != 0 && at_or_after(s.ack, self.seq) {
            write(s, sender, self.seq_at, SampleMethod::Sequence, out);
            self.seq_at = 0;
        }
    }

    /// Notes a segment with data, and returns whether it is no copy by the capture.
    fn sent(&mut self, s: &Segment) -> bool {
        let end = s.seq.wrapping_add(s.len);
        let is_newest = self.has_seq && (s.seq, end) == (self.newest_start, self.newest_seq);
        if is_newest && s.at.abs_diff(self.newest_at) < COPY_NS {
            return false;
        }
        if self.has_seq && !at_or_after(s.seq, self.newest_seq) {
            self.seq_at = 0;
        } else if self.seq_at == 0 {
            (self.seq_at, self.seq) = (s.at, end);
        }
        if !self.has_seq || at_or_after(end, self.newest_seq) {
            (self.newest_seq, self.has_seq) = (end, true);
            (self.newest_start, self.newest_at) = (s.seq, s.at);
        }
        if let Some(t) = s.timestamps
            && (!self.has_clock || (t.value != self.newest_clock && at_or_after(t.value, self.newest_clock)))
        {
            (self.newest_clock, self.has_clock) = (t.value, true);
            if self.clock_at == 0 {
                (self.clock_at, self.clock) = (s.at, t.value);
            }
        }
        true
    }
}

/// Writes one row, unless the time decreased.
fn write(s: &Segment, sender: &Tuple, since: u64, method: SampleMethod, out: &mut Reserved<'_>) {
    if s.at < since {
        return;
    }
    out.write(&tables::Sample {
        src: sender.src(),
        sport: sender.sport,
        dst: sender.dst(),
        dport: sender.dport,
        time_ns: s.at,
        rtt_ns: (s.at - since) as i64,
        method,
    });
}
