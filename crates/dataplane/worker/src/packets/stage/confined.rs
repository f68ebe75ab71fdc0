//! Blocks of a view that hides something: their ends reveal nothing about hidden packets, nor about the
//! source's blocks. A block ends when it is full, before a shown packet of another link type, or at a tick,
//! which falls on a multiple of the grant's resolution.

use super::ViewStage;
use crate::error::RunError;
use crate::packets::read::Packets;
use flame_abi::{Descriptor, LinkType};
use flame_execute::{Conditions, Outlet};
use flame_view::{ViewError, Written};

impl ViewStage {
    /// Fills blocks one after the other, independently of the ends of the source's blocks.
    pub(crate) fn stage(
        &mut self,
        packets: Packets<'_>,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let Packets { block, link, descriptors: mut rest } = packets;
        let data = &block.data;
        if self.is_refused() {
            return self.refuse_eligible(rest, link, data);
        }
        while !rest.is_empty() {
            let mut first = None;
            if self.filling.excludes(link) {
                let (written, shown) = self.next_shown(rest, link, data)?;
                rest = &rest[written.taken..];
                self.offer(written);
                if shown.is_none() {
                    continue;
                }
                self.publish(conditions, outlet)?;
                first = shown;
            }
            let room = (&mut self.pool, 0);
            let added = match first {
                Some(d) => self.filling.add(room, link, |(descriptors, out, _), base| {
                    let bytes = d.cap_len as usize;
                    out[..bytes].copy_from_slice(&self.first[..bytes]);
                    descriptors[0] = Descriptor { addr: base, ..d };
                    // It was offered above.
                    Ok(Written { packets: 1, bytes, ..Written::default() })
                })?,
                None => {
                    let view = &mut self.view;
                    let added = self
                        .filling
                        .add(room, link, |free, base| view.copy_some(rest, |_| link, data, free, base))?;
                    rest = &rest[added.map_or(0, |written| written.taken)..];
                    if let Some(written) = added {
                        self.offer(written);
                    }
                    added
                }
            };
            if added.is_none() {
                return self.lose_eligible(rest, (link, data), first.is_some(), conditions, outlet);
            }
            if self.filling.is_full() {
                self.publish(conditions, outlet)?;
            }
        }
        // Paused batches continue meanwhile.
        self.resume(conditions, outlet)
    }

    /// Returns the next shown packet, in `self.first`, and what was handled to find it.
    fn next_shown(
        &mut self,
        packets: &[Descriptor],
        link: LinkType,
        data: &[u8],
    ) -> Result<(Written, Option<Descriptor>), ViewError> {
        let mut one = [Descriptor::default()];
        self.first.resize(flame_abi::MAX_PACKET, 0);
        let place = (&mut one[..], &mut self.first[..], usize::MAX);
        let written = self.view.copy_some(packets, |_| link, data, place, 0)?;
        Ok((written, (written.packets > 0).then_some(one[0])))
    }

    /// Counts packets for which there is no slot. Only those that would have been eligible count, and the one
    /// before them if it `has_first`.
    fn lose_eligible(
        &mut self,
        packets: &[Descriptor],
        (link, data): (LinkType, &[u8]),
        has_first: bool,
        conditions: Conditions<'_>,
        outlet: &mut dyn Outlet<RunError>,
    ) -> Result<(), RunError> {
        let (eligible, sampled) = self.view.eligible(packets, |_| link, data)?;
        let eligible = u64::from(eligible);
        for batches in &mut self.loops {
            batches.offer(eligible, 0);
            batches.sampled(sampled.into());
            batches.overrun(eligible + u64::from(has_first));
            batches.go(conditions, outlet)?;
        }
        Ok(())
    }
}
