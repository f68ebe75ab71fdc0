//! Filters, compiled once for each link type that occurs.

use crate::ViewError;
use flame_abi::LinkType;
use flame_filter::{FilterError, FilterText, PacketFilter};
use flame_plan::{Expose, ShownFilter, ViewSpec};

/// The packets that pass all of several filters of one kind.
pub(crate) struct Select<F> {
    filters: Vec<F>,
    compiled: Vec<(LinkType, Verdict<F>)>,
    /// The index of the link type of the last packet.
    last: usize,
    /// Whether a filter that cannot be compiled for the link type of a packet is an error. Otherwise it lets
    /// no such packet pass.
    is_strict: bool,
}

enum Verdict<F> {
    All,
    Nothing,
    Filters(Vec<PacketFilter<F>>),
}

impl<F: FilterText> Select<F> {
    /// Creates a selection. Fails if a filter is valid for no link type that is decoded.
    pub(crate) fn new(filters: &[F]) -> Result<Self, FilterError> {
        let mut select = Self { filters: filters.to_vec(), compiled: Vec::new(), last: 0, is_strict: true };
        for filter in filters {
            // A filter may test a property of other link types, as `inbound` does, so any link type suffices.
            if let Err(e) = PacketFilter::compile(filter, LinkType::ETHERNET) {
                let mut others = LinkType::DECODED.into_iter().filter(|l| *l != LinkType::ETHERNET);
                let is_of_others = matches!(e, FilterError::Link { .. });
                if !is_of_others || !others.any(|l| PacketFilter::compile(filter, l).is_ok()) {
                    return Err(e);
                }
            }
        }
        // Compiled here for the usual link type, not when the first packet arrives. A fault is found again.
        if !filters.is_empty() {
            let _ = select.turn_to(LinkType::ETHERNET);
        }
        Ok(select.strict(false))
    }

    /// Sets whether packets of a link type for which a filter cannot be compiled are an error: to the
    /// operator, who states filters for a run of its own. In a view of a grant, it would end the run of all
    /// others.
    pub(crate) fn strict(self, is_strict: bool) -> Self {
        Self { is_strict, ..self }
    }

    #[inline]
    pub(crate) fn is_all(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns the first filter that reads lengths on the wire, for any link type.
    pub(crate) fn reads_length(&self) -> Option<&F> {
        let reads = |filter: &F, link| PacketFilter::compile(filter, link).is_ok_and(|f| f.reads_length());
        self.filters.iter().find(|filter| LinkType::DECODED.into_iter().any(|link| reads(filter, link)))
    }

    #[inline(always)] // Most views select all, which must not cost a call.
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
            // Packets of other link types count as not IP; a filter that cannot be compiled for them is
            // false.
            Err(FilterError::Link { .. }) if !link.is_decoded() => Verdict::Nothing,
            Err(e) if !self.is_strict && !matches!(e, FilterError::Internal { .. }) => Verdict::Nothing,
            Err(e) => return Err(e),
        };
        self.compiled.push((link, verdict));
        self.last = self.compiled.len() - 1;
        Ok(())
    }
}

/// The faults of the filters of a grant's view on packets of a link type: these lack what the filters test,
/// so none passes.
#[derive(Debug, Default)]
pub struct Misfits {
    /// Those of policy and root, and of the holder itself for this module.
    pub stated: Vec<ViewError>,
    /// Those of all others through whose hands the grant went, and of the module.
    pub inherited: Vec<ViewError>,
}

impl Misfits {
    /// Finds the filters of a view that packets of `link` cannot pass.
    pub fn of(spec: &ViewSpec, link: LinkType) -> Self {
        fn fault<F: FilterText>(filter: &F, link: LinkType) -> Option<ViewError> {
            let fault = PacketFilter::compile(filter, link).err();
            fault.filter(|fault| matches!(fault, FilterError::Link { .. })).map(ViewError::from)
        }
        let shown = |filter| fault(filter, link);
        let own = spec.own.iter().filter_map(|stage| shown(&stage.filter));
        let others = spec.stages.iter().map(|stage| &stage.filter).chain(&spec.select_shown);
        Self {
            stated: spec.select.iter().filter_map(|filter| fault(filter, link)).chain(own).collect(),
            inherited: others.filter_map(shown).collect(),
        }
    }
}

impl Select<ShownFilter> {
    /// Checks that filters ask for lengths only where these are shown.
    pub(crate) fn check_lengths(&self, expose: Expose) -> Result<(), ViewError> {
        match self.reads_length().filter(|_| expose == Expose::Count) {
            Some(filter) => Err(ViewError::Length { filter: filter.to_string() }),
            None => Ok(()),
        }
    }
}
