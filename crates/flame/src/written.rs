//! The line about the packets that `-w` wrote.

use crate::console::complain;
use flame_abi::manifest::Table;
use flame_record::human::grouped;
use flame_record::{Packet, RecordBatch, Sink, SinkError};
use std::path::{Path, PathBuf};

/// Returns a sink that states at its end how many packets were written to `path`, and how many of them are
/// shorter than they were on the wire.
pub fn count(packets: Box<dyn Sink>, path: &Path) -> Box<dyn Sink> {
    Box::new(Counted { packets, path: path.to_owned(), written: 0, cut: 0 })
}

struct Counted {
    packets: Box<dyn Sink>,
    path: PathBuf,
    written: u64,
    cut: u64,
}

impl Sink for Counted {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        self.packets.write(module, table, batch)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        let is_cut = packet.bytes.len() < packet.wire_len as usize;
        self.packets.packet(packet)?;
        self.written += 1;
        self.cut += u64::from(is_cut);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.packets.flush()
    }

    fn due(&self) -> bool {
        self.packets.due()
    }

    fn rotate(&mut self) -> Result<(), SinkError> {
        self.packets.rotate()
    }

    fn passed(&mut self, now_ns: u64) {
        self.packets.passed(now_ns);
    }

    fn size(&self) -> u64 {
        self.packets.size()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.packets.files()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        let Self { packets, path, written, cut } = *self;
        packets.finish()?;
        let cut = match cut {
            0 => "none of them cut".to_owned(),
            cut => format!("{} of them cut, shorter than on the wire", grouped(cut)),
        };
        let place = match path.to_str() {
            Some("-") => "standard output".to_owned(),
            _ => path.display().to_string(),
        };
        complain!("flame: {} packets written to {place}, {cut}", grouped(written));
        Ok(())
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.packets.abandon()
    }

    fn closed(&self) -> bool {
        self.packets.closed()
    }
}
