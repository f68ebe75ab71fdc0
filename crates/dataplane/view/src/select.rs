//! Filters, compiled once per link type that comes along.

use flame_abi::LinkType;
use flame_filter::{FilterError, FilterText, PacketFilter};

/// The packets that pass every one of some filters of one kind.
pub(crate) struct Select<F> {
    filters: Vec<F>,
    compiled: Vec<(LinkType, Verdict<F>)>,
    /// Index of the link type that the last packet had.
    last: usize,
}

enum Verdict<F> {
    All,
    Nothing,
    Filters(Vec<PacketFilter<F>>),
}

impl<F: FilterText> Select<F> {
    /// Fails if a filter makes sense for no link type that is decoded.
    pub(crate) fn new(filters: &[F]) -> Result<Self, FilterError> {
        let mut select = Self { filters: filters.to_vec(), compiled: Vec::new(), last: 0 };
        for filter in filters {
            // `inbound`, for one, needs a cooked link header: any link type will do.
            if let Err(e) = PacketFilter::compile(filter, LinkType::ETHERNET) {
                let mut others = LinkType::DECODED.into_iter().filter(|l| *l != LinkType::ETHERNET);
                let syntax = matches!(e, FilterError::Syntax { .. });
                if !syntax || !others.any(|l| PacketFilter::compile(filter, l).is_ok()) {
                    return Err(e);
                }
            }
        }
        // Ready for the usual link type, so that nothing is compiled on a packet's way there.
        if !filters.is_empty() {
            let _ = select.turn_to(LinkType::ETHERNET);
        }
        Ok(select)
    }

    #[inline]
    pub(crate) fn is_all(&self) -> bool {
        self.filters.is_empty()
    }

    /// The first filter that asks for lengths on the wire, on any link type.
    pub(crate) fn reads_length(&self) -> Option<&F> {
        let reads = |filter: &F, link| PacketFilter::compile(filter, link).is_ok_and(|f| f.reads_length());
        self.filters.iter().find(|filter| LinkType::DECODED.into_iter().any(|link| reads(filter, link)))
    }

    #[inline(always)] // Most views select all: that must not cost a call.
    pub(crate) fn passes(&mut self, link: LinkType, packet: F::Packet<'_>) -> Result<bool, FilterError> {
        if self.is_all() { Ok(true) } else { self.filtered(link, packet) }
    }

    fn filtered(&mut self, link: LinkType, packet: F::Packet<'_>) -> Result<bool, FilterError> {
        if self.compiled.get(self.last).is_none_or(|(l, _)| *l != link) {
            self.turn_to(link)?;
        }
        Ok(match self.compiled.get(self.last).map(|(_, verdict)| verdict) {
            Some(Verdict::All) => true,
            Some(Verdict::Filters(filters)) => filters.iter().all(|f| f.matches(packet)),
            Some(Verdict::Nothing) | None => false,
        })
    }

    #[cold]
    fn turn_to(&mut self, link: LinkType) -> Result<(), FilterError> {
        if let Some(known) = self.compiled.iter().position(|(l, _)| *l == link) {
            self.last = known;
            return Ok(());
        }
        let filters: Result<Vec<PacketFilter<F>>, FilterError> =
            self.filters.iter().map(|f| PacketFilter::compile(f, link)).collect();
        let verdict = match filters {
            Ok(filters) if filters.iter().all(PacketFilter::accepts_all) => Verdict::All,
            Ok(filters) => Verdict::Filters(filters),
            // Packets of other link types count as not IP; what cannot be asked of them is false.
            Err(FilterError::Syntax { .. }) if !link.is_decoded() => Verdict::Nothing,
            Err(e) => return Err(e),
        };
        self.compiled.push((link, verdict));
        self.last = self.compiled.len() - 1;
        Ok(())
    }
}
