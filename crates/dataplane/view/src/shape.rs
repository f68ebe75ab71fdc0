//! Computes the shown packet from the true one. This happens only here.

use crate::copy_exact;
use crate::expose::{exposed, is_whole};
use flame_abi::{Descriptor, LinkType, flags};
use flame_plan::Expose;
use flame_transform::Rewriter;

pub(crate) struct Shape {
    pub(crate) rewriter: Rewriter,
    pub(crate) snaplen: u32,
    /// The packet being changed. A copy, because other instances can read a slot while it is being filled.
    pub(crate) scratch: Vec<u8>,
}

impl Shape {
    /// Returns whether all captured bytes of a packet are shown as they are, whatever they are.
    pub(crate) fn shows_all(&self, expose: Expose, link: LinkType, d: &Descriptor, bytes: &[u8]) -> bool {
        let ask = exposed(expose, link, d, bytes).min(expose.longest(self.snaplen) as usize);
        let changes = self.rewriter.changes_any() || self.rewriter.changes_parts(link);
        !changes && ask == bytes.len() && is_all(expose, ask, link, d, bytes)
    }

    /// Returns the shown bytes of a packet at an exposure, and fills `seen` with their descriptor, which
    /// still has the true address and time. It is filled where it stays, as in [`flame_decode::decode_into`].
    #[inline]
    pub(crate) fn shown<'a>(
        &'a mut self,
        expose: Expose,
        link: LinkType,
        d: &Descriptor,
        bytes: &'a [u8],
        seen: &mut Descriptor,
    ) -> &'a [u8] {
        let exposed = exposed(expose, link, d, bytes);
        let ask = exposed.min(expose.longest(self.snaplen) as usize);
        *seen = *d;
        let changes = self.rewriter.changes_any();
        // Nothing is hidden, or everything.
        let whole = is_all(expose, ask, link, d, bytes);
        let parts = self.rewriter.changes_parts(link);
        let shown = if !changes && (whole && !parts || ask == 0) {
            &bytes[..ask]
        } else {
            let headers = d.payload() as usize;
            // Addresses and ports are changed even if they are not shown, because the hash is computed from
            // their new values.
            let most = if ask == 0 { headers } else { ask };
            let taken = most.max(headers).min(bytes.len());
            if self.scratch.len() < taken {
                self.scratch.resize(taken, 0);
            }
            let scratch = &mut self.scratch[..taken];
            copy_exact(scratch, &bytes[..taken]);
            let understood = self.rewriter.rewrite_shown(link, scratch, most);
            let changed = &scratch[..understood];
            if self.rewriter.changes_flow(d) || understood < headers {
                seen.hash = flame_decode::flow_hash(changed, d);
            }
            &changed[..ask.min(understood)]
        };
        if exposed > ask {
            seen.flags |= flags::TRUNCATED;
        }
        limit(seen, shown.len() as u32);
        shown
    }
}

/// Returns whether an exposure of `ask` bytes hides none of a packet.
#[inline]
fn is_all(expose: Expose, ask: usize, link: LinkType, d: &Descriptor, bytes: &[u8]) -> bool {
    expose == Expose::All || (ask == bytes.len() && is_whole(link, d, bytes))
}

/// Adjusts a descriptor to `cap_len` exposed bytes.
#[inline]
pub(crate) fn limit(d: &mut Descriptor, cap_len: u32) {
    d.cap_len = cap_len;
    if d.payload() > cap_len {
        let most = cap_len.min(u32::from(u16::MAX)) as u16;
        d.l3 = d.l3.min(most);
        d.l4 = d.l4.min(most);
        d.l4_len = 0;
        d.flags &= !flags::TRANSPORT;
    }
}
