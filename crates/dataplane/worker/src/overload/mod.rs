//! Sheds packets of modules of low priority while a worker is behind.
//!
//! [`Overload`] is the option. The [`Regulator`] of a pipeline measures its modules, and lets `control`
//! decide once for each of the source's blocks.

mod control;
#[cfg(test)]
mod tests;

pub(crate) use control::Change;

use crate::stage::ViewStage;
use control::Control;
use flame_plan::ModuleId;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The time between two measurements of the modules.
const SAMPLE: Duration = Duration::from_millis(100);

/// The fill of a live source's buffer from which on modules of lower priorities receive no packets, in
/// percent. Captures are read as fast as the modules work, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload(Option<u8>);

impl Default for Overload {
    fn default() -> Self {
        Self(Some(50))
    }
}

impl Overload {
    /// The option by which the kernel alone drops packets, for all modules.
    pub const OFF: Self = Self(None);
    const RANGE: std::ops::RangeInclusive<u8> = 10..=90;

    /// Returns the control of one pipeline, unless it is off.
    pub(crate) fn regulator(self) -> Option<Regulator> {
        let control = Control::new(u32::from(self.0?) * 10);
        Some(Regulator {
            control,
            start: Instant::now(),
            sample_at: SAMPLE,
            is_needed: false,
            is_applied: false,
        })
    }
}

impl FromStr for Overload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::OFF);
        }
        let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
        match percent.filter(|n| Self::RANGE.contains(n)) {
            Some(percent) => Ok(Self(Some(percent))),
            None => {
                let (least, most) = (Self::RANGE.start(), Self::RANGE.end());
                Err(format!("{text:?}: expected \"off\" or a fill from \"{least}%\" to \"{most}%\""))
            }
        }
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(percent) => write!(f, "{percent}%"),
            None => f.write_str("off"),
        }
    }
}

/// The measurement of one module since the last one.
pub(crate) struct Sample {
    /// The time for a packet in picoseconds, if it was offered any.
    pub(crate) cost: Option<u64>,
    /// Whether it lost blocks of its own because others have the processor.
    pub(crate) is_pressed: bool,
    /// Whether the kernel guarantees its processor time.
    pub(crate) is_guaranteed: bool,
}

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
            self.sample_at = now + SAMPLE;
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
    pub(crate) fn take_change(&mut self) -> Option<Change> {
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
