use crate::report::Events;
use crate::services::Services;
use flame_record::Sink;
use flame_transmit::Link;
use std::sync::Arc;

/// The destinations of output.
pub(crate) struct Outputs<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    /// Receives texts for the operator, faults, and the modules that have left.
    pub(crate) events: &'a dyn Events,
    /// The link on which modules send frames.
    pub(crate) link: Option<Arc<Link>>,
    /// The calls of services between modules.
    pub(crate) services: Services,
    /// The latest packet time.
    pub(crate) now_ns: u64,
}

impl<'a> Outputs<'a> {
    /// Creates the destinations. `is_clocked` states that calls of services are late by the node's clock.
    pub(crate) fn new(
        sink: &'a mut dyn Sink,
        events: &'a dyn Events,
        link: Option<Arc<Link>>,
        is_clocked: bool,
    ) -> Self {
        Self { sink, events, link, services: Services::new(is_clocked), now_ns: 0 }
    }

    /// Advances packet time, in which frames leave to a capture file.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.services.advance(self.now_ns);
        if let Some(link) = &self.link {
            link.advance(self.now_ns);
        }
    }
}
