//! A sink that keeps what it gets until the next tick, when it is flushed.
//!
//! On a live link the time at which a row arrives would be that of a packet, more exactly than a grant shows
//! times. Rows and packets leave together at ticks, which fall on multiples of each grant's resolution. At
//! most [`MOST`] bytes are kept; of more, the oldest leave before.

use super::{Sink, SinkError};
use arrow_array::RecordBatch;
use flame_abi::LinkType;
use flame_abi::manifest::Table;
use flame_output::Packet;
use std::collections::VecDeque;
use std::path::PathBuf;

/// The maximum number of bytes that wait for a tick: as many as a grant lets out in 16 seconds, unless it
/// states other rates.
const MOST: usize = 64 << 20;

/// Returns a sink that gives rows and packets to `records` at ticks. A new file begins with those that wait.
pub fn at_ticks(records: Box<dyn Sink>) -> Box<dyn Sink> {
    Box::new(AtTicks { records, waiting: VecDeque::new(), bytes: 0 })
}

struct AtTicks {
    records: Box<dyn Sink>,
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

enum Waiting {
    Rows { module: String, table: Box<Table>, batch: RecordBatch },
    Packet { ts_ns: u64, wire_len: u32, link: LinkType, bytes: Vec<u8> },
}

impl Waiting {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Rows { batch, .. } => size_of::<Table>() + batch.get_array_memory_size(),
                Self::Packet { bytes, .. } => bytes.len(),
            }
    }
}

impl AtTicks {
    fn add(&mut self, next: Waiting) -> Result<(), SinkError> {
        self.bytes += next.bytes();
        self.waiting.push_back(next);
        self.release(MOST)
    }

    /// Passes the oldest ones on until at most `most` bytes wait.
    fn release(&mut self, most: usize) -> Result<(), SinkError> {
        while self.bytes > most {
            let Some(first) = self.waiting.pop_front() else { break };
            self.bytes -= first.bytes();
            match &first {
                Waiting::Rows { module, table, batch } => self.records.write(module, table, batch)?,
                Waiting::Packet { ts_ns, wire_len, link, bytes } => {
                    let (ts_ns, wire_len, link) = (*ts_ns, *wire_len, *link);
                    self.records.packet(Packet { ts_ns, wire_len, link, bytes })?;
                }
            }
        }
        Ok(())
    }
}

impl Sink for AtTicks {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let (module, table) = (module.to_owned(), Box::new(table.clone()));
        self.add(Waiting::Rows { module, table, batch: batch.clone() })
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        let Packet { ts_ns, wire_len, link, bytes } = packet;
        self.add(Waiting::Packet { ts_ns, wire_len, link, bytes: bytes.to_vec() })
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.release(0)?;
        self.records.flush()
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

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.release(0)?;
        self.records.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        self.records.abandon()
    }

    fn closed(&self) -> bool {
        self.records.closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// The bytes of packets that were written.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<usize>>>);

    impl Sink for Seen {
        fn write(&mut self, _: &str, _: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
            self.0.lock().unwrap().push(batch.num_rows());
            Ok(())
        }

        fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
            self.0.lock().unwrap().push(packet.bytes.len());
            Ok(())
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn nothing_leaves_between_ticks() {
        let seen = Seen::default();
        let of = || std::mem::take(&mut *seen.0.lock().unwrap());
        let mut sink = at_ticks(Box::new(seen.clone()));
        let packet = |bytes| Packet { ts_ns: 1, wire_len: 9, link: LinkType::ETHERNET, bytes };
        sink.packet(packet(&[0; 5])).unwrap();
        sink.rotate().unwrap();
        sink.packet(packet(&[0; 6])).unwrap();
        assert!(of().is_empty(), "neither by itself nor when a file is due");
        sink.flush().unwrap();
        assert_eq!(of(), [5, 6]);
        // More than may wait.
        let half = vec![0; MOST / 2];
        (0..3).for_each(|_| sink.packet(packet(&half)).unwrap());
        assert_eq!(of(), [MOST / 2; 2]);
        sink.finish().unwrap();
        assert_eq!(of(), [MOST / 2]);
    }
}
