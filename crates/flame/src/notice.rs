//! Rows of tables `notice` on standard error: what a module has to say to people, whatever the format of
//! records. Only for modules of the operator; under a grant, text that a module composes leaves in records
//! alone.

use crate::console::complain;
use flame_abi::manifest::Table;
use flame_record::{Packet, RecordBatch, Sink, SinkError};
use std::path::PathBuf;

/// The name of the table, and of its column.
const TABLE: &str = "notice";
const COLUMN: &str = "text";
/// The number of rows that are printed.
const MOST: usize = 64;

/// Returns a sink that passes records to `records` and prints notices.
pub fn tee(records: Box<dyn Sink>) -> Box<dyn Sink> {
    Box::new(Tee { records, printed: 0 })
}

struct Tee {
    records: Box<dyn Sink>,
    printed: usize,
}

impl Sink for Tee {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        if table.name == TABLE {
            for text in flame_record::texts(batch, COLUMN) {
                if self.printed < MOST {
                    complain!("flame: {module}: {text}");
                    self.printed += 1;
                }
            }
        }
        self.records.write(module, table, batch)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        self.records.packet(packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.records.flush()
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
