//! The shared state of the threads of a run.

use crate::error::RunError;
use crate::packets::closing::Closing;
use crate::packets::overload::Overload;
use crate::packets::read::ReadOptions;
use crate::packets::stage::PipelineOptions;
use crate::records::charge::Charging;
use crate::records::collect::Collector;
use crate::records::placed::Placed;
use crate::run::handle::Handle;
use crate::run::options::Options;
use flame_execute::{Shape, Stop};
use flame_plan::{Account, Discipline, ModuleId};
use flame_source::Source;

/// The accounts of the pipelines' modules, and the packet time at their end.
pub(crate) type Ends = (Vec<(ModuleId, Account)>, u64);

/// The data that the threads of a run share.
pub(crate) struct Wiring<'a> {
    pub(crate) shape: Shape,
    pub(crate) discipline: Discipline,
    pub(crate) modules: &'a [Placed],
    pub(crate) options: &'a Options,
    pub(crate) handle: &'a Handle,
    pub(crate) stop: &'a Stop<'a>,
    /// The end of the run, on request.
    pub(crate) closing: &'a Closing<'a>,
    /// The measurement of the threads' time, if there is one.
    pub(crate) charging: Option<&'a Charging>,
    pub(crate) overload: Overload,
}

impl<'a> Wiring<'a> {
    pub(crate) fn pipeline_options(&self, worker: usize, source: &dyn Source) -> PipelineOptions<'a> {
        PipelineOptions {
            shape: self.shape,
            worker,
            batch: self.options.batch,
            key: self.options.key.as_ref(),
            shared: source.shared(),
            discipline: self.discipline,
            stop: self.stop,
            overload: self.overload,
        }
    }

    /// Releases what the modules have reported, if the run has ended with their intervals.
    pub(crate) fn complete(&self, collector: &mut Collector<'_>) -> Result<(), RunError> {
        if self.closing.is_complete() { collector.complete() } else { Ok(()) }
    }

    pub(crate) fn read_options(&self) -> ReadOptions<'a> {
        ReadOptions {
            decapsulate: self.options.decapsulate,
            tick_ns: self.shape.tick_ns,
            interval_ns: match self.discipline {
                Discipline::File | Discipline::Pipe => self.shape.interval_ns,
                _ => 0,
            },
            count: self.options.count,
            closing: self.closing,
            progress: &self.handle.shared().progress,
            intervals: self.handle.shared(),
        }
    }
}
