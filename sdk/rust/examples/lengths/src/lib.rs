//! A histogram of packet lengths: descriptors only, and a row for each bin at every interval.

use flame_module::{Batch, Init, Module, Out, Progress};

flame_module::manifest!();

pub struct Lengths {
    per_interval: bool,
    bins: [u64; 32],
}

impl Module for Lengths {
    fn new(init: &Init) -> Self {
        Self { per_interval: init.interval_ns != 0, bins: [0; 32] }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            self.bins[(packet.wire_len | 1).ilog2() as usize] += 1;
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        if self.per_interval { self.end(now_ns, out) } else { Progress::Done }
    }

    fn end(&mut self, end_ns: u64, out: &mut Out) -> Progress {
        for (log, packets) in std::mem::take(&mut self.bins).into_iter().enumerate() {
            if packets > 0 {
                out.write(&Length { end_ns, at_least: 1 << log, packets });
            }
        }
        Progress::Done
    }
}

flame_module::export!(Lengths);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn each_interval_has_its_own_bins() {
        let mut native = Native::<Lengths>::new(&Parameters::default(), 10);
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(&[0; 22]);
        traffic.again();
        native.run(&traffic);
        native.tick(10);
        traffic.last().payload(&[0; 1000]);
        native.run(&traffic);
        native.end(13);
        let rows = [(10, 64, 2), (13, 64, 1), (13, 1024, 1)];
        let rows = rows.map(|(end_ns, at_least, packets)| Length { end_ns, at_least, packets });
        assert_eq!(native.of::<Length>(), rows);
    }
}
