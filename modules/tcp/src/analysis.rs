//! The analysis of one connection, segment by segment, by the rules of tshark's `tcp.analysis`
//! (`epan/dissectors/packet-tcp.c` of Wireshark 4.0), with a state of fixed size.

use flame_module::tcp;

/// The fields of one segment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    pub at: u64,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// Bytes of payload on the wire.
    pub len: u32,
    /// The shift of the window, of a SYN that states one.
    pub scale: Option<u8>,
}

/// What a segment is, as bits.
pub mod is {
    pub const RETRANSMISSION: u16 = 1;
    pub const FAST: u16 = 1 << 1;
    pub const SPURIOUS: u16 = 1 << 2;
    pub const OUT_OF_ORDER: u16 = 1 << 3;
    pub const DUPLICATE_ACK: u16 = 1 << 4;
    pub const LOST: u16 = 1 << 5;
    pub const ZERO_WINDOW: u16 = 1 << 6;
    pub const FULL_WINDOW: u16 = 1 << 7;
    pub const KEEP_ALIVE: u16 = 1 << 8;
    pub const RESET: u16 = 1 << 9;
    pub const ZERO_WINDOW_PROBE: u16 = 1 << 10;
    /// The number of bits that are counted: those before the last one.
    pub const COUNTED: usize = 10;
}

/// Segments that wait for an acknowledgement, of which a time is measured.
const TIMED: usize = 8;
/// The time in nanoseconds within which a segment after duplicate ACKs is a fast retransmission.
const FAST_NS: u64 = 20_000_000;
/// The time within which a segment that does not advance is out of order, before the RTT is known.
const DISORDER_NS: u64 = 3_000_000;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    /// The sequence number after the last byte sent, and the time at which that was seen. 0 before the first
    /// segment, as in tshark.
    next: u32,
    next_at: u64,
    /// The last acknowledgement and window that this side sent.
    ack: u32,
    ack_at: u64,
    window: u16,
    duplicates: u16,
    /// What the last segment was.
    last: u16,
    scale: Option<u8>,
    has_scale: bool,
    /// The highest sequence number of this side that the other one acknowledged, and whether it is known.
    acked: u32,
    is_known: bool,
    /// The end and time of each segment that is timed.
    timed: [(u32, u64); TIMED],
    timed_count: u8,
}

/// Returns whether `a` is before `b` in sequence space (RFC 9293, section 3.4).
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The result for one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    pub is: u16,
    /// Bytes that the sender has sent and that are not acknowledged, after a segment with data.
    pub in_flight: Option<u32>,
    /// The time from a segment of the other side to its acknowledgement by this one.
    pub rtt: Option<u64>,
}

/// Analyses a segment of the side `fwd`. `first_rtt` is the time of the handshake, if known.
pub fn analyse(fwd: &mut Side, rev: &mut Side, s: &Segment, first_rtt: Option<u64>) -> Finding {
    let marks = s.flags & (tcp::SYN | tcp::FIN | tcp::RST);
    let has_ack = s.flags & tcp::ACK != 0;
    let end = s.seq.wrapping_add(s.len);
    let mut is = if s.flags & tcp::RST != 0 { is::RESET } else { 0 };
    if has_ack && !rev.is_known {
        (rev.acked, rev.is_known) = (s.ack, true);
    }

    if s.len == 1 && s.seq == fwd.next && rev.window == 0 {
        is |= is::ZERO_WINDOW_PROBE;
    } else {
        is |= windows(fwd, rev, s, marks, end);
    }
    if s.ack != fwd.ack {
        fwd.duplicates = 0;
    }

    let next = if marks & (tcp::SYN | tcp::FIN) != 0 { end.wrapping_add(1) } else { end };
    if s.len > 0 || marks & (tcp::SYN | tcp::FIN) != 0 {
        is |= again(fwd, rev, s, is, next, first_rtt);
    }

    if is & (is::RETRANSMISSION | is::OUT_OF_ORDER) != 0 {
        // Of what was sent again, it is unknown which copy is acknowledged (Karn's rule).
        forget(fwd, |timed| before(s.seq, timed));
    } else if next != s.seq && s.at != 0 && usize::from(fwd.timed_count) < TIMED {
        // A packet without time (0) measures nothing.
        fwd.timed[usize::from(fwd.timed_count)] = (next, s.at);
        fwd.timed_count += 1;
    }
    if (before(fwd.next, next) || fwd.next == 0) && is & is::ZERO_WINDOW_PROBE == 0 {
        (fwd.next, fwd.next_at) = (next, s.at);
    }
    (fwd.window, fwd.ack, fwd.ack_at, fwd.last) = (s.window, s.ack, s.at, is);
    if marks & tcp::SYN != 0 {
        (fwd.scale, fwd.has_scale) = (s.scale, true);
    }

    let mut rtt = None;
    if has_ack {
        for (timed, at) in rev.timed.iter().take(rev.timed_count.into()) {
            if *timed == s.ack {
                rtt = s.at.checked_sub(*at);
            }
        }
        forget(rev, |timed| !before(s.ack, timed));
        if before(rev.acked, s.ack) {
            rev.acked = s.ack;
        }
    }
    let in_flight = fwd.next.wrapping_sub(fwd.acked);
    let in_flight = (s.len > 0 && fwd.is_known && in_flight as i32 > 0).then_some(in_flight);
    Finding { is, in_flight, rtt }
}

/// Drops the timed segments whose ends `is` accepts.
fn forget(side: &mut Side, is: impl Fn(u32) -> bool) {
    let mut kept = 0;
    for n in 0..TIMED {
        let timed = side.timed[n];
        if n < usize::from(side.timed_count) && !is(timed.0) {
            side.timed[kept % TIMED] = timed;
            kept += 1;
        }
    }
    side.timed_count = kept as u8;
}

/// Returns what follows from windows and acknowledgements.
fn windows(fwd: &mut Side, rev: &Side, s: &Segment, marks: u8, end: u32) -> u16 {
    let mut is = 0;
    if s.window == 0 && marks == 0 {
        is |= is::ZERO_WINDOW;
    }
    if fwd.next != 0 && before(fwd.next, s.seq) && marks & tcp::RST == 0 {
        is |= is::LOST;
        fwd.is_known = false;
    }
    if s.len <= 1 && s.seq == fwd.next.wrapping_sub(1) && marks == 0 {
        is |= is::KEEP_ALIVE;
    }
    // Without both SYNs, the windows are not known.
    let shift = if fwd.scale.is_some() { rev.scale.unwrap_or(0).min(14) } else { 0 };
    let limit = rev.ack.wrapping_add(u32::from(rev.window) << shift);
    if s.len > 0 && rev.has_scale && end == limit && marks == 0 {
        is |= is::FULL_WINDOW;
    }
    let repeats = s.len == 0 && s.window == fwd.window && s.seq == fwd.next && s.ack == fwd.ack && marks == 0;
    if !repeats || s.window == 0 || rev.last & is::KEEP_ALIVE != 0 {
        return is;
    }
    fwd.duplicates = fwd.duplicates.saturating_add(1);
    is | is::DUPLICATE_ACK
}

/// Returns what a segment is whose data were sent before.
fn again(fwd: &Side, rev: &Side, s: &Segment, is: u16, end: u32, first_rtt: Option<u64>) -> u16 {
    if is & is::KEEP_ALIVE != 0 {
        return 0;
    }
    // Acknowledged data are not needed again, even if the capture shows the acknowledgement first.
    if s.len > 0 && rev.ack != 0 && !before(rev.ack, end) {
        return is::RETRANSMISSION | is::SPURIOUS;
    }
    // The byte of a probe may be sent again with others.
    let is_after_probe = s.len > 1 && s.seq == fwd.next.wrapping_sub(1);
    if fwd.next == 0 || !before(s.seq, fwd.next) || is_after_probe {
        return 0;
    }
    let since = s.at.wrapping_sub(rev.ack_at);
    if rev.duplicates >= 2 && rev.ack == s.seq && since < FAST_NS {
        return is::RETRANSMISSION | is::FAST;
    }
    let since = s.at.wrapping_sub(fwd.next_at);
    if since < first_rtt.unwrap_or(DISORDER_NS) && fwd.next != end {
        return is::OUT_OF_ORDER;
    }
    is::RETRANSMISSION
}
