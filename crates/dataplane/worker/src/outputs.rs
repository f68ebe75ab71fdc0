use crate::report::Events;
use crate::services::Services;
use crate::stalling::stalling;
use flame_record::Sink;
use flame_remote::{Stall, Waited};
use flame_transmit::Link;
use std::sync::Arc;
use std::time::Duration;

/// The destinations of output.
pub(crate) struct Outputs<'a> {
    sink: &'a mut dyn Sink,
    /// Receives texts for the operator, faults, and the modules that have left.
    pub(crate) events: &'a dyn Events,
    /// The link on which modules send frames.
    pub(crate) link: Option<Arc<Link>>,
    /// The calls of services between modules.
    pub(crate) services: Services,
    /// The latest packet time.
    pub(crate) now_ns: u64,
    /// The time for which the thread waits for whoever takes the output, if that concerns others.
    stall: Option<Arc<Stall>>,
    waited: Waited,
}

impl<'a> Outputs<'a> {
    /// Creates the destinations. `is_clocked` states that calls of services are late by the node's clock.
    pub(crate) fn new(
        sink: &'a mut dyn Sink,
        events: &'a dyn Events,
        link: Option<Arc<Link>>,
        (is_clocked, stall): (bool, Option<Arc<Stall>>),
    ) -> Self {
        let measured = stall.clone().unwrap_or_default();
        let services = Services::new(is_clocked.then(|| measured.clone()));
        Self { sink, events, link, services, now_ns: 0, stall, waited: Waited::without(measured) }
    }

    /// Gives the sink to `act`, which may have to wait for whoever takes the rows.
    pub(crate) fn sink<T>(&mut self, act: impl FnOnce(&mut dyn Sink) -> T) -> T {
        stalling(self.stall.as_deref(), || act(self.sink))
    }

    /// Returns whether the files of the output are due to be completed.
    pub(crate) fn are_due(&self) -> bool {
        self.sink.due()
    }

    /// Returns whether the output takes no more.
    pub(crate) fn are_closed(&self) -> bool {
        self.sink.closed()
    }

    /// Advances packet time, in which frames leave to a capture file.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.services.advance(self.now_ns);
        if let Some(link) = &self.link {
            stalling(self.stall.as_deref(), || link.advance(self.now_ns));
        }
    }

    /// Returns the time for which the processes that are waited for could have worked. At most two seconds
    /// count between two calls.
    pub(crate) fn waited(&mut self) -> Duration {
        self.waited.look()
    }
}
