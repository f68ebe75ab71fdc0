use crate::report::Events;
use crate::services::Services;
use flame_plan::ServiceTime;
use flame_record::Sink;
use flame_remote::{Stall, Stalled, Staller, Waited};
use flame_transmit::Link;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum time that counts between two looks at a clock. If it was longer, the program was suspended.
const LOOK: Duration = Duration::from_millis(250);

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
    /// The time for which the thread that collects is held up, if processes are waited for.
    staller: Option<Staller>,
    waited: Waited,
}

impl<'a> Outputs<'a> {
    /// Creates the destinations. `time` is the time of calls of services.
    pub(crate) fn new(
        sink: &'a mut dyn Sink,
        events: &'a dyn Events,
        link: Option<Arc<Link>>,
        time: ServiceTime,
        stall: Option<(Staller, Arc<Stall>)>,
    ) -> Self {
        let (staller, stall) = stall.unzip();
        let stall = stall.unwrap_or_else(Stall::none);
        let services = Services::new(time, Waited::without(stall.clone(), LOOK));
        Self { sink, events, link, services, now_ns: 0, staller, waited: Waited::without(stall, LOOK) }
    }

    /// Begins work that may take long, as that for a slow reader of the rows. Processes have to wait for it.
    pub(crate) fn hold_up(&self) -> Option<Stalled> {
        self.staller.as_ref().map(Staller::begin)
    }

    /// Returns the time for which processes that are waited for could have worked.
    pub(crate) fn waited(&mut self) -> Duration {
        self.waited.look(Instant::now())
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
