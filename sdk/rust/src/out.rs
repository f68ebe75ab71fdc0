use crate::batch::Ip;
use flame_abi::LinkType;
use flame_abi::output::{FRAME, LOST, MAX_PAYLOAD, MESSAGE, PACKET, PACKET_HEAD};

/// Bytes of the output area: what one call can give out in rows and messages.
pub const AREA: usize = 256 << 10;
/// What it grows to for packets: a batch of the largest, the last one before it is cut.
const PACKETS_AREA: usize = 256 * (FRAME + MAX_PAYLOAD) + (256 << 10) + RESERVE;
/// Kept free for the frame that tells what was lost.
const RESERVE: usize = FRAME + 8;

/// Where a call's rows and messages go.
pub struct Out {
    area: Vec<u8>,
    len: usize,
    lost: u64,
}

impl Default for Out {
    fn default() -> Self {
        Self { area: vec![0; AREA], len: 0, lost: 0 }
    }
}

impl Out {
    /// Begins a row of table number `table` of the manifest; give its columns in order, then
    /// [`Row::finish`].
    #[inline]
    pub fn row(&mut self, table: u16) -> Row<'_> {
        let start = self.len;
        let full = start + FRAME + RESERVE > self.area.len();
        let mut row = Row { at: start + FRAME, out: self, start, kind: table, full };
        if row.full {
            row.at = start;
        }
        row
    }

    /// Sends bytes to the slow instance.
    pub fn message(&mut self, bytes: &[u8]) {
        let mut row = self.row(MESSAGE);
        row.put(bytes);
        row.finish();
    }

    /// Writes a packet to the capture file that the user named (`module.toml` needs `packets = true`). Of one
    /// longer than 65,520 bytes only as many are kept. The area grows until it holds a batch of such packets.
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
        let needed = self.len + FRAME + PACKET_HEAD + bytes.len() + RESERVE;
        if needed > self.area.len() && needed <= PACKETS_AREA {
            self.area.resize(needed.next_power_of_two().min(PACKETS_AREA), 0);
        }
        let mut row = self.row(PACKET).u64(ts_ns).u32(wire_len).u16(link.0).u16(0);
        let start = row.at;
        row.put(bytes);
        if !row.full {
            let written = change(&mut row.out.area[start..row.at]);
            row.at = start + written.min(bytes.len()).min(MAX_PAYLOAD - PACKET_HEAD);
        }
        row.finish()
    }

    /// Bytes of payload that certainly fit still.
    pub fn room(&self) -> usize {
        self.area.len().saturating_sub(self.len + FRAME + RESERVE)
    }

    /// What was written since the last call, with a note of what was lost.
    #[doc(hidden)]
    pub fn seal(&mut self) -> &[u8] {
        if self.lost > 0 {
            let at = self.len;
            let mut frame = [0; RESERVE];
            frame[..4].copy_from_slice(&8u32.to_le_bytes());
            frame[4..6].copy_from_slice(&LOST.to_le_bytes());
            frame[FRAME..].copy_from_slice(&self.lost.to_le_bytes());
            self.area[at..at + RESERVE].copy_from_slice(&frame);
            self.len += RESERVE;
            self.lost = 0;
        }
        let len = std::mem::take(&mut self.len);
        &self.area[..len]
    }
}

/// A row in the making; dropping it without [`Row::finish`] writes nothing.
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
        let mut end = text.len().min(MAX_PAYLOAD - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
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

    /// Whether the row was written; if the area is full it counts as lost.
    #[inline]
    pub fn finish(self) -> bool {
        let len = self.at.saturating_sub(self.start + FRAME);
        if self.full || len > MAX_PAYLOAD {
            self.out.lost += 1;
            return false;
        }
        let head = &mut self.out.area[self.start..self.start + FRAME];
        head[..4].copy_from_slice(&(len as u32).to_le_bytes());
        head[4..6].copy_from_slice(&self.kind.to_le_bytes());
        head[6..8].fill(0);
        self.out.len = self.at;
        true
    }
}
