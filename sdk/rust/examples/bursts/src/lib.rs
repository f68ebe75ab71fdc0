//! Counts packets in windows of a timer: a row for each window that has many.

use flame_module::{Batch, Init, Module, Out, Progress, Timer};

flame_module::manifest!();

pub struct Bursts {
    window: Timer,
    least: u64,
    packets: u64,
}

impl Bursts {
    /// Ends the window of the packets so far if it has passed at `now_ns`.
    fn close(&mut self, now_ns: u64, out: &mut Out) {
        let Some(due) = self.window.poll(now_ns) else { return };
        let packets = std::mem::take(&mut self.packets);
        if packets >= self.least {
            out.write(&Burst { end_ns: due.first_ns, packets });
        }
    }
}

impl Module for Bursts {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        Self { window: Timer::every(params.window), least: params.least.into(), packets: 0 }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            self.close(packet.ts_ns, out);
            self.packets += 1;
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.close(now_ns, out);
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.close(u64::MAX, out);
        Progress::Done
    }
}

flame_module::export!(Bursts);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn a_window_with_many_packets_is_a_burst() {
        let parameters = Parameters::of(Params::DEFAULTS).integer("window", 10).integer("least", 2);
        let mut native = Native::<Bursts>::new(&parameters, 0);
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").at(1);
        for at in [2, 9, 10, 35, 36, 51] {
            traffic.again().at(at);
        }
        native.run(&traffic);
        native.tick(60);
        native.end(60);
        let rows = [(10, 3), (40, 2)].map(|(end_ns, packets)| Burst { end_ns, packets });
        assert_eq!(native.of::<Burst>(), rows);
    }
}
