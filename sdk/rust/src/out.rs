mod reserved;

pub use reserved::Reserved;

use crate::Progress;
use crate::area::Area;
use crate::batch::Ip;
use crate::record::Record;
use flame_abi::output::{
    CHANNEL, CHANNEL_HEAD, COPY, FRAME, HELD, HOLD, LEAST_KIND, LEAST_SENT, LOST, MADE, MAX_LOG, MAX_PAYLOAD,
    MESSAGE, MOST_SENT, PACKET, PACKET_HEAD, RELEASE, SEND, SEND_HEAD,
};
use flame_abi::{LinkType, MAX_PACKET};
use std::iter::Peekable;

/// The bytes of the texts that wait until a call returns, and of the note of those that were dropped.
pub(crate) const TEXT_BYTES: usize = 9 * (FRAME + MAX_LOG);

/// Frames of texts.
pub(crate) type TextBytes = Option<Box<[u8; TEXT_BYTES]>>;

/// The size of the first area in bytes: 4 KiB for each packet of a batch. Only the written part of an area is
/// touched.
const AREA: usize = 1 << 20;
/// The smallest size, in bytes, with which an instance with little memory begins.
const LEAST: usize = 128 << 10;
/// The size of each further area in bytes. The longest packet fits.
const FURTHER: usize = 512 << 10;
/// The largest number of areas that wait for the host: half a GiB.
const AREAS: usize = 1024;
/// The number of messages that a host takes from one area.
const MESSAGES: u32 = 4096;
/// Bytes that are kept free for the frame that reports lost records.
const RESERVE: usize = FRAME + 8;

/// The output of a call: rows, messages and packets, as many as are written. The first area holds 1 MiB. When
/// it is full, the next one begins, and the host takes them one after the other when the call has returned.
///
/// Until then all output of a call is in the instance's memory (`limits.memory_mib`). What no longer fits
/// there, and rows longer than 65,536 bytes, are lost and counted. [`Out::write_all`] needs memory for one
/// area only.
pub struct Out {
    /// The current area.
    area: Area,
    len: usize,
    /// The number of messages in the current area.
    messages: u32,
    /// The full areas, of which the first `count` wait for the host. The others are kept for later calls.
    full: Box<[Full]>,
    count: usize,
    /// The number of full areas that were handed over.
    given: usize,
    lost: u64,
    /// The table of all lost rows and 1, or 0 if they are of several tables.
    lost_of: u16,
    /// The texts for the operator.
    texts: TextBytes,
    texts_len: usize,
}

/// An area that is full.
struct Full {
    area: Option<Area>,
    len: usize,
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
        let full = (0..AREAS).map(|_| Full { area: None, len: 0 }).collect();
        Self {
            area,
            len: 0,
            messages: 0,
            full,
            count: 0,
            given: 0,
            lost: 0,
            lost_of: 0,
            texts: None,
            texts_len: 0,
        }
    }

    /// Returns an output whose first area has `bytes` bytes.
    #[cfg(test)]
    pub(crate) fn with_area(bytes: usize) -> Self {
        Self::new(Area::new(bytes).expect("there is memory"))
    }

    /// Begins the next area. Returns false if there is no memory for it.
    ///
    /// Its cost is constant, and so is the cost of each row.
    #[cold]
    #[inline(never)]
    fn next_area(&mut self) -> bool {
        crate::cold();
        let Some(full) = self.full.get_mut(self.count) else { return false };
        // The areas of earlier calls come first.
        let Some(area) = full.area.take().or_else(|| Area::new(FURTHER)) else { return false };
        *full = Full { area: Some(std::mem::replace(&mut self.area, area)), len: self.len };
        self.count += 1;
        (self.len, self.messages) = (0, 0);
        true
    }

    /// Writes a row, for example `out.write(&Total { packets, bytes })` with a type of [`crate::manifest!`].
    /// Returns whether it was written. A row is lost, and counted, if the instance has no memory left for it
    /// or it is longer than 65,536 bytes.
    #[inline]
    pub fn write<'a, R: Record<'a>>(&mut self, row: &R) -> bool {
        let size = row.size();
        if size > MAX_PAYLOAD {
            self.lose(R::TABLE);
            return false;
        }
        if self.place(size, R::TABLE).is_none() {
            return false;
        }
        self.put(row, size);
        true
    }

    /// Writes a row of `size` bytes at the end of the current area, which has room for it.
    #[inline]
    fn put<'a, R: Record<'a>>(&mut self, row: &R, size: usize) {
        let start = self.len;
        row.put(&mut self.area[start + FRAME..start + FRAME + size]);
        self.close(start, R::TABLE, size);
    }

    /// Writes any number of rows, from [`Module::tick`] or [`Module::end`], one area at a time. Return the
    /// result of this method, and the rest follows in further calls. The rows are kept in between, for
    /// example in a field of the module.
    ///
    /// [`Module::tick`]: crate::Module::tick
    /// [`Module::end`]: crate::Module::end
    pub fn write_all<'a, R: Record<'a>>(&mut self, rows: &mut Peekable<impl Iterator<Item = R>>) -> Progress {
        while let Some(row) = rows.peek() {
            if row.size() > self.room() && (self.len > 0 || self.count > 0) {
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
        // Its size is not known yet, so there must be room for the longest.
        if self.len + FRAME + MAX_PAYLOAD + RESERVE > self.area.len() && self.len > 0 {
            self.next_area();
        }
        let start = self.len;
        let full = start + FRAME + RESERVE > self.area.len();
        let at = if full { start } else { start + FRAME };
        Row { out: self, start, at, kind: table, full }
    }

    /// Sends at most 65,536 bytes to the slow instance.
    pub fn message(&mut self, bytes: &[u8]) {
        if bytes.len() > MAX_PAYLOAD || (self.messages == MESSAGES && !self.next_area()) {
            self.lose(MESSAGE);
            return;
        }
        let Some(start) = self.place(bytes.len(), MESSAGE) else { return };
        self.area[start + FRAME..start + FRAME + bytes.len()].copy_from_slice(bytes);
        self.close(start, MESSAGE, bytes.len());
        self.messages += 1;
    }

    /// Takes the texts of this call, `len` bytes of `texts`, and gives back what held those of another.
    pub(crate) fn exchange_texts(&mut self, texts: &mut TextBytes, len: usize) {
        std::mem::swap(&mut self.texts, texts);
        self.texts_len = len;
    }

    /// Writes a packet to the capture file that the user named (`module.toml` needs `packets = true`). A
    /// packet longer than 65,520 bytes is truncated to that length.
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
        let Some(start) = self.place(PACKET_HEAD + bytes.len(), PACKET) else { return false };
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

    /// Sends packet `index` of the batch from the output `port`, as it came. A packet of [`Forward::push`]
    /// that is not sent is dropped.
    ///
    /// [`Forward::push`]: crate::Forward::push
    #[inline]
    pub fn send(&mut self, index: usize, port: u32) -> bool {
        self.send_bytes(within_batch(index), port, &[], |_| 0)
    }

    /// Sends packet `index` of the batch with other bytes, which needs `modify` in the manifest and in the
    /// grant: `bytes` after `change` has modified the copy; it returns the number of bytes to send. Unless
    /// the module sees the whole packet (`expose = "all"`), they are as many as it sees, and the rest of the
    /// packet follows them. More than 65,532 bytes are not sent, and counted as lost.
    #[inline]
    pub fn send_changed(
        &mut self,
        index: usize,
        port: u32,
        bytes: &[u8],
        change: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        self.send_bytes(within_batch(index), port, no_longer(bytes), change)
    }

    /// Sends a new packet from the output `port`, which needs `transmit` in the manifest and in the grant.
    #[inline]
    pub fn make(&mut self, port: u32, bytes: &[u8]) -> bool {
        self.send_bytes(MADE, port, no_longer(bytes), |bytes| bytes.len())
    }

    /// Holds packet `index` of the batch, as it came, in `slot`, which is below `held` of `[ports]` in the
    /// manifest. Under a grant it needs the right `hold`. A packet that was in the slot is dropped.
    ///
    /// The packet itself is kept, not a copy, and its bytes are out of reach until it is sent. Each packet is
    /// sent or held once. The element's `ON_EVICT` states what becomes of the packets that an instance holds
    /// when it ends.
    pub fn hold(&mut self, index: usize, slot: u16) -> bool {
        self.held(HOLD, within_batch(index), slot)
    }

    /// Sends the packet in `slot` from the output `port`, and empties the slot. An empty slot sends nothing.
    pub fn release(&mut self, slot: u16, port: u32) -> bool {
        self.held(RELEASE, slot, port.min(u32::from(u16::MAX)) as u16)
    }

    /// Sends a copy of the packet in `slot` from the output `port`, which needs `transmit` in the manifest
    /// and in the grant.
    pub fn copy(&mut self, slot: u16, port: u32) -> bool {
        self.held(COPY, slot, port.min(u32::from(u16::MAX)) as u16)
    }

    fn held(&mut self, kind: u16, first: u16, second: u16) -> bool {
        let Some(start) = self.place(HELD, kind) else { return false };
        let payload = &mut self.area[start + FRAME..start + FRAME + HELD];
        payload[..2].copy_from_slice(&first.to_le_bytes());
        payload[2..].copy_from_slice(&second.to_le_bytes());
        self.close(start, kind, HELD);
        true
    }

    /// Sends a link-layer frame on a channel, by the number of its entry in `[[channels]]` of `module.toml`,
    /// which under a grant needs the right `send`: a whole Ethernet frame of 14 to 9,216 bytes with its
    /// checksums, without the check sequence at its end. Returns false, and counts the frame as lost, if it
    /// is of another length or there is no memory for it.
    ///
    /// The frame leaves after the call has returned, in order with others of the channel and within its rate.
    /// The host drops, and counts, those that the filters of the manifest and of the grant do not let out,
    /// and those for which its queue has no room.
    pub fn send_on(&mut self, channel: u16, frame: &[u8]) -> bool {
        if !(LEAST_SENT..=MOST_SENT).contains(&frame.len()) {
            self.lose(CHANNEL);
            return false;
        }
        let mut head = [0; CHANNEL_HEAD];
        head[..2].copy_from_slice(&channel.to_le_bytes());
        self.put_frame(CHANNEL, &head, frame)
    }

    /// Writes a frame of this kind. Returns false, and counts it as lost, if there is no memory for it.
    pub(crate) fn put_frame(&mut self, kind: u16, head: &[u8], bytes: &[u8]) -> bool {
        let length = head.len() + bytes.len();
        let Some(start) = self.place(length, kind) else { return false };
        let to = &mut self.area[start + FRAME..start + FRAME + length];
        let (to_head, to_bytes) = to.split_at_mut(head.len());
        to_head.copy_from_slice(head);
        to_bytes.copy_from_slice(bytes);
        self.close(start, kind, length);
        true
    }

    #[inline]
    fn send_bytes(
        &mut self,
        index: u16,
        port: u32,
        bytes: &[u8],
        change: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let Some(start) = self.place(SEND_HEAD + bytes.len(), SEND) else { return false };
        let frame = &mut self.area[start + FRAME..start + FRAME + SEND_HEAD + bytes.len()];
        let (head, copy) = frame.split_at_mut(SEND_HEAD);
        head[..2].copy_from_slice(&index.to_le_bytes());
        // An output that no manifest has stays one, and the host refuses it.
        head[2..].copy_from_slice(&(port.min(u32::from(u16::MAX)) as u16).to_le_bytes());
        copy.copy_from_slice(bytes);
        let written = change(copy).min(bytes.len());
        // A packet that no frame holds is dropped. Cut, it could leave as another packet.
        if written > MAX_PAYLOAD - SEND_HEAD {
            self.lose(SEND);
            return false;
        }
        self.close(start, SEND, SEND_HEAD + written);
        true
    }

    /// Returns the number of payload bytes that fit into the current area. Returning [`Progress::More`] from
    /// a tick or the end, when this becomes short, takes less memory than further areas.
    pub fn room(&self) -> usize {
        self.area.len().saturating_sub(self.len + FRAME + RESERVE)
    }

    /// Counts a frame of this kind, that of a row being its table, as lost.
    #[cold]
    pub(crate) fn lose(&mut self, kind: u16) {
        // Other kinds than tables have the largest numbers.
        let table = if kind < LEAST_KIND { kind + 1 } else { 0 };
        if self.lost == 0 {
            self.lost_of = table;
        } else if self.lost_of != table {
            self.lost_of = 0;
        }
        self.lost += 1;
    }

    /// Returns the start of a frame with `payload` bytes of payload, or `None`, which is counted as a loss.
    #[inline]
    fn place(&mut self, payload: usize, kind: u16) -> Option<usize> {
        let fits = |out: &Self| out.len + FRAME + payload + RESERVE <= out.area.len();
        if fits(self) || (self.next_area() && fits(self)) {
            return Some(self.len);
        }
        self.lose(kind);
        None
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

    /// Returns the next part of the output for the host, and whether another one follows: the full areas, the
    /// texts, and the last area. The bytes are valid until the next write.
    #[doc(hidden)]
    pub fn hand(&mut self) -> (&[u8], bool) {
        let given = self.given;
        if given < self.count
            && let Some(Full { area: Some(area), len }) = self.full.get(given)
        {
            self.given += 1;
            return (&area[..*len], true);
        }
        if self.texts_len > 0
            && let Some(texts) = &self.texts
        {
            let len = std::mem::take(&mut self.texts_len);
            return (&texts[..len.min(texts.len())], true);
        }
        let (lost, table) = (std::mem::take(&mut self.lost), self.lost_of);
        let end = self.len + note(lost, table, &mut self.area[self.len..]);
        (self.len, self.messages, self.count, self.given) = (0, 0, 0, 0);
        (&self.area[..end], false)
    }
}

/// Returns an index as the host reads it. An index that no batch has stays so, and the host refuses it.
fn within_batch(index: usize) -> u16 {
    index.min(usize::from(MADE) - 1) as u16
}

/// Returns bytes whose copy has a bound. No packet is longer, and what is cut here is too long for a frame.
#[inline]
fn no_longer(bytes: &[u8]) -> &[u8] {
    &bytes[..crate::limit(bytes.len(), MAX_PACKET)]
}

/// Writes the number of lost records, if there are any, with their table and 1, or 0. Returns the bytes that
/// it took.
fn note(lost: u64, table: u16, to: &mut [u8]) -> usize {
    let Some(to) = to.first_chunk_mut::<RESERVE>().filter(|_| lost > 0) else { return 0 };
    to[..4].copy_from_slice(&8u32.to_le_bytes());
    to[4..6].copy_from_slice(&LOST.to_le_bytes());
    to[6..8].copy_from_slice(&table.to_le_bytes());
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
            self.out.lose(self.kind);
            return false;
        }
        self.out.close(self.start, self.kind, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all frames that a call hands over.
    pub fn frames(out: &mut Out) -> Vec<(u16, Vec<u8>)> {
        let output = crate::testing::output(out);
        crate::testing::frames(&output).map(|(kind, payload)| (kind, payload.to_vec())).collect()
    }

    pub struct Number(pub u64);

    impl Record<'_> for Number {
        const TABLE: u16 = 1;
        const MAX_SIZE: usize = 8;
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

    /// Returns the numbers in frames of table 1.
    pub fn numbers(frames: &[(u16, Vec<u8>)]) -> Vec<u64> {
        let number = |(kind, row): &(u16, Vec<u8>)| (*kind == 1).then(|| Number::read(row))?;
        frames.iter().map(|frame| number(frame).map_or(u64::MAX, |n| n.0)).collect()
    }

    #[test]
    fn write_all_takes_one_area_at_a_time() {
        // There is room for three rows and the note of lost records.
        let mut out = Out::with_area(3 * 16 + RESERVE);
        let mut rows = (0..10_000).map(Number).peekable();
        let (mut all, mut calls) = (Vec::new(), 0);
        loop {
            let progress = out.write_all(&mut rows);
            assert_eq!(out.count, 0);
            all.extend(frames(&mut out));
            calls += 1;
            if progress == Progress::Done {
                break;
            }
        }
        assert_eq!((numbers(&all), calls), ((0..10_000).collect(), 3334));
        // A row that the first area does not hold goes to the next.
        let mut small = Out::with_area(20);
        assert_eq!(small.write_all(&mut [Number(1), Number(2)].into_iter().peekable()), Progress::Done);
        assert_eq!(numbers(&frames(&mut small)), [1, 2]);
    }

    #[test]
    fn a_full_area_is_followed_by_another() {
        let mut out = Out::with_area(3 * 16 + RESERVE);
        for round in 0..3 {
            for n in 0..200_000 {
                let is_written = if n % 2 == 0 { out.write(&Number(n)) } else { out.row(1).u64(n).finish() };
                assert!(is_written, "{round} {n}");
            }
            assert!(numbers(&frames(&mut out)).into_iter().eq(0..200_000), "{round}");
            // All areas but the current one are kept for the next call.
            assert_eq!((out.full.iter().filter(|full| full.area.is_some()).count(), out.count), (7, 0));
        }
        assert_eq!(out.hand(), (&[][..], false));
    }

    #[test]
    fn what_no_memory_is_left_for_is_counted() {
        let mut out = Out::with_area(3 * 16 + RESERVE);
        out.count = AREAS;
        let written = (0..5).filter(|n| out.write(&Number(*n))).count();
        assert!(!out.row(1).u64(5).finish());
        out.message(&[0; 8]);
        out.count = 0;
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
        let frames = frames(&mut out);
        assert!(frames.len() == 256 && frames.iter().all(|(_, bytes)| bytes.len() == MAX_PAYLOAD));
    }

    #[test]
    fn a_packet_to_send_that_no_frame_holds_is_lost_and_not_cut() {
        let mut out = Out::default();
        let long = vec![7; 262_144];
        assert!(!out.send_changed(0, 0, &long, |bytes| bytes.len()));
        assert!(!out.make(0, &long[..MAX_PAYLOAD - SEND_HEAD + 1]));
        assert!(out.send_changed(1, 0, &long, |_| MAX_PAYLOAD - SEND_HEAD));
        let frames = frames(&mut out);
        assert_eq!((frames[0].0, frames[0].1.len()), (SEND, MAX_PAYLOAD));
        assert_eq!(frames[1..], [(LOST, 2u64.to_le_bytes().to_vec())]);
    }

    #[test]
    fn a_frame_for_a_channel_is_whole_or_lost() {
        let mut out = Out::default();
        assert!(out.send_on(1, &[7; 14]) && out.send_on(0, &[8; 9216]));
        assert!(!out.send_on(0, &[0; 13]) && !out.send_on(0, &[0; 9217]));
        let frames = frames(&mut out);
        assert_eq!(frames[0], (CHANNEL, [&[1, 0, 0, 0][..], &[7; 14]].concat()));
        assert_eq!((frames[1].0, frames[1].1.len()), (CHANNEL, 9220));
        assert_eq!(frames[2..], [(LOST, 2u64.to_le_bytes().to_vec())]);
    }

    #[test]
    fn one_area_has_no_more_messages_than_a_host_takes() {
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
