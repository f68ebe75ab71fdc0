//! Bytes by sender, in a `Map` of fixed size: what a packet costs at most is known, and so is the memory.

use flame_module::{Batch, Init, Ip, Map, Module, Out, Progress};

flame_module::manifest!();

pub struct Talkers {
    least: u64,
    bytes: Map<Ip, u64>,
}

impl Module for Talkers {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        Self { least: params.least as u64, bytes: Map::new(params.hosts as usize) }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            if let Some(src) = packet.src() {
                *self.bytes.or_insert(src, packet.ts_ns) += u64::from(packet.wire_len);
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        for (&host, &bytes) in self.bytes.iter().filter(|(_, bytes)| **bytes >= self.least) {
            out.write(&Host { host, bytes });
        }
        out.write(&State { evicted: self.bytes.evicted });
        Progress::Done
    }
}

flame_module::export!(Talkers);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn bytes_are_added_up_and_small_senders_left_out() {
        let parameters = Parameters::of(Params::DEFAULTS).integer("least", 100);
        let mut native = Native::<Talkers>::new(&parameters, 0);
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:1", "10.0.0.2:2").payload(&[0; 100]);
        traffic.again();
        traffic.udp("10.0.0.2:2", "10.0.0.1:1");
        native.run(&traffic);
        native.end(0);
        assert_eq!(native.of::<Host>(), [Host { host: Ip::v4([10, 0, 0, 1]), bytes: 284 }]);
        assert_eq!(native.of::<State>(), [State { evicted: 0 }]);
    }
}
