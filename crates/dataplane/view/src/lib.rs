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
//! **Under any transform, exposure ends where understanding ends**, so that no address hides in what
//! was not parsed: payload of TCP, UDP and ICMP echo is exposed as granted; what other protocols,
//! later fragments, malformed headers and the link's padding hold is not. See [`flame_transform`]
//! for the fields that are found.
//!
//! **A descriptor tells what the packet is** even if its bytes are hidden: time, lengths, protocol,
//! TCP flags and the flags of the decoder stay. Offsets are limited to the exposed bytes; `TRANSPORT`
//! is cleared if the header is not wholly exposed. The flow hash is that of the transformed packet; under a view's own
//! key it is keyed where no header is exposed. Of `count` nothing is left but the time. Time stamps may be coarser,
//! and packets sampled.

mod coarse;
mod expose;
mod select;

pub use flame_transform::{Key, KeyError};

use coarse::Coarse;
use expose::exposed;
use flame_abi::{Descriptor, LinkType, flags};
use flame_filter::FilterError;
use flame_plan::{Expose, ViewSpec};
use flame_transform::{Rewriter, TransformError};
use select::Select;

/// One view, with its caches: one per worker.
pub struct View {
    select: Select,
    /// Asked of what is shown.
    shown: Select,
    /// The bytes that those are asked of.
    shown_expose: Expose,
    expose: Expose,
    rewriter: Option<Rewriter>,
    coarse: Coarse,
    /// The packet being transformed.
    scratch: Vec<u8>,
}

/// What [`View::copy`] or [`View::select`] wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
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
    /// A defect of the caller: a descriptor outside its block, or a slot smaller than a block.
    #[error("packet {packet} of a block: {reason} (a defect here, not in the input)")]
    Internal { packet: usize, reason: &'static str },
}

impl View {
    /// Checks everything but the filter's meaning for link types other than the first that fits. The view's own key
    /// goes before `key`.
    pub fn new(spec: &ViewSpec, key: Option<&Key>) -> Result<Self, ViewError> {
        let own = spec.key.as_ref().map(|key| Key::new(key.0));
        let rewriter = Rewriter::new(&spec.transforms, own.as_ref().or(key))?;
        let (shown, plain): (Vec<_>, Vec<_>) =
            spec.select.iter().cloned().partition(|filter| spec.select_shown.contains(filter));
        Ok(Self {
            select: Select::new(&plain)?,
            shown: Select::new(&shown)?,
            shown_expose: spec.select_expose.map_or(spec.expose, |e| e.max(spec.expose)),
            expose: spec.expose,
            coarse: Coarse::new(spec, rewriter.as_ref().is_some_and(Rewriter::changes_flow)),
            rewriter,
            scratch: Vec::new(),
        })
    }

    /// Whether every byte of every selected packet is shown as it is, and so is its descriptor.
    pub fn hides_nothing(&self) -> bool {
        self.expose == Expose::All && self.rewriter.is_none() && self.coarse.is_none()
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
        for (i, d) in packets.iter().enumerate() {
            let bytes = packet(d, data, i)?;
            // What is shown is the packet.
            let passes = self.select.passes(link(i), bytes, d.wire_len)?;
            if !passes || !self.shown.passes(link(i), bytes, d.wire_len)? {
                continue;
            }
            let Some(slot) = out.get_mut(written.packets as usize) else {
                return Err(ViewError::Internal { packet: i, reason: "no room for its descriptor" });
            };
            *slot = Descriptor { addr: base.wrapping_add(d.addr), ..*d };
            written.packets += 1;
            written.bytes += bytes.len();
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
        let plain = self.rewriter.is_none() && self.coarse.is_none();
        if self.expose == Expose::None && plain && self.selects_all() {
            return descriptors_only(packets, out, base);
        }
        let mut written = Written::default();
        for (i, d) in packets.iter().enumerate() {
            let bytes = packet(d, data, i)?;
            let link = link(i);
            if !self.select.passes(link, bytes, d.wire_len)? || !self.coarse.shows(d) {
                continue;
            }
            let room = |reason| ViewError::Internal { packet: i, reason };
            let slot =
                out.get_mut(written.packets as usize).ok_or_else(|| room("no room for its descriptor"))?;
            let end = exposed(self.expose, link, d, bytes);
            let asked = if self.shown.is_all() { end } else { exposed(self.shown_expose, link, d, bytes) };
            let at = written.bytes;
            let mut seen = Descriptor { addr: base.wrapping_add(at as u32), ..*d };
            let shown = match &mut self.rewriter {
                None => &bytes[..asked],
                Some(rewriter) => {
                    // Not in place: other instances can read a slot while it is being filled. The
                    // headers are there even if they are not exposed, for the hash.
                    let headers = (d.payload() as usize).clamp(asked, bytes.len());
                    if self.scratch.len() < headers {
                        self.scratch.resize(headers, 0);
                    }
                    let scratch = &mut self.scratch[..headers];
                    copy_exact(scratch, &bytes[..headers]);
                    let understood = rewriter.rewrite(link, scratch);
                    let changed = &scratch[..understood];
                    if rewriter.changes_flow() {
                        seen.hash = flame_decode::flow_hash(changed, d);
                    }
                    &changed[..asked.min(understood)]
                }
            };
            if !self.shown.passes(link, shown, d.wire_len)? {
                continue;
            }
            let shown = &shown[..end.min(shown.len())];
            let visible = out_data.get_mut(at..at + shown.len());
            copy_exact(visible.ok_or_else(|| room("no room for its bytes"))?, shown);
            limit(&mut seen, shown.len() as u32);
            self.coarse.apply(&mut seen);
            *slot = seen;
            written.packets += 1;
            written.bytes += shown.len();
        }
        Ok(written)
    }
}

/// All packets and none of their bytes: what modules that count ask for.
fn descriptors_only(packets: &[Descriptor], out: &mut [Descriptor], base: u32) -> Result<Written, ViewError> {
    let reason = "no room for its descriptor";
    let packet = out.len();
    let out = out.get_mut(..packets.len()).ok_or(ViewError::Internal { packet, reason })?;
    for (seen, d) in out.iter_mut().zip(packets) {
        *seen = Descriptor { addr: base, ..*d };
        limit(seen, 0);
    }
    Ok(Written { packets: packets.len() as u32, bytes: 0 })
}

/// The bytes that a host's descriptor describes.
#[inline]
fn packet<'a>(d: &Descriptor, data: &'a [u8], i: usize) -> Result<&'a [u8], ViewError> {
    let reason = "its descriptor points outside the block";
    let range = d.addr as usize..d.addr as usize + d.cap_len as usize;
    let Some(bytes) = data.get(range) else { return Err(ViewError::Internal { packet: i, reason }) };
    Ok(bytes)
}

/// Makes a descriptor agree with `cap_len` exposed bytes.
#[inline]
fn limit(d: &mut Descriptor, cap_len: u32) {
    d.cap_len = cap_len;
    if d.payload() > cap_len {
        let most = cap_len.min(u32::from(u16::MAX)) as u16;
        d.l3 = d.l3.min(most);
        d.l4 = d.l4.min(most);
        d.l4_len = 0;
        d.flags &= !flags::TRANSPORT;
    }
}

/// Copies exactly `from.len()` bytes. Headers have odd lengths of 34 to 128 bytes, for which two
/// overlapping moves of fixed size beat a call; unlike one rounded-up move, they leave no hidden
/// byte behind.
#[inline]
fn copy_exact(to: &mut [u8], from: &[u8]) {
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
