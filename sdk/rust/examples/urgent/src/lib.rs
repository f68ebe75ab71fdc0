//! Counts packets by event queue: those of DNS wait in blocks of their own, so no flood displaces them.

use flame_module::{Batch, Init, Module, Out, Progress};

flame_module::manifest!();

#[derive(Clone, Copy, Default)]
struct Count {
    packets: u64,
    bytes: u64,
    lost: u64,
}

pub struct Urgent {
    dns: Count,
    rest: Count,
}

impl Module for Urgent {
    fn new(_: &Init) -> Self {
        Self { dns: Count::default(), rest: Count::default() }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        let count = if batch.queue() == Queue::DNS { &mut self.dns } else { &mut self.rest };
        count.lost += batch.lost();
        for packet in batch.packets() {
            count.packets += 1;
            count.bytes += u64::from(packet.wire_len);
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        for (queue, count) in [(TotalQueue::Dns, &mut self.dns), (TotalQueue::Rest, &mut self.rest)] {
            let Count { packets, bytes, lost } = std::mem::take(count);
            if packets + lost > 0 {
                out.write(&Total { now_ns, queue, packets, bytes, lost });
            }
        }
        Progress::Done
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.tick(now_ns, out)
    }
}

flame_module::export!(Urgent);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn packets_are_counted_by_queue() {
        let mut native = Native::<Urgent>::new(&Parameters::default(), 0);
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:1", "10.0.0.2:53");
        native.run_queue(Queue::DNS, &traffic);
        traffic.again();
        native.run_queue(Queue::REST, &traffic);
        native.tick(60);
        native.end(70);
        let rows = native.of::<Total>();
        assert_eq!(rows.iter().map(|row| row.packets).collect::<Vec<_>>(), [1, 2]);
    }
}
