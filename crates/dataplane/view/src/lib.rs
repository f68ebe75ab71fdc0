//! Computes the view of one grant for a module: the packets it sees (*select*), their visible bytes
//! (*expose*), and their form (*transform*).
//!
//! [`View::copy`] reads packets and their descriptors and writes the bytes that may be seen, packed, with new
//! descriptors. No other byte of a packet is ever written anywhere, not even temporarily. A view that [hides
//! nothing](View::hides_nothing) can instead [select](View::select) from the packets in place.
//!
//! **Exposed bytes** run from the start of the packet. *Headers* end after the transport header; after the IP
//! headers if there is none; after link header and tags if the packet is not IP. Packets of link types that
//! are not decoded have no headers: 0 bytes.
//!
//! **Under any transform, exposure ends where understanding ends**, so that no address remains in bytes that
//! were not parsed: payload of TCP, UDP and ICMP echo is exposed as granted unless it is a tunnel; the
//! contents of other protocols, later fragments and malformed headers are not. See [`flame_transform`] for
//! the fields that are found.
//!
//! # Outputs
//!
//! The *shown packet* is computed in one place (`shape.rs`) from the true one: its first bytes, transformed,
//! and the contents of its descriptor. A view is a chain, in which each part can only remove packets:
//!
//! 1. filters that are [trusted](flame_plan::TrustedFilter), on the true packet;
//! 2. sampling, on the packet as all see it whose views are narrowed from one (`form.rs`);
//! 3. [stages](flame_plan::Stage): filters of those through whose hands the grant went, each on the packet as
//!    its author saw it, however much narrower the view became afterwards;
//! 4. filters of the holder, on the packet as its grant shows it;
//! 5. those of the module, on the shown packet.
//!
//! Everything else that leaves this crate is a function of shown packets and of keys:
//!
//! | output | function of |
//! | --- | --- |
//! | bytes | the exposed bytes, transformed; at most [`ViewSpec::longest`] of them |
//! | checksums in them | right for the shown bytes if all the bytes they cover are shown and they were right (unchanged if no byte they cover was changed); zero otherwise. No flag distinguishes this: 0 means that there is none |
//! | options in them | those known not to hold hidden data, where payload is hidden (TCP), addresses are changed or times hidden (IPv4, IPv6, TCP); padding in place of others |
//! | bytes after a datagram | shown only where nothing is hidden |
//! | headers that were cut off | as far as they reveal nothing about bytes that were not captured, which count as hidden |
//! | parts that contain others: MAC addresses of groups and containers, interface identifiers, clocks of hosts and tunnels | without those that are hidden: addresses by a transform, clocks by a resolution ([`flame_transform::TABLE`]) |
//! | notes of NFLOG and radiotap about a packet: times, numbers, signals, users | shown only where no time and no packet is hidden and no field is changed |
//! | `ts_ns` | the time, rounded down to the resolution |
//! | `addr` | the lengths of the bytes shown before |
//! | `hash` | the shown addresses, ports and protocol, for `none` those that `headers` would show; under the view's key where anything is hidden, 0 for `none` without a key |
//! | `wire_len` | the length on the wire; 0 for `count` |
//! | `cap_len` | the number of shown bytes |
//! | `l3`, `l4`, `l4_len` | the offsets of the headers in the shown bytes |
//! | `proto`, `tcp_flags`, `flags` | the headers, which every exposure but `count` reveals; `TRANSPORT` is cleared if the header is not shown completely, `TRUNCATED` set if it was cut at the longest |
//! | the choice of packets | the chain above. Of sampling: the sample key, and the first bytes from the IP header on, the length, and the time at the resolution, as policy and root show them. A sample of packets that are equal so far has all of them or none: with `count`, all of one time |
//! | [`Written::packets`], [`Written::bytes`], [`Written::eligible`], [`Written::cut`] | the choice of packets and their shown bytes |
//! | the end of [`View::copy_some`] | likewise: blocks of a view that hides something end by the bytes that were shown |
//!
//! Packets that trusted filters, sampling or stages leave out are hidden, but [`Written::taken`] counts them,
//! and [`Written::sampled`] those of sampling: these are for the caller's loop and for the operator's
//! account, and must not be passed on to the holder of a grant.

mod expose;
mod form;
mod quantize;
mod select;
mod shape;
mod sort;

pub use flame_transform::{FlowHash, Hidden, Key, KeyError};
pub use select::Misfits;
pub use sort::{Marks, Queues};

use flame_abi::{Descriptor, LinkType, flags};
use flame_filter::{FilterError, ShownPacket, TruePacket};
use flame_plan::{Expose, ShownFilter, TrustedFilter, ViewSpec};
use flame_transform::{Rewriter, Secrets, TransformError};
use form::{Sampling, Stages};
use quantize::Quantizer;
use select::Select;
use shape::{Shape, limit};

/// A view with its caches. Each worker has its own.
pub struct View {
    select: Select<TrustedFilter>,
    sampling: Option<Sampling>,
    stages: Stages,
    own: Stages,
    /// The filters that are evaluated on the shown packet.
    shown: Select<ShownFilter>,
    /// The bytes on which those filters are evaluated.
    shown_expose: Expose,
    expose: Expose,
    shape: Shape,
    quantizer: Quantizer,
}

/// The result of [`View::copy`] or [`View::select`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of packets of the input that were handled.
    pub taken: usize,
    /// The number of packets that passed trusted filters and stages, and are in the sample.
    pub eligible: u32,
    /// The number of packets that passed the trusted filters and are not in the sample.
    pub sampled: u32,
    /// The number of descriptors written; the other eligible packets were filtered out.
    pub packets: u32,
    /// The number of bytes of packets written.
    pub bytes: usize,
    /// The number of packets written whose payload was left out because it contains a packet that no
    /// transform would change.
    pub cut: u32,
}

/// The reason why a view cannot be created, or failed.
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

/// The bytes of packets: of each, those that its descriptor describes.
pub trait Packets {
    /// Returns the bytes of a packet, or `None` if its descriptor does not fit. `index` is its place in the
    /// list of descriptors.
    fn bytes(&self, index: usize, d: &Descriptor) -> Option<&[u8]>;
}

/// Packets in one block, in which `addr` is the offset of a packet.
impl Packets for [u8] {
    #[inline]
    fn bytes(&self, _: usize, d: &Descriptor) -> Option<&[u8]> {
        self.get(d.addr as usize..d.addr as usize + d.cap_len as usize)
    }
}

/// The number of descriptors that are computed before they are written, so that flow hashes are keyed many at
/// a time and no slot ever holds unkeyed ones.
const CHUNK: usize = 32;

impl View {
    /// Creates a view. The key of `spec`, if it has one, takes precedence over `key`.
    ///
    /// # Errors
    ///
    /// Returns an error if a filter is valid for no link type, a transform does not fit its field, or a key
    /// is missing. Filters for other link types than the first that fits are compiled when packets need them.
    pub fn new(spec: &ViewSpec, key: Option<&Key>) -> Result<Self, ViewError> {
        let own = spec.key.as_ref().map(|key| Key::new(key.0));
        let mut rewriter = Rewriter::hiding(&spec.transforms, own.as_ref().or(key))?;
        if spec.expose <= Expose::None {
            rewriter.even_sides();
        }
        if spec.resolution_ns > 1 {
            rewriter.hide(Secrets::TIME);
        }
        let hides_packets = !spec.select.is_empty() || !spec.stages.is_empty();
        if spec.sample > 1 || (own.is_some() && hides_packets) {
            rewriter.hide(Secrets::NUMBER);
        }
        let shown = Select::new(&spec.select_shown)?;
        let shown_expose = spec.select_expose.map_or(spec.expose, |e| e.max(spec.expose));
        let hides_bytes = spec.expose != Expose::All || rewriter.changes_any();
        shown.check_lengths(shown_expose)?;
        Ok(Self {
            select: Select::new(&spec.select)?.strict(spec.key.is_none()),
            sampling: Sampling::new(spec, key)?,
            stages: Stages::new(&spec.stages, key)?,
            own: Stages::new(&spec.own, key)?,
            shown,
            shown_expose,
            expose: spec.expose,
            quantizer: Quantizer::new(spec, key, hides_bytes),
            shape: Shape { rewriter, snaplen: spec.snaplen, scratch: Vec::new() },
        })
    }

    /// Returns whether every byte of every selected packet, and its descriptor, is shown unchanged.
    pub fn hides_nothing(&self) -> bool {
        self.expose == Expose::All
            && !self.shape.rewriter.changes_any()
            && self.quantizer.is_none()
            && self.sampling.is_none()
    }

    /// Returns whether descriptors do not show the lengths of packets.
    pub fn hides_lengths(&self) -> bool {
        self.expose == Expose::Count
    }

    /// Returns whether flow hashes are shown, as they are or as pseudonyms. If not, those of the true packets
    /// change nothing.
    pub fn reads_hash(&self) -> bool {
        self.quantizer.reads_hash() || self.sampling.as_ref().is_some_and(Sampling::reads_hash)
    }

    /// Returns whether anything of packets is read but their times.
    pub fn reads_packets(&self) -> bool {
        self.expose != Expose::Count
            || !self.selects_all()
            || self.sampling.as_ref().is_some_and(Sampling::reads_packets)
    }

    /// Returns whether every packet of the sample is shown.
    pub fn selects_all(&self) -> bool {
        self.select.is_all() && self.stages.is_all() && self.own.is_all() && self.shown.is_all()
    }

    /// Writes descriptors of the selected packets, for packets that stay in place: `base` is the address of
    /// `data` in the module's memory. Only for a view that hides nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor does not lie in `data`, if `out` has no room for a selected packet,
    /// or if a filter is not valid for the link type of a packet.
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
            if !self.select.passes(link(i), TruePacket { bytes, wire_len })?
                || !self.stages.passes(link(i), d, bytes)?
            {
                continue;
            }
            written.eligible += 1;
            // The shown packet equals the true one.
            if !self.own.passes(link(i), d, bytes)?
                || !self.shown.passes(link(i), ShownPacket { bytes, wire_len })?
            {
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

    /// Copies the bytes that may be seen of the selected packets to the start of `out_data`, whose address in
    /// the module's memory is `base`.
    ///
    /// `packets[i].addr` is the packet's offset in `data`. The bytes of `out_data` after those written are
    /// unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor does not lie in `data`, if `out` or `out_data` has no room for a
    /// selected packet, or if a filter is not valid for the link type of a packet.
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

    /// Copies like [`View::copy`], and stops when `most` bytes or the descriptors are full. The packet that
    /// crosses `most` is still written.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor does not lie in `data`, if `out_data` has no room for a selected
    /// packet, or if a filter is not valid for the link type of a packet.
    pub fn copy_some(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &[u8],
        place: (&mut [Descriptor], &mut [u8], usize),
        base: u32,
    ) -> Result<Written, ViewError> {
        if self.shows_descriptors_only() {
            return Ok(self.descriptors_only(packets, place.0, base));
        }
        self.copy_chosen(packets, link, data, place, base, |view, i, link, bytes, written| {
            view.chooses(&packets[i], link, bytes, written)
        })
    }

    /// Copies like [`View::copy`] packets whose bytes lie anywhere, and appends the indices of those that are
    /// shown to `shown`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`View::copy`].
    pub fn copy_listed(
        &mut self,
        packets: &[Descriptor],
        link: LinkType,
        data: &(impl Packets + ?Sized),
        place: (&mut [Descriptor], &mut [u8]),
        base: u32,
        shown: &mut Vec<usize>,
    ) -> Result<Written, ViewError> {
        if self.shows_descriptors_only() {
            let written = self.descriptors_only(packets, place.0, base);
            shown.extend(0..written.taken);
            return Ok(written);
        }
        let place = (place.0, place.1, usize::MAX);
        let written = self.copy_chosen(
            packets,
            |_| link,
            data,
            place,
            base,
            |view, i, link, bytes, written| {
                let chosen = view.chooses(&packets[i], link, bytes, written)?;
                shown.extend(chosen.then_some(i));
                Ok(chosen)
            },
        )?;
        if written.taken < packets.len() {
            return Err(ViewError::Internal { packet: written.taken, reason: "no room for its descriptor" });
        }
        Ok(written)
    }

    /// Returns whether all packets are shown, without any byte.
    fn shows_descriptors_only(&self) -> bool {
        let is_bare = match self.expose {
            Expose::Count => true,
            Expose::None => !self.shape.rewriter.changes_any(),
            _ => false,
        };
        is_bare && self.selects_all() && self.sampling.is_none()
    }

    /// Returns whether a packet reaches the filters on the shown packet, and counts it.
    #[inline(always)]
    fn admits(
        &mut self,
        d: &Descriptor,
        link: LinkType,
        bytes: &[u8],
        written: &mut Written,
    ) -> Result<bool, ViewError> {
        if !self.select.passes(link, TruePacket { bytes, wire_len: d.wire_len })? {
            return Ok(false);
        }
        if let Some(sampling) = &mut self.sampling
            && !sampling.takes(link, d, bytes)
        {
            written.sampled += 1;
            return Ok(false);
        }
        let passes = self.stages.passes(link, d, bytes)?;
        written.eligible += u32::from(passes);
        Ok(passes)
    }

    /// Returns whether a packet is shown, and counts it.
    #[inline(always)] // The loop over packets is the hottest of all.
    fn chooses(
        &mut self,
        d: &Descriptor,
        link: LinkType,
        bytes: &[u8],
        written: &mut Written,
    ) -> Result<bool, ViewError> {
        if !self.admits(d, link, bytes, written)? || !self.own.passes(link, d, bytes)? {
            return Ok(false);
        }
        if self.shown.is_all() {
            return Ok(true);
        }
        let mut seen = Descriptor::default();
        let bytes = self.shape.shown(self.shown_expose, link, d, bytes, &mut seen);
        let wire_len = if self.shown_expose == Expose::Count { 0 } else { seen.wire_len };
        Ok(self.shown.passes(link, ShownPacket { bytes, wire_len })?)
    }

    /// Copies like [`View::copy_some`] the packets that `chooses` chooses, by their indices.
    #[inline(always)]
    fn copy_chosen(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &(impl Packets + ?Sized),
        (out, out_data, most): (&mut [Descriptor], &mut [u8], usize),
        base: u32,
        mut chooses: impl FnMut(&mut Self, usize, LinkType, &[u8], &mut Written) -> Result<bool, ViewError>,
    ) -> Result<Written, ViewError> {
        let mut written = Written::default();
        let mut chunk = [Descriptor::default(); CHUNK];
        while written.taken < packets.len() && written.bytes < most && (written.packets as usize) < out.len()
        {
            let room = CHUNK.min(out.len() - written.packets as usize);
            let (first, mut made) = (written.packets as usize, 0);
            fetch(&packets[written.taken..], written.taken, data);
            while made < room && written.taken < packets.len() && written.bytes < most {
                let (i, d) = (written.taken, &packets[written.taken]);
                let bytes = packet(d, data, i)?;
                let link = link(i);
                written.taken += 1;
                if !chooses(self, i, link, bytes, &mut written)? {
                    continue;
                }
                let seen = &mut chunk[made];
                let shown = self.shape.shown(self.expose, link, d, bytes, seen);
                let at = written.bytes;
                let Some(visible) = out_data.get_mut(at..at + shown.len()) else {
                    return Err(ViewError::Internal { packet: i, reason: "no room for its bytes" });
                };
                copy_exact(visible, shown);
                seen.addr = base.wrapping_add(at as u32);
                written.bytes += shown.len();
                written.cut += u32::from(self.shape.rewriter.has_cut());
                self.quantizer.apply(seen);
                made += 1;
            }
            self.quantizer.name_flows(&mut chunk[..made]);
            out[first..first + made].copy_from_slice(&chunk[..made]);
            written.packets += made as u32;
        }
        Ok(written)
    }

    /// Returns whether all captured bytes of a packet are shown as they are. The answer depends on no byte of
    /// options and payload.
    ///
    /// # Errors
    ///
    /// Returns an error if the descriptor does not lie in `data`.
    pub fn shows_all_of(&self, link: LinkType, d: &Descriptor, data: &[u8]) -> Result<bool, ViewError> {
        Ok(self.shape.shows_all(self.expose, link, d, packet(d, data, 0)?))
    }

    /// Copies the bytes of a packet as they are shown, and notes which of them are not shown as they are.
    /// Returns the shown descriptor, whose address and time are the true ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the descriptor does not lie in `data`.
    pub fn show(
        &mut self,
        link: LinkType,
        d: &Descriptor,
        data: &[u8],
        (out, hidden): (&mut Vec<u8>, &mut Hidden),
    ) -> Result<Descriptor, ViewError> {
        let bytes = packet(d, data, 0)?;
        self.shape.rewriter.record(std::mem::take(hidden));
        let mut seen = Descriptor::default();
        let shown = self.shape.shown(self.expose, link, d, bytes, &mut seen);
        out.clear();
        out.extend_from_slice(shown);
        *hidden = self.shape.rewriter.recorded();
        Ok(seen)
    }

    /// Returns the number of packets that passed trusted filters and stages and are in the sample, when none
    /// is shown, and the number of those that are not in the sample. A caller that uses only the first number
    /// learns about no other packet.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor does not lie in `data`, or if a filter is not valid for the link type
    /// of a packet.
    pub fn eligible(
        &mut self,
        packets: &[Descriptor],
        link: impl Fn(usize) -> LinkType,
        data: &[u8],
    ) -> Result<(u32, u32), ViewError> {
        let mut written = Written::default();
        for (i, d) in packets.iter().enumerate() {
            self.admits(d, link(i), packet(d, data, i)?, &mut written)?;
        }
        Ok((written.eligible, written.sampled))
    }

    /// Writes all descriptors without bytes, the view of modules that only count.
    fn descriptors_only(&self, packets: &[Descriptor], out: &mut [Descriptor], base: u32) -> Written {
        let taken = packets.len().min(out.len());
        let (packets, out) = (&packets[..taken], &mut out[..taken]);
        // Word by word, not field by field: no byte is in the view, so no offset either.
        let hide = |hash| {
            let kept = Descriptor {
                ts_ns: u64::MAX,
                hash,
                wire_len: u32::MAX,
                proto: u8::MAX,
                flags: !flags::TRANSPORT,
                tcp_flags: u8::MAX,
                ..Descriptor::default()
            };
            let (kept, added) =
                (kept.to_words(), Descriptor { addr: base, ..Descriptor::default() }.to_words());
            move |d: &Descriptor| {
                let words = d.to_words();
                Descriptor::from_words(std::array::from_fn(|i| words[i] & kept[i] | added[i]))
            }
        };
        let hide_offsets = hide(u32::MAX);
        let show = |d: &Descriptor| {
            let mut seen = hide_offsets(d);
            self.quantizer.apply(&mut seen);
            seen
        };
        if self.quantizer.changes_hash_only() {
            // Without a branch for each packet.
            let hide = hide(if self.quantizer.reads_hash() { u32::MAX } else { 0 });
            out.iter_mut().zip(packets).for_each(|(out, d)| *out = hide(d));
        } else if !self.quantizer.names_flows() {
            out.iter_mut().zip(packets).for_each(|(out, d)| *out = show(d));
        } else {
            let mut chunk = [Descriptor::default(); CHUNK];
            for (out, packets) in out.chunks_mut(CHUNK).zip(packets.chunks(CHUNK)) {
                let chunk = &mut chunk[..out.len()];
                chunk.iter_mut().zip(packets).for_each(|(seen, d)| *seen = show(d));
                self.quantizer.name_flows(chunk);
                out.copy_from_slice(chunk);
            }
        }
        Written { taken, eligible: taken as u32, packets: taken as u32, ..Written::default() }
    }
}

/// Returns the bytes that a descriptor of the host describes.
#[inline]
fn packet<'a>(d: &Descriptor, data: &'a (impl Packets + ?Sized), i: usize) -> Result<&'a [u8], ViewError> {
    let reason = "its descriptor points outside the block";
    // An error that is made for each packet is also dropped for each.
    let Some(bytes) = data.bytes(i, d) else { return Err(ViewError::Internal { packet: i, reason }) };
    Ok(bytes)
}

/// Reads the beginning of each of the next packets. Those that another processor has decoded then come from
/// its cache together, instead of one after the other while each of them is waited for.
#[inline]
fn fetch(packets: &[Descriptor], first: usize, data: &(impl Packets + ?Sized)) {
    let mut all = 0;
    for (i, d) in packets.iter().take(CHUNK).enumerate() {
        // Two cache lines contain nearly all headers.
        let bytes = data.bytes(first + i, d).unwrap_or_default();
        all |= bytes.first().unwrap_or(&0) | bytes.get(64).unwrap_or(&0);
    }
    std::hint::black_box(all);
}

/// Copies exactly `from.len()` bytes. Headers have odd lengths of 34 to 128 bytes, for which two overlapping
/// moves of fixed size are faster than a call; unlike one rounded-up move, they copy no hidden byte.
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

#[cfg(test)]
mod tests {
    use super::*;
    use flame_plan::ViewSpec;
    use proptest::prelude::*;

    proptest! {
        /// Descriptors of packets without bytes are the same in the fast ways as in the general one.
        #[test]
        fn descriptors_without_bytes_are_limited_ones(
            packets in proptest::collection::vec((any::<[u8; 24]>(), 0..3_usize), 1..70),
            resolution_ns in prop_oneof![Just(1), Just(1000)],
            is_keyed in any::<bool>(),
        ) {
            let key = Key::new([7; 32]);
            let spec = ViewSpec { expose: Expose::None, resolution_ns, ..ViewSpec::default() };
            let view = View::new(&spec, is_keyed.then_some(&key)).unwrap();
            let describe = |(bytes, kind): ([u8; 24], usize)| {
                let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0, 0, 90, 0, 0, 0, 0, 9, 0, 0, 0], &bytes, &[0x50; 60]].concat();
                frame[23] = [6, 17, bytes[0]][kind];
                flame_decode::decode(LinkType::ETHERNET, &frame, 200, flame_decode::Options::default())
            };
            let packets: Vec<_> = packets.into_iter().map(describe).collect();
            let mut out = vec![Descriptor::default(); packets.len()];
            view.descriptors_only(&packets, &mut out, 77);
            let mut expected = packets.clone();
            for d in &mut expected {
                d.addr = 77;
                limit(d, 0);
                view.quantizer.apply(d);
            }
            view.quantizer.name_flows(&mut expected);
            prop_assert_eq!(out, expected);
        }
    }
}
