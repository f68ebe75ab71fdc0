//! An element that decides: each packet continues from one of two outputs, or is dropped.

use flame_module::{Batch, Forward, Init, Out, Progress, flags};

flame_module::manifest!();

pub struct Steer {
    port: u16,
    sent: [u64; 2],
}

impl Forward for Steer {
    fn new(init: &Init) -> Self {
        Self { port: Params::from(init).port, sent: [0; 2] }
    }

    fn push(&mut self, _input: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            if packet.flags & flags::MALFORMED != 0 {
                continue;
            }
            let is_port = [packet.sport(), packet.dport()].contains(&Some(self.port));
            let output = usize::from(!is_port);
            if out.send(index, output as u32) {
                self.sent[output] += 1;
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        for (output, packets) in (0..).zip(self.sent) {
            out.write(&Sent { output, packets });
        }
        Progress::Done
    }
}

flame_module::export!(forward = Steer);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{self, Parameters, Traffic};

    #[test]
    fn packets_of_the_port_leave_by_output_0() {
        let parameters = Parameters::of(Params::DEFAULTS).integer("port", 53);
        let mut steer = Steer::new(&Init::new(&parameters.init()));
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:4000", "10.0.0.2:53").payload(&[0; 22]);
        traffic.udp("10.0.0.1:4000", "10.0.0.2:80").payload(&[0; 22]);
        let sent = testing::push(&mut steer, 0, &traffic);
        let ways: Vec<_> = sent.iter().map(|sent| (sent.index, sent.port)).collect();
        assert_eq!(ways, [(Some(0), 0), (Some(1), 1)]);
    }
}
