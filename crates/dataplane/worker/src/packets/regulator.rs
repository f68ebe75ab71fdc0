//! The control of one pipeline: measures its modules, and lets the views leave out those that lose packets.

use crate::packets::overload::{Control, Overload};
use crate::packets::stage::ViewStage;
use crate::records::event::OverloadChange;
use flame_plan::ModuleId;
use std::time::{Duration, Instant};

/// Interval of measurements of the modules.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The control of one pipeline with its clock.
pub(crate) struct Regulator {
    control: Control,
    start: Instant,
    /// The time of the next measurement.
    sample_at: Duration,
    /// Whether there are two priorities.
    is_needed: bool,
    /// Whether a module was left out at the last block.
    is_applied: bool,
}

impl Regulator {
    /// Creates the control of one pipeline, unless it is off.
    pub(crate) fn new(overload: Overload) -> Option<Self> {
        Some(Self {
            control: Control::new(overload.fill()?),
            start: Instant::now(),
            sample_at: SAMPLE_INTERVAL,
            is_needed: false,
            is_applied: false,
        })
    }

    pub(crate) fn add(&mut self, id: ModuleId, priority: u32, views: &mut [ViewStage]) {
        self.control.add(id, priority);
        self.settle(views);
    }

    pub(crate) fn remove(&mut self, id: ModuleId, views: &mut [ViewStage]) {
        self.control.remove(id);
        self.settle(views);
    }

    /// Takes note of modules that came or went.
    fn settle(&mut self, views: &mut [ViewStage]) {
        self.is_needed = self.control.is_needed();
        self.apply(views);
    }

    /// Begins a block of the source. `fill` is the part of its buffer that waits, in thousandths.
    pub(crate) fn block(&mut self, fill: u32, views: &mut [ViewStage]) {
        if !self.is_needed {
            return;
        }
        let now = self.start.elapsed();
        if now >= self.sample_at {
            self.sample_at = now + SAMPLE_INTERVAL;
            self.sample(now, views);
        }
        self.control.block(nanoseconds(now), fill);
        self.apply(views);
    }

    /// Records that no packet waits.
    pub(crate) fn idle(&mut self, views: &mut [ViewStage]) {
        if self.is_needed {
            self.control.idle(nanoseconds(self.start.elapsed()));
            self.apply(views);
        }
    }

    /// Returns the next module that begins to lose packets or receives all again.
    pub(crate) fn take_change(&mut self) -> Option<OverloadChange> {
        self.control.take_change()
    }

    fn sample(&mut self, now: Duration, views: &mut [ViewStage]) {
        let mut pressed = None;
        for batches in views.iter_mut().flat_map(|view| &mut view.loops) {
            let sample = batches.sample();
            let priority = self.control.measure(batches.module(), sample.cost, sample.is_guaranteed);
            if sample.is_pressed && !sample.is_guaranteed {
                pressed = pressed.max(priority);
            }
        }
        if let Some(priority) = pressed {
            self.control.press(nanoseconds(now), priority);
        }
    }

    /// Lets the views give the present block to those modules only that receive it.
    fn apply(&mut self, views: &mut [ViewStage]) {
        let is_shedding = self.control.is_shedding();
        if is_shedding || self.is_applied {
            let leaves_out = |id| self.control.leaves_out(id);
            views.iter_mut().for_each(|view| view.leave_out(leaves_out));
        }
        self.is_applied = is_shedding;
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
