use crate::area::Area;
use crate::batch::Ip;
use crate::record::Record;
use flame_abi::LinkType;
use flame_abi::output::{FRAME, LOST, MAX_PAYLOAD, MESSAGE, PACKET, PACKET_HEAD};

/// Bytes of the first output area. One call hands over one area; what does not fit waits in further ones.
pub const AREA: usize = 256 << 10;
/// Further areas double up to this, below the most that a host takes from one call.
const LARGEST: usize = 16 << 20;
/// Full areas that can wait: as many as a module's memory has room for.
const WAITING: usize = 64;
/// Messages that a host takes from one call.
const MESSAGES: u32 = 4096;
/// Kept free for the frame that tells what was lost.
const RESERVE: usize = FRAME + 8;

/// Where a call's rows and messages go. There is room for all of them: when an area is full another is taken, and the
/// host is given one after the other. Rows are lost, and counted, only when the instance's memory is used up.
pub struct Out {
    area: Area,
    len: usize,
    /// In this area.
    messages: u32,
    /// Full areas and what of them is used: `waiting` of them from `first` on, oldest first, in a ring.
    full: [Option<(Area, usize)>; WAITING],
    first: usize,
    waiting: usize,
    /// What was handed over last, which the host may still read.
    handed: Option<(Area, usize)>,
    lost: u64,
}

impl Default for Out {
    fn default() -> Self {
        Self::with_area(AREA)
    }
}

impl Out {
    /// With a first area of so many bytes.
    pub fn with_area(bytes: usize) -> Self {
        Self {
            area: Area::new(bytes).expect("an instance has memory for its output"),
            len: 0,
            messages: 0,
            full: [const { None }; WAITING],
            first: 0,
            waiting: 0,
            handed: None,
            lost: 0,
        }
    }

    /// Writes a row, for example `out.write(&Total { packets, bytes })` with what [`crate::manifest!`] made. Whether it was
    /// written: it is lost, and counted, if the instance has no memory left or the row is longer than 65,536 bytes.
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

    /// Begins a row of table number `table` of the manifest; give its columns in order, then
    /// [`Row::finish`]. [`Out::write`] does the same with names and types that the compiler checks.
    #[inline]
    pub fn row(&mut self, table: u16) -> Row<'_> {
        // How long it will be is not known yet.
        let start = self.place(MAX_PAYLOAD);
        let at = start.map_or(self.len, |start| start + FRAME);
        Row { start: start.unwrap_or(self.len), at, kind: table, full: start.is_none(), counted: start.is_none(), out: self }
    }

    /// Sends bytes to the slow instance, at most 65,536.
    pub fn message(&mut self, bytes: &[u8]) {
        if bytes.len() > MAX_PAYLOAD {
            self.lost += 1;
            return;
        }
        let start = if self.messages < MESSAGES { self.place(bytes.len()) } else { self.another(bytes.len()) };
        let Some(start) = start else { return };
        self.area[start + FRAME..start + FRAME + bytes.len()].copy_from_slice(bytes);
        self.close(start, MESSAGE, bytes.len());
        self.messages += 1;
    }

    /// Writes a packet to the capture file that the user named (`module.toml` needs `packets = true`). Of one
    /// longer than 65,520 bytes only as many are kept.
    pub fn packet(&mut self, ts_ns: u64, wire_len: u32, link: LinkType, bytes: &[u8]) -> bool {
        self.packet_changed(ts_ns, wire_len, link, bytes, |bytes| bytes.len())
    }

    /// As [`Out::packet`], after `change` was made to the copy; it says how many bytes of it are written.
    #[inline]
    pub fn packet_changed(
        &mut self,
        ts_ns: u64,
        wire_len: u32,
        link: LinkType,
        bytes: &[u8],
        change: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
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

    /// Bytes of payload that fit still before another area is taken. A call with very much output may stop when there is
    /// little room and return [`crate::Progress::More`], so that it needs no memory but this area.
    pub fn room(&self) -> usize {
        self.area.len().saturating_sub(self.len + FRAME + RESERVE)
    }

    /// Where a frame with so much payload begins, or nothing, which is counted.
    #[inline]
    fn place(&mut self, payload: usize) -> Option<usize> {
        if self.len + FRAME + payload + RESERVE > self.area.len() {
            return self.another(payload);
        }
        Some(self.len)
    }

    #[cold]
    #[inline(never)]
    fn another(&mut self, payload: usize) -> Option<usize> {
        crate::cold();
        let least = FRAME + payload + RESERVE;
        let larger = (self.area.len() * 2).min(LARGEST).max(least);
        let area = Area::new(larger).or_else(|| Area::new(least.max(AREA)));
        let place = self.full.get_mut((self.first + self.waiting) % WAITING);
        match (area, place) {
            (Some(area), Some(place)) if self.waiting < WAITING => {
                let full = std::mem::replace(&mut self.area, area);
                if self.len > 0 {
                    *place = Some((full, self.len));
                    self.waiting += 1;
                }
                (self.len, self.messages) = (0, 0);
                Some(0)
            }
            _ => {
                self.lost += 1;
                None
            }
        }
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

    /// What goes to the host next: the oldest area, with a note of what was lost; and whether there is more. The bytes
    /// stay until the next call of this.
    #[doc(hidden)]
    pub fn hand(&mut self) -> (&[u8], bool) {
        let lost = std::mem::take(&mut self.lost);
        if self.waiting > 0 {
            self.handed = self.full.get_mut(self.first).and_then(Option::take);
            self.first = (self.first + 1) % WAITING;
            self.waiting -= 1;
            let more = self.waiting > 0 || self.len > 0;
            let Some((area, len)) = &mut self.handed else { return (&[], more) };
            *len += note(lost, &mut area[*len..]);
            return (&area[..*len], more);
        }
        let len = std::mem::take(&mut self.len);
        self.messages = 0;
        let len = len + note(lost, &mut self.area[len..]);
        (&self.area[..len], false)
    }
}

/// Writes how many records were lost, if any were; the bytes it took.
fn note(lost: u64, to: &mut [u8]) -> usize {
    let Some(to) = to.first_chunk_mut::<RESERVE>().filter(|_| lost > 0) else { return 0 };
    to[..4].copy_from_slice(&8u32.to_le_bytes());
    to[4..6].copy_from_slice(&LOST.to_le_bytes());
    to[6..8].fill(0);
    to[FRAME..].copy_from_slice(&lost.to_le_bytes());
    RESERVE
}

/// A row in the making; dropping it without [`Row::finish`] writes nothing.
#[must_use = "a row is written by finish()"]
pub struct Row<'a> {
    out: &'a mut Out,
    start: usize,
    at: usize,
    kind: u16,
    full: bool,
    /// As lost.
    counted: bool,
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

    /// Nanoseconds since 1970.
    pub fn time(self, ns: u64) -> Self {
        self.u64(ns)
    }

    /// Nanoseconds.
    pub fn duration(self, ns: i64) -> Self {
        self.i64(ns)
    }

    /// Number of the word in the column's `values`.
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

    /// At most 65,535 bytes; the rest is cut off at a character.
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

    /// Whether the row was written; else it is counted as lost.
    #[inline]
    pub fn finish(self) -> bool {
        let len = self.at.saturating_sub(self.start + FRAME);
        if self.full || len > MAX_PAYLOAD {
            self.out.lost += u64::from(!self.counted);
            return false;
        }
        self.out.close(self.start, self.kind, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames that a call hands over, area by area.
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

    #[test]
    fn a_tiny_area_loses_nothing_and_keeps_the_order() {
        let mut out = Out::with_area(64);
        for n in 0..10_000u64 {
            match n % 3 {
                0 => assert!(out.row(1).u64(n).text("text").finish()),
                1 => out.message(&n.to_le_bytes()),
                _ => assert!(out.packet(n, 60, LinkType::ETHERNET, &[7; 100])),
            }
        }
        let frames = frames(&mut out);
        assert_eq!(frames.len(), 10_000);
        for (n, (kind, payload)) in (0u64..).zip(&frames) {
            assert_eq!(*kind, [1, MESSAGE, PACKET][(n % 3) as usize], "{n}");
            assert_eq!(payload[..8], n.to_le_bytes(), "{n}");
        }
        assert_eq!(out.hand(), (&[][..], false));
    }

    #[test]
    fn an_area_holds_as_many_messages_as_a_host_takes() {
        let mut out = Out::default();
        (0..10_000).for_each(|_| out.message(b"x"));
        assert_eq!([0; 4].map(|_| out.hand().0.len() / (FRAME + 1)), [4096, 4096, 1808, 0]);
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
