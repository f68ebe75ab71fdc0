//! Event queues: which of a module's filters each shown packet passes first.

use crate::select::Select;
use crate::{View, ViewError, Written, packet};
use flame_abi::{Descriptor, LinkType};
use flame_filter::ShownPacket;
use flame_plan::{Expose, ShownFilter};

/// The mark of a packet that is in no queue.
const NONE: u8 = u8::MAX;

/// The event queues of a module, which divide the packets of its view.
pub struct Queues {
    filters: Vec<Select<ShownFilter>>,
}

/// The queue of each packet of a block, by its index.
#[derive(Default)]
pub struct Marks(Vec<u8>);

impl Queues {
    /// Creates queues, each with its filter or none, for the packets of `view`.
    ///
    /// # Errors
    ///
    /// Returns an error if a filter is valid for no link type, or asks for lengths that are not shown.
    pub fn new(filters: &[Option<ShownFilter>], view: &View) -> Result<Self, ViewError> {
        let filters = filters.iter().map(|filter| {
            let select = Select::new(filter.as_slice())?;
            select.check_lengths(view.shown_expose)?;
            Ok(select)
        });
        Ok(Self { filters: filters.collect::<Result<_, ViewError>>()? })
    }

    fn first(&mut self, link: LinkType, packet: ShownPacket<'_>) -> Result<u8, ViewError> {
        for (number, filter) in (0..).zip(&mut self.filters) {
            if filter.passes(link, packet)? {
                return Ok(number);
            }
        }
        Ok(NONE)
    }
}

impl Marks {
    /// Returns the index of the next packet of a queue, from `start` on.
    pub fn next_of(&self, queue: usize, start: usize) -> Option<usize> {
        let rest = self.0.get(start..)?;
        rest.iter().position(|mark| usize::from(*mark) == queue).map(|at| start + at)
    }

    /// Returns the number of packets of a queue.
    pub fn count(&self, queue: usize) -> u64 {
        self.0.iter().filter(|mark| usize::from(**mark) == queue).count() as u64
    }
}

impl View {
    /// Chooses the queue of each selected packet. [`Written::packets`] are those that are in one.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor does not lie in `data`, or if a filter is not valid for the link type
    /// of the packets.
    pub fn sort(
        &mut self,
        queues: &mut Queues,
        packets: &[Descriptor],
        link: LinkType,
        data: &[u8],
        marks: &mut Marks,
    ) -> Result<Written, ViewError> {
        let mut written = Written { taken: packets.len(), ..Written::default() };
        marks.0.clear();
        for (i, d) in packets.iter().enumerate() {
            let bytes = packet(d, data, i)?;
            let mut mark = NONE;
            if self.chooses(d, link, bytes, &mut written)? {
                let mut seen = Descriptor::default();
                let bytes = self.shape.shown(self.shown_expose, link, d, bytes, &mut seen);
                let wire_len = if self.shown_expose == Expose::Count { 0 } else { seen.wire_len };
                mark = queues.first(link, ShownPacket { bytes, wire_len })?;
            }
            written.packets += u32::from(mark != NONE);
            marks.0.push(mark);
        }
        Ok(written)
    }

    /// Copies the packets of one queue as [`View::copy_some`], from `start` on. [`Written::taken`] counts all
    /// packets up to the last handled one.
    ///
    /// # Errors
    ///
    /// Returns an error if a descriptor does not lie in `data`, or if `out_data` has no room for a packet.
    pub fn copy_sorted(
        &mut self,
        (marks, queue, start): (&Marks, usize, usize),
        packets: &[Descriptor],
        link: LinkType,
        data: &[u8],
        place: (&mut [Descriptor], &mut [u8], usize),
        base: u32,
    ) -> Result<Written, ViewError> {
        let (packets, marks) = (&packets[start..], &marks.0[start..]);
        self.copy_chosen(
            packets,
            |_| link,
            data,
            place,
            base,
            |_, i, _, _, _| Ok(usize::from(marks[i]) == queue),
        )
    }
}
