use crate::Progress;
use crate::area::Area;
use crate::batch::Ip;
use crate::record::Record;
use flame_abi::LinkType;
use flame_abi::output::{FRAME, LOST, MAX_PAYLOAD, MESSAGE, PACKET, PACKET_HEAD};
use std::iter::Peekable;

/// The initial size of the output area in bytes: 4 KiB for each packet of a batch. Only the written part of
/// an area is touched.
const AREA: usize = 1 << 20;
/// The largest size of the area in bytes, a little less than a host takes from one call: one packet of the
/// largest size for each packet of a batch.
const MOST: usize = 256 * (FRAME + MAX_PAYLOAD) + (256 << 10) + RESERVE;
/// The smallest size, in bytes, with which an instance with little memory begins.
const LEAST: usize = 128 << 10;
/// The number of messages that a host takes from one call.
const MESSAGES: u32 = 4096;
/// The largest number of places at which output is cut because of that limit.
const CUTS: usize = 64;
/// Bytes that are kept free for the frame that reports lost records.
const RESERVE: usize = FRAME + 8;

/// The output of a call: rows and messages. There is room for 1 MiB. If a call used half of it, there is room
/// for twice as much from the next tick on, up to 17 MiB. The last call, [`crate::Module::end`], has 17 MiB
/// at once if the instance may have that much memory. Output beyond the room is lost and counted; see
/// [`Out::write_all`] for more output. The area grows only between calls, so a row always costs the same few
/// instructions.
pub struct Out {
    area: Area,
    /// The range of output that waits: `from` is the end of the part that was handed over.
    from: usize,
    len: usize,
    /// The number of messages since the last cut.
    messages: u32,
    /// The offsets at which output is cut: `cut` of them, of which `given` are done.
    cuts: [usize; CUTS],
    cut: usize,
    given: usize,
    lost: u64,
    /// The size that the area shall have, in bytes.
    wanted: usize,
}

impl Default for Out {
    fn default() -> Self {
        // An instance with little memory gets a smaller area.
        let area = (0..4).find_map(|halves| Area::new((AREA >> halves).max(LEAST)));
        Self::new(area.expect("an instance has memory for its output"))
    }
}

impl Out {
    fn new(area: Area) -> Self {
        Self { area, from: 0, len: 0, messages: 0, cuts: [0; CUTS], cut: 0, given: 0, lost: 0, wanted: 0 }
    }

    /// Returns an output with the largest area, for tests.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn roomy() -> Self {
        let mut out = Self::default();
        out.make_room(true);
        out
    }

    /// Enlarges the area: before a tick as earlier calls require, and before the last call as far as
    /// possible.
    pub(crate) fn make_room(&mut self, end: bool) {
        let wanted = if end { MOST } else { self.wanted };
        // Output that a batch left is not moved, because its size is not bounded.
        if wanted > self.area.len() && self.len == 0 {
            self.wanted = 0;
            self.area = match larger(wanted, self.area.len()) {
                Some(area) => area,
                None => return,
            };
        }
    }

    /// Moves the output to an area of `bytes` bytes, or of fewer if there is too little memory.
    #[cold]
    fn enlarge(&mut self, bytes: usize) {
        crate::cold();
        if let Some(mut area) = larger(bytes, self.area.len()) {
            area[..self.len].copy_from_slice(&self.area[..self.len]);
            self.area = area;
        }
    }

    /// Returns an output with an area of `bytes` bytes.
    #[cfg(test)]
    pub(crate) fn with_area(bytes: usize) -> Self {
        Self::new(Area::new(bytes).expect("there is memory"))
    }

    /// Writes a row, for example `out.write(&Total { packets, bytes })` with a type of [`crate::manifest!`].
    /// Returns whether it was written. A row is lost, and counted, if there is no room left or it is longer
    /// than 65,536 bytes.
    #[inline]
    pub fn write<'a, R: Record<'a>>(&mut self, row: &R) -> bool {
        let size = row.size();
        if size > MAX_PAYLOAD {
            self.lost += 1;
            return false;
        }
        let Some(start) = self.place(size) else { return false };
        row.put(&mut self.area[start + FRAME..start + FRAME + size]);
        self.close(start, R::TABLE, size);
        true
    }

    /// Writes any number of rows, from [`Module::tick`] or [`Module::end`]. Return the result of this method,
    /// and the rest follows in further calls. The rows are kept in between, for example in a field of the
    /// module.
    ///
    /// [`Module::tick`]: crate::Module::tick
    /// [`Module::end`]: crate::Module::end
    pub fn write_all<'a, R: Record<'a>>(&mut self, rows: &mut Peekable<impl Iterator<Item = R>>) -> Progress {
        while let Some(row) = rows.peek() {
            // A row that no area holds would otherwise block the rows after it.
            if row.size() > self.room() && self.len > self.from {
                return Progress::More;
            }
            self.write(row);
            rows.next();
        }
        Progress::Done
    }

    /// Begins a row of table number `table` of the manifest. Add its columns in order, then call
    /// [`Row::finish`]. [`Out::write`] does this with names and types that the compiler checks.
    #[inline]
    pub fn row(&mut self, table: u16) -> Row<'_> {
        let start = self.len;
        let full = start + FRAME + RESERVE > self.area.len();
        let at = if full { start } else { start + FRAME };
        Row { out: self, start, at, kind: table, full }
    }

    /// Sends at most 65,536 bytes to the slow instance.
    pub fn message(&mut self, bytes: &[u8]) {
        if bytes.len() > MAX_PAYLOAD || (self.messages == MESSAGES && !self.cut()) {
            self.lost += 1;
            return;
        }
        let Some(start) = self.place(bytes.len()) else { return };
        self.area[start + FRAME..start + FRAME + bytes.len()].copy_from_slice(bytes);
        self.close(start, MESSAGE, bytes.len());
        self.messages += 1;
    }

    /// Cuts here, so that the host takes the output so far separately. Returns whether another cut was
    /// possible.
    fn cut(&mut self) -> bool {
        let Some(place) = self.cuts.get_mut(self.cut) else { return false };
        *place = self.len;
        self.cut += 1;
        self.messages = 0;
        true
    }

    /// Writes a packet to the capture file that the user named (`module.toml` needs `packets = true`). A
    /// packet longer than 65,520 bytes is truncated to that length. The area grows until it holds a batch of
    /// such packets.
    pub fn packet(&mut self, ts_ns: u64, wire_len: u32, link: LinkType, bytes: &[u8]) -> bool {
        self.packet_changed(ts_ns, wire_len, link, bytes, |bytes| bytes.len())
    }

    /// Writes a packet like [`Out::packet`], after `change` has modified the copy; it returns the number of
    /// bytes to write.
    #[inline]
    pub fn packet_changed(
        &mut self,
        ts_ns: u64,
        wire_len: u32,
        link: LinkType,
        bytes: &[u8],
        change: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let needed = self.len + FRAME + PACKET_HEAD + bytes.len() + RESERVE;
        if needed > self.area.len() && needed <= MOST {
            self.enlarge(needed.next_power_of_two().min(MOST));
        }
        let Some(start) = self.place(PACKET_HEAD + bytes.len()) else { return false };
        let frame = &mut self.area[start + FRAME..start + FRAME + PACKET_HEAD + bytes.len()];
        let (head, copy) = frame.split_at_mut(PACKET_HEAD);
        head[..8].copy_from_slice(&ts_ns.to_le_bytes());
        head[8..12].copy_from_slice(&wire_len.to_le_bytes());
        head[12..14].copy_from_slice(&link.0.to_le_bytes());
        head[14..].fill(0);
        copy.copy_from_slice(bytes);
        let written = change(copy).min(bytes.len()).min(MAX_PAYLOAD - PACKET_HEAD);
        self.close(start, PACKET, PACKET_HEAD + written);
        true
    }

    /// Returns the number of payload bytes that certainly still fit.
    pub fn room(&self) -> usize {
        self.area.len().saturating_sub(self.len + FRAME + RESERVE)
    }

    /// Returns the start of a frame with `payload` bytes of payload, or `None`, which is counted as a loss.
    #[inline]
    fn place(&mut self, payload: usize) -> Option<usize> {
        if self.len + FRAME + payload + RESERVE > self.area.len() {
            self.lost += 1;
            return None;
        }
        Some(self.len)
    }

    /// Ends a frame that [`Out::place`] began.
    #[inline]
    fn close(&mut self, start: usize, kind: u16, payload: usize) {
        let head = &mut self.area[start..start + FRAME];
        head[..4].copy_from_slice(&(payload as u32).to_le_bytes());
        head[4..6].copy_from_slice(&kind.to_le_bytes());
        head[6..8].fill(0);
        self.len = start + FRAME + payload;
    }

    /// Returns the next part of the output for the host, and whether more was written. The bytes are valid
    /// until the next write.
    #[doc(hidden)]
    pub fn hand(&mut self) -> (&[u8], bool) {
        let from = self.from;
        if self.given < self.cut {
            self.from = self.cuts[self.given];
            self.given += 1;
            return (&self.area[from..self.from], true);
        }
        let end = self.len + note(std::mem::take(&mut self.lost), &mut self.area[self.len..]);
        if end > self.area.len() / 2 {
            self.wanted = (self.area.len() * 2).min(MOST);
        }
        (self.from, self.len, self.messages, self.cut, self.given) = (0, 0, 0, 0, 0);
        (&self.area[from..end], false)
    }
}

/// Returns an area of `wanted` bytes or, as memory permits, of fewer, but more than `least`.
fn larger(wanted: usize, least: usize) -> Option<Area> {
    (0..4).map(|halves| wanted >> halves).filter(|size| *size > least).find_map(Area::new)
}

/// Writes the number of lost records, if there are any, and returns the bytes that it took.
fn note(lost: u64, to: &mut [u8]) -> usize {
    let Some(to) = to.first_chunk_mut::<RESERVE>().filter(|_| lost > 0) else { return 0 };
    to[..4].copy_from_slice(&8u32.to_le_bytes());
    to[4..6].copy_from_slice(&LOST.to_le_bytes());
    to[6..8].fill(0);
    to[FRAME..].copy_from_slice(&lost.to_le_bytes());
    RESERVE
}

/// An unfinished row; dropping it without [`Row::finish`] writes nothing.
#[must_use = "a row is written by finish()"]
pub struct Row<'a> {
    out: &'a mut Out,
    start: usize,
    at: usize,
    kind: u16,
    full: bool,
}

macro_rules! number {
    ($($name:ident: $type:ty,)*) => {$(
        #[inline]
        pub fn $name(mut self, value: $type) -> Self {
            self.put(&value.to_le_bytes());
            self
        }
    )*};
}

impl Row<'_> {
    number! { u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, f64: f64, }

    pub fn bool(self, value: bool) -> Self {
        self.u8(value.into())
    }

    /// Adds a time, in nanoseconds since 1970.
    pub fn time(self, ns: u64) -> Self {
        self.u64(ns)
    }

    /// Adds a duration in nanoseconds.
    pub fn duration(self, ns: i64) -> Self {
        self.i64(ns)
    }

    /// Adds an enum by the number of the word in the column's `values`.
    pub fn enumeration(self, index: u8) -> Self {
        self.u8(index)
    }

    #[inline]
    pub fn ip(mut self, ip: Ip) -> Self {
        self.put(&[ip.family]);
        self.put(&ip.bytes);
        self
    }

    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.put(&mac);
        self
    }

    /// Adds a text of at most 65,535 bytes; a longer one is cut at a character boundary.
    pub fn text(mut self, text: &str) -> Self {
        let end = text.floor_char_boundary(MAX_PAYLOAD - 1);
        self.put(&(end as u16).to_le_bytes());
        self.put(&text.as_bytes()[..end]);
        self
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        if self.full || end + RESERVE > self.out.area.len() {
            self.full = true;
            return;
        }
        self.out.area[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }

    /// Ends the row and returns whether it was written; if not, it is counted as lost.
    #[inline]
    pub fn finish(self) -> bool {
        let len = self.at.saturating_sub(self.start + FRAME);
        if self.full || len > MAX_PAYLOAD {
            self.out.lost += 1;
            return false;
        }
        self.out.close(self.start, self.kind, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all frames that a call hands over, area by area.
    fn frames(out: &mut Out) -> Vec<(u16, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let (mut rest, more) = out.hand();
            while let Some((head, behind)) = rest.split_first_chunk::<FRAME>() {
                let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                all.push((u16::from_le_bytes([head[4], head[5]]), behind[..len].to_vec()));
                rest = &behind[len..];
            }
            if !more {
                return all;
            }
        }
    }

    struct Number(u64);

    impl Record<'_> for Number {
        const TABLE: u16 = 1;
        fn size(&self) -> usize {
            8
        }
        fn put(&self, to: &mut [u8]) {
            to.copy_from_slice(&self.0.to_le_bytes());
        }
        fn read(from: &[u8]) -> Option<Self> {
            Some(Self(u64::from_le_bytes(from.try_into().ok()?)))
        }
    }

    #[test]
    fn a_tiny_area_is_drained_by_the_sdks_own_loop() {
        // There is room for three rows and the note of lost records.
        let mut out = Out::with_area(3 * 16 + RESERVE);
        let mut rows = (0..10_000).map(Number).peekable();
        let (mut all, mut calls) = (Vec::new(), 0);
        loop {
            let progress = out.write_all(&mut rows);
            all.extend(frames(&mut out));
            calls += 1;
            if progress == Progress::Done {
                break;
            }
        }
        assert_eq!((all.len(), calls), (10_000, 3334));
        let numbers = all.iter().map(|(kind, row)| (*kind, Number::read(row).map_or(u64::MAX, |n| n.0)));
        assert!(numbers.eq((0..10_000).map(|n| (1, n))));
        // A row that no area holds is skipped and counted, not tried forever.
        let mut none = Out::with_area(20);
        assert_eq!(none.write_all(&mut [Number(1), Number(2)].into_iter().peekable()), Progress::Done);
        assert_eq!(frames(&mut none), [(LOST, 2u64.to_le_bytes().to_vec())]);
    }

    #[test]
    fn a_full_area_counts_what_it_loses() {
        let mut out = Out::with_area(3 * 16 + RESERVE);
        let written = (0..5).filter(|n| out.write(&Number(*n))).count();
        assert!(!out.row(1).u64(5).finish());
        out.message(&[0; 8]);
        let frames = frames(&mut out);
        assert_eq!((written, frames.len()), (3, 4));
        assert_eq!(frames[3], (LOST, 4u64.to_le_bytes().to_vec()));
    }

    #[test]
    fn a_batch_of_the_largest_packets_fits() {
        let mut out = Out::default();
        for n in 0..256 {
            assert!(out.packet(n, 262_144, LinkType::ETHERNET, &[7; 262_144]), "{n}");
        }
        let (bytes, more) = out.hand();
        assert!(MOST < 17 << 20 && bytes.len() == 256 * (FRAME + MAX_PAYLOAD) && !more);
    }

    #[test]
    fn room_is_made_between_calls() {
        let mut out = Out::default();
        let many = |out: &mut Out, n: u64| (0..n).filter(|n| out.write(&Number(*n))).count();
        assert_eq!(many(&mut out, 40_000), 40_000);
        out.hand();
        out.make_room(false);
        assert_eq!((many(&mut out, 100_000), out.area.len()), (100_000, 2 * AREA));
        out.hand();
        out.make_room(false);
        out.make_room(true);
        assert_eq!((many(&mut out, 1_000_000), out.area.len()), (1_000_000, MOST));
        assert_eq!(frames(&mut out).len(), 1_000_000);
    }

    #[test]
    fn one_call_gets_no_more_messages_than_a_host_takes() {
        let mut out = Out::default();
        (0..10_000).for_each(|_| out.message(b"x"));
        let calls = [0; 4].map(|_| {
            let (bytes, more) = out.hand();
            (bytes.len() / (FRAME + 1), more)
        });
        assert_eq!(calls, [(4096, true), (4096, true), (1808, false), (0, false)]);
    }

    #[test]
    fn what_no_frame_can_hold_is_counted_as_lost() {
        let mut out = Out::default();
        let long = "é".repeat(40_000);
        assert!(!out.row(0).text(&long).text(&long).finish());
        out.message(&[0; MAX_PAYLOAD + 1]);
        assert!(out.row(0).text(&long).finish());
        let frames = frames(&mut out);
        assert_eq!((frames[0].0, frames[0].1.len()), (0, 2 + 65_534), "cut at a character");
        assert_eq!(frames[1], (LOST, 2u64.to_le_bytes().to_vec()));
    }
}
