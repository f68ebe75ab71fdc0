//! An element that learns routes: at which input the packets of an address come. It writes them to memory
//! that it shares with the module `router`, and lets all packets pass.

use flame_module::{Batch, Forward, Init, Out, Progress, mix};

flame_module::manifest!();

/// The number of entries of the table, one for each of the lower values of an address' hash.
const ENTRIES: u64 = 4096;

#[derive(Default)]
pub struct Routes {
    learnt: u64,
}

impl Forward for Routes {
    fn new(_: &Init) -> Self {
        Self::default()
    }

    fn push(&mut self, input: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            if let Some(ip) = packet.ipv4() {
                let [a, b, c, d, ..] = ip.src().bytes;
                let address = u32::from_be_bytes([a, b, c, d]);
                // Of two addresses with one place, the later one has it.
                let at = (mix(address.into()) % ENTRIES) as usize * 8;
                let is_known = Shared::ROUTES.u32(at) == Some(address);
                Shared::ROUTES.set_u32(at, address);
                Shared::ROUTES.set_u32(at + 4, input + 1);
                self.learnt += u64::from(!is_known);
            }
            out.send(index, input);
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.write(&Learnt { addresses: self.learnt });
        Progress::Done
    }
}

flame_module::export!(forward = Routes);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{self, Parameters, Traffic};

    #[test]
    fn an_address_has_the_input_at_which_it_came_last() {
        let mut routes = Routes::new(&Init::new(&Parameters::default().init()));
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:4000", "10.0.0.2:53").payload(&[0; 22]);
        for input in [0, 1] {
            let sent = testing::push(&mut routes, input, &traffic);
            assert_eq!((sent.len(), sent[0].port), (1, input));
            let at = (mix(0x0a00_0001) % ENTRIES) as usize * 8;
            assert_eq!(Shared::ROUTES.u64(at), Some(u64::from(input + 1) << 32 | 0x0a00_0001));
        }
        assert_eq!(routes.learnt, 1);
    }
}
