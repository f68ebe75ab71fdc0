//! A sink that first shows each batch to a function.

use super::{Sink, SinkError};
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_output::Packet;
use std::path::PathBuf;

/// Returns a sink that shows each batch to `wants` and writes those to `records` for which it returns true.
pub fn each(
    records: Box<dyn Sink>,
    mut wants: impl FnMut(&str, &Table, &RecordBatch) -> bool + Send + 'static,
) -> Box<dyn Sink> {
    map(
        records,
        move |module, table, batch, records| {
            if wants(module, table, batch) { records.write(module, table, batch) } else { Ok(()) }
        },
    )
}

/// Returns a sink that gives each batch to `write`, which writes to `records`.
pub(super) fn map(
    records: Box<dyn Sink>,
    write: impl FnMut(&str, &Table, &RecordBatch, &mut dyn Sink) -> Result<(), SinkError> + Send + 'static,
) -> Box<dyn Sink> {
    Box::new(Map { records, write })
}

struct Map<F> {
    records: Box<dyn Sink>,
    write: F,
}

impl<F> Sink for Map<F>
where
    F: FnMut(&str, &Table, &RecordBatch, &mut dyn Sink) -> Result<(), SinkError> + Send,
{
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        (self.write)(module, table, batch, &mut *self.records)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        self.records.packet(packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.records.flush()
    }

    fn passed(&mut self, now_ns: u64) {
        self.records.passed(now_ns);
    }

    fn due(&self) -> bool {
        self.records.due()
    }

    fn rotate(&mut self) -> Result<(), SinkError> {
        self.records.rotate()
    }

    fn size(&self) -> u64 {
        self.records.size()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.records.files()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.records.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.records.abandon()
    }

    fn closed(&self) -> bool {
        self.records.closed()
    }
}
