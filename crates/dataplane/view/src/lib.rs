//! What one grant lets a module see: which packets (*select*), which bytes (*expose*), in what form
//! (*transform*).
//!
//! [`View::copy`] reads packets and their descriptors and writes what may be seen of them, packed,
//! with descriptors of its own. Nothing else of a packet is written anywhere, not even for a moment.
//! A view that [hides nothing](View::hides_nothing) can instead [select](View::select) from the
//! packets where they lie.
//!
//! **Exposed bytes** run from the start of the packet. *Headers* end behind the transport header;
//! behind the IP headers when there is none; behind link header and tags when the packet is not IP.
//! Packets of link types that are not decoded have no headers: 0 bytes.
//!
//! **Under any transform, exposure ends where understanding ends**, so that no address hides in what was not
//! parsed: payload of TCP, UDP and ICMP echo is exposed as granted unless it is a tunnel; what other
//! protocols, later fragments and malformed headers hold is not. See [`flame_transform`] for the fields that
//! are found.
//!
//! # What is given out
//!
//! The *shown packet* is made in one place (`shape.rs`) from the true one: its first bytes, as the transforms
//! leave them, and what a descriptor tells of it. Filters are evaluated on the true packet only if they are
//! [trusted](flame_plan::TrustedFilter); all others, which have another type, on the shown one. Everything
//! else that leaves this crate is a function of shown packets and of keys:
//!
//! | output | function of |
//! | --- | --- |
//! | bytes | the exposed bytes, transformed; at most [`ViewSpec::longest`] of them |
//! | checksums in them | right for the shown bytes if all that they cover is shown and they were right (left alone if nothing they cover was changed); zero otherwise. No flag says which: 0 means that there is none |
//! | options in them | those known to hold nothing hidden, where payload is hidden (TCP) or addresses are changed (IPv4, IPv6, TCP); padding in place of others |
//! | bytes behind a datagram | shown only where nothing is hidden |
//! | headers that were cut off | as far as they tell nothing of what was not captured: as if it were hidden |
//! | what NFLOG and radiotap note of a packet: times, numbers, signals, users | shown only where no time and no packet is hidden and no field is changed |
//! | `ts_ns` | the time, rounded down to the resolution |
//! | `addr` | the lengths of the bytes shown before |
//! | `hash` | the shown addresses, ports and protocol, for `none` those that `headers` would show; under the view's key where anything is hidden, 0 for `none` without a key |
//! | `wire_len` | the length on the wire; 0 for `count` |
//! | `cap_len` | the number of shown bytes |
//! | `l3`, `l4`, `l4_len` | where the headers lie in the shown bytes |
//! | `proto`, `tcp_flags`, `flags` | the headers, which every exposure but `count` tells; `TRANSPORT` is cleared if the header is not wholly shown, `TRUNCATED` set if it was cut at the longest |
//! | which packets | trusted filters; sampling by the sample key, the time at the resolution (or the coarser of those of policy and root, where a credential was narrowed) and the place among the packets of that time; filters of others on the shown packet |
//! | [`Written::packets`], [`Written::bytes`], [`Written::eligible`] | those |
//! | where [`View::copy_some`] stops | those: blocks of a view that hides something are cut by what was shown |
//!
//! Packets that trusted filters or sampling leave out are hidden, but [`Written::taken`] counts them: it is
//! for the caller's loop and is not to be given out.

mod coarse;
mod expose;
mod select;
mod shape;

pub use flame_transform::{FlowHash, Key, KeyError};

use coarse::Coarse;
use flame_abi::{Descriptor, LinkType, flags};
use flame_filter::{FilterError, ShownPacket, TruePacket};
use flame_plan::{Expose, ShownFilter, TrustedFilter, ViewSpec};
use flame_transform::{Rewriter, TransformError};
use select::Select;
use shape::{Shape, limit};

/// One view, with its caches: one per worker.
pub struct View {
    select: Select<TrustedFilter>,
    /// Asked of what is shown.
    shown: Select<ShownFilter>,
    /// What is shown to those.
    shown_expose: Expose,
    expose: Expose,
    shape: Shape,
    quantize: Coarse,
}

/// What [`View::copy`] or [`View::select`] wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets of the input that were dealt with.
    pub taken: usize,
    /// Packets that are there to be shown: they passed the trusted filters and are in the sample.
    pub eligible: u32,
    /// Descriptors; the packets that are missing were filtered out.
    pub packets: u32,
    /// Bytes of packets.
    pub bytes: usize,
}

/// Why a view cannot be made or went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Transform(#[from] TransformError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(
        "filter {filter:?} asks for lengths, which expose = count does not show: expose none, or another filter"
    )]
    Length { filter: String },
    /// A defect of the caller: a descriptor outside its block, or a slot smaller than a block.
    #[error("packet {packet} of a block: {reason} (a defect here, not in the input)")]
    Internal { packet: usize, reason: &'static str },
}

/// Descriptors made before they are written, so that flow hashes are keyed many at a time and no slot ever
/// holds others.
const CHUNK: usize = 32;

impl View {
    /// Checks everything but the filter's meaning for link types other than the first that fits. The view's
    /// own key goes before `key`.
    pub fn new(spec: &ViewSpec, key: Option<&Key>) -> Result<Self, ViewError> {
        let own = spec.key.as_ref().map(|key| Key::new(key.0));
        let mut rewriter = Rewriter::hiding(&spec.transforms, own.as_ref().or(key))?;
        // Where times or packets are hidden, nothing of them stands in headers.
        if spec.resolution_ns > 1 || spec.sample > 1 || (own.is_some() && !spec.select.is_empty()) {
            rewriter.hide_notes();
        }
        let shown = Select::new(&spec.select_shown)?;
        let shown_expose = spec.select_expose.map_or(spec.expose, |e| e.max(spec.expose));
        if shown_expose == Expose::Count
            && let Some(filter) = shown.reads_length()
        {
            return Err(ViewError::Length { filter: filter.to_string() });
        }
        let hides_bytes = spec.expose != Expose::All || rewriter.changes_any();
        Ok(Self {
            select: Select::new(&spec.select)?,
            shown,
            shown_expose,
            expose: spec.expose,
            quantize: Coarse::new(spec, key, hides_bytes),
            shape: Shape { rewriter, snaplen: spec.snaplen, scratch: Vec::new() },
        })
    }

    /// Whether every byte of every selected packet is shown as it is, and so is its descriptor.
    pub fn hides_nothing(&self) -> bool {
        self.expose == Expose::All && !self.shape.rewriter.changes_any() && self.quantize.is_none()
    }

    /// Whether every packet is shown.
    pub fn selects_all(&self) -> bool {
        self.select.is_all() && self.shown.is_all()
    }

    /// Descriptors of the selected packets, for packets that stay where they are: `base` is the
    /// address of `data` in the module's memory. Only for a view that hides nothing.
    pub fn select(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &[u8],
        out: &mut [Descriptor],
        base: u32,
    ) -> Result<Written, ViewError> {
        let mut written = Written::default();
        let longest = Expose::All.longest(self.shape.snaplen);
        for (i, d) in packets.iter().enumerate() {
            let bytes = packet(d, data, i)?;
            let wire_len = d.wire_len;
            written.taken = i + 1;
            if !self.select.passes(link(i), TruePacket { bytes, wire_len })? {
                continue;
            }
            written.eligible += 1;
            // What is shown is the packet.
            if !self.shown.passes(link(i), ShownPacket { bytes, wire_len })? {
                continue;
            }
            let Some(slot) = out.get_mut(written.packets as usize) else {
                return Err(ViewError::Internal { packet: i, reason: "no room for its descriptor" });
            };
            let mut seen = Descriptor { addr: base.wrapping_add(d.addr), ..*d };
            if d.cap_len > longest {
                seen.flags |= flags::TRUNCATED;
                limit(&mut seen, longest);
            }
            *slot = seen;
            written.packets += 1;
            written.bytes += seen.cap_len as usize;
        }
        Ok(written)
    }

    /// Copies what may be seen of the selected packets to the start of `out_data`; `base` is the
    /// address of `out_data` in the module's memory.
    ///
    /// `packets[i].addr` is the packet's offset in `data`. Bytes behind those it wrote are left as
    /// they were.
    pub fn copy(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &[u8],
        out: &mut [Descriptor],
        out_data: &mut [u8],
        base: u32,
    ) -> Result<Written, ViewError> {
        let written = self.copy_some(packets, link, data, (out, out_data, usize::MAX), base)?;
        if written.taken < packets.len() {
            return Err(ViewError::Internal { packet: written.taken, reason: "no room for its descriptor" });
        }
        Ok(written)
    }

    /// The same into a place of which `most` bytes may be filled, and the packet that crosses them: stops
    /// when that or the descriptors are full.
    pub fn copy_some(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &[u8],
        (out, out_data, most): (&mut [Descriptor], &mut [u8], usize),
        base: u32,
    ) -> Result<Written, ViewError> {
        let mut written = Written::default();
        let mut chunk = [Descriptor::default(); CHUNK];
        let plain = self.expose == Expose::None && self.selects_all() && !self.shape.rewriter.changes_any();
        if plain && self.quantize.shows_all() {
            return Ok(self.descriptors_only(packets, out, base));
        }
        while written.taken < packets.len() && written.bytes < most && (written.packets as usize) < out.len()
        {
            let room = CHUNK.min(out.len() - written.packets as usize);
            let (first, mut made) = (written.packets as usize, 0);
            while made < room && written.taken < packets.len() && written.bytes < most {
                let (i, d) = (written.taken, &packets[written.taken]);
                let bytes = packet(d, data, i)?;
                let (link, wire_len) = (link(i), d.wire_len);
                self.quantize.look_ahead(&packets[i..]);
                written.taken += 1;
                if !self.select.passes(link, TruePacket { bytes, wire_len })? || !self.quantize.shows(d.ts_ns)
                {
                    continue;
                }
                written.eligible += 1;
                if !self.shown.is_all() {
                    let (bytes, seen) = self.shape.shown(self.shown_expose, link, d, bytes);
                    let wire_len = if self.shown_expose == Expose::Count { 0 } else { seen.wire_len };
                    if !self.shown.passes(link, ShownPacket { bytes, wire_len })? {
                        continue;
                    }
                }
                let (shown, mut seen) = self.shape.shown(self.expose, link, d, bytes);
                let at = written.bytes;
                let visible = out_data.get_mut(at..at + shown.len());
                let reason = "no room for its bytes";
                copy_exact(visible.ok_or(ViewError::Internal { packet: i, reason })?, shown);
                seen.addr = base.wrapping_add(at as u32);
                written.bytes += shown.len();
                self.quantize.apply(&mut seen);
                chunk[made] = seen;
                made += 1;
            }
            self.quantize.name_flows(&mut chunk[..made]);
            out[first..first + made].copy_from_slice(&chunk[..made]);
            written.packets += made as u32;
        }
        Ok(written)
    }

    /// How many of the packets are there to be shown, of which none is: who asks for nothing else learns of
    /// no other.
    pub fn eligible(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &[u8],
    ) -> Result<u32, ViewError> {
        let mut eligible = 0;
        for (i, d) in packets.iter().enumerate() {
            let bytes = packet(d, data, i)?;
            self.quantize.look_ahead(&packets[i..]);
            let passes = self.select.passes(link(i), TruePacket { bytes, wire_len: d.wire_len })?;
            eligible += u32::from(passes && self.quantize.shows(d.ts_ns));
        }
        Ok(eligible)
    }

    /// All packets and none of their bytes: what modules that count ask for.
    fn descriptors_only(&self, packets: &[Descriptor], out: &mut [Descriptor], base: u32) -> Written {
        let taken = packets.len().min(out.len());
        let mut chunk = [Descriptor::default(); CHUNK];
        for (out, packets) in out[..taken].chunks_mut(CHUNK).zip(packets.chunks(CHUNK)) {
            for (seen, d) in chunk.iter_mut().zip(packets) {
                *seen = Descriptor { addr: base, ..*d };
                limit(seen, 0);
                self.quantize.apply(seen);
            }
            let chunk = &mut chunk[..out.len()];
            self.quantize.name_flows(chunk);
            out.copy_from_slice(chunk);
        }
        Written { taken, eligible: taken as u32, packets: taken as u32, bytes: 0 }
    }
}

/// The bytes that a host's descriptor describes.
#[inline]
fn packet<'a>(d: &Descriptor, data: &'a [u8], i: usize) -> Result<&'a [u8], ViewError> {
    let reason = "its descriptor points outside the block";
    let range = d.addr as usize..d.addr as usize + d.cap_len as usize;
    let Some(bytes) = data.get(range) else { return Err(ViewError::Internal { packet: i, reason }) };
    Ok(bytes)
}

/// Copies exactly `from.len()` bytes. Headers have odd lengths of 34 to 128 bytes, for which two
/// overlapping moves of fixed size beat a call; unlike one rounded-up move, they leave no hidden
/// byte behind.
#[inline]
pub(crate) fn copy_exact(to: &mut [u8], from: &[u8]) {
    #[inline]
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        let n = from.len();
        to[..N].copy_from_slice(&from[..N]);
        to[n - N..].copy_from_slice(&from[n - N..]);
    }
    match from.len() {
        32..=64 => ends::<32>(to, from),
        65..=128 => ends::<64>(to, from),
        _ => to.copy_from_slice(from),
    }
}
