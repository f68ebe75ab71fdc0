use crate::records::report::Events;
use crate::records::services::Services;
use flame_plan::ServiceTime;
use flame_plan::limits::COLLECTOR_CLOCK_STEP_MAX;
use flame_record::Sink;
use flame_remote::{PausableClock, Stall, StallGuard, StallRecorder};
use flame_transmit::Link;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// Records when the thread that collects is busy, if processes are waited for.
    recorder: Option<StallRecorder>,
    /// The clock of those waits.
    clock: PausableClock,
}

impl<'a> Outputs<'a> {
    /// Creates the destinations. `time` is the time of calls of services.
    pub(crate) fn new(
        sink: &'a mut dyn Sink,
        events: &'a dyn Events,
        link: Option<Arc<Link>>,
        time: ServiceTime,
        stall: Option<(StallRecorder, Arc<Stall>)>,
    ) -> Self {
        let (recorder, stall) = stall.unzip();
        let stall = stall.unwrap_or_else(Stall::none);
        let clock = || PausableClock::new(stall.clone(), COLLECTOR_CLOCK_STEP_MAX);
        let (services, clock) = (Services::new(time, clock()), clock());
        Self { sink, events, link, services, now_ns: 0, recorder, clock }
    }

    /// Begins work that may take long, as when the rows have a slow reader. Processes have to wait for it.
    pub(crate) fn begin_stall(&self) -> Option<StallGuard> {
        self.recorder.as_ref().map(StallRecorder::begin)
    }

    /// Returns the time for which processes that are waited for could have worked.
    pub(crate) fn waited(&mut self) -> Duration {
        self.clock.read(Instant::now())
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
