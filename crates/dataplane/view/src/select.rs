//! Filters, compiled once per link type that comes along.

use flame_abi::LinkType;
use flame_filter::{Filter, FilterError};

/// The packets that pass every one of some expressions.
pub(crate) struct Select {
    expressions: Vec<String>,
    compiled: Vec<(LinkType, Verdict)>,
    /// Index of the link type that the last packet had.
    last: usize,
}

enum Verdict {
    All,
    Nothing,
    Filters(Vec<Filter>),
}

impl Select {
    /// Fails if an expression makes sense for no link type that is decoded.
    pub(crate) fn new(expressions: &[String]) -> Result<Self, FilterError> {
        let expressions: Vec<String> = expressions.iter().filter(|e| !e.trim().is_empty()).cloned().collect();
        for expression in &expressions {
            // `inbound`, for one, needs a cooked link header: any link type will do.
            if let Err(e) = Filter::compile(expression, LinkType::ETHERNET) {
                let others = LinkType::DECODED.into_iter().filter(|l| *l != LinkType::ETHERNET);
                let syntax = matches!(e, FilterError::Syntax { .. });
                if !syntax || !others.into_iter().any(|l| Filter::compile(expression, l).is_ok()) {
                    return Err(e);
                }
            }
        }
        Ok(Self { expressions, compiled: Vec::new(), last: 0 })
    }

    #[inline]
    pub(crate) fn is_all(&self) -> bool {
        self.expressions.is_empty()
    }

    #[inline(always)] // Most views select all: that must not cost a call.
    pub(crate) fn passes(
        &mut self,
        link: LinkType,
        bytes: &[u8],
        wire_len: u32,
    ) -> Result<bool, FilterError> {
        if self.is_all() { Ok(true) } else { self.filtered(link, bytes, wire_len) }
    }

    fn filtered(&mut self, link: LinkType, bytes: &[u8], wire_len: u32) -> Result<bool, FilterError> {
        if self.compiled.get(self.last).is_none_or(|(l, _)| *l != link) {
            self.turn_to(link)?;
        }
        Ok(match &self.compiled[self.last].1 {
            Verdict::All => true,
            Verdict::Nothing => false,
            Verdict::Filters(filters) => filters.iter().all(|f| f.matches(bytes, wire_len)),
        })
    }

    #[cold]
    fn turn_to(&mut self, link: LinkType) -> Result<(), FilterError> {
        if let Some(known) = self.compiled.iter().position(|(l, _)| *l == link) {
            self.last = known;
            return Ok(());
        }
        let filters: Result<Vec<Filter>, FilterError> =
            self.expressions.iter().map(|e| Filter::compile(e, link)).collect();
        let verdict = match filters {
            Ok(filters) if filters.iter().all(Filter::accepts_all) => Verdict::All,
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
