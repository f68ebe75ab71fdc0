//! Records to one sink, packets to another.

use super::{Sink, SinkError};
use arrow_array::RecordBatch;
use flame_abi::manifest::Table;
use flame_output::Packet;
use std::path::PathBuf;

/// Returns a sink that passes records to `records` and packets to `packets`.
pub fn beside(records: Box<dyn Sink>, packets: Box<dyn Sink>) -> Box<dyn Sink> {
    Box::new(Beside { records, packets })
}

struct Beside {
    records: Box<dyn Sink>,
    packets: Box<dyn Sink>,
}

impl Sink for Beside {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        self.records.write(module, table, batch)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        self.packets.packet(packet)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.packets.flush()?;
        self.records.flush()
    }

    fn passed(&mut self, now_ns: u64) {
        self.packets.passed(now_ns);
        self.records.passed(now_ns);
    }

    fn due(&self) -> bool {
        self.packets.due() || self.records.due()
    }

    /// Completes the files that are due. If none is, somebody asks for all.
    fn rotate(&mut self) -> Result<(), SinkError> {
        let (packets, records) = (self.packets.due(), self.records.due());
        if packets || !records {
            self.packets.rotate()?;
        }
        if records || !packets {
            self.records.rotate()?;
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.packets.size().max(self.records.size())
    }

    fn files(&self) -> Vec<PathBuf> {
        [self.packets.files(), self.records.files()].concat()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.packets.finish()?;
        self.records.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        Ok([self.packets.abandon()?, self.records.abandon()?].concat())
    }

    fn closed(&self) -> bool {
        self.packets.closed() || self.records.closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A sink that counts how often its files are completed.
    struct Counted {
        is_due: bool,
        completed: Arc<AtomicU32>,
    }

    impl Sink for Counted {
        fn write(&mut self, _: &str, _: &Table, _: &RecordBatch) -> Result<(), SinkError> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }

        fn due(&self) -> bool {
            self.is_due
        }

        fn rotate(&mut self) -> Result<(), SinkError> {
            self.completed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    /// One output whose time has passed leaves the other's file as it is; a signal completes both.
    #[test]
    fn outputs_are_completed_when_they_are_due() {
        for (due, expected) in
            [([true, false], [1, 0]), ([false, true], [0, 1]), ([true; 2], [1; 2]), ([false; 2], [1; 2])]
        {
            let completed: [Arc<AtomicU32>; 2] = Default::default();
            let sink = |at: usize| Box::new(Counted { is_due: due[at], completed: completed[at].clone() });
            beside(sink(0), sink(1)).rotate().unwrap();
            assert_eq!(completed.map(|n| n.load(Ordering::Relaxed)), expected, "{due:?}");
        }
    }
}
