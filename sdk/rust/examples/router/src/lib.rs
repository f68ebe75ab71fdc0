//! An element that forwards by a table that another module has learnt, in memory that both share.

use flame_module::{Batch, Forward, Init, Ip, Out, Progress, mix};

flame_module::manifest!();

/// The number of entries of the table, one for each of the lower values of an address' hash.
const ENTRIES: u64 = 4096;

/// The output for addresses that the table does not have.
const UNKNOWN: u32 = 2;

#[derive(Default)]
pub struct Router {
    sent: [u64; 3],
}

/// Returns the output for an address. The table is the other module's, so its values are checked.
fn output(address: Ip) -> u32 {
    let [a, b, c, d, ..] = address.bytes;
    let address = u32::from_be_bytes([a, b, c, d]);
    let at = (mix(address.into()) % ENTRIES) as usize * 8;
    match (Shared::ROUTES.u32(at), Shared::ROUTES.u32(at + 4)) {
        (Some(found), Some(input @ 1..=UNKNOWN)) if found == address => input - 1,
        _ => UNKNOWN,
    }
}

impl Forward for Router {
    fn new(_: &Init) -> Self {
        Self::default()
    }

    fn push(&mut self, _input: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            let output = packet.ipv4().map_or(UNKNOWN, |ip| output(ip.dst()));
            if out.send(index, output) {
                self.sent[output as usize] += 1;
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

flame_module::export!(forward = Router);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{self, Parameters, Traffic};

    #[test]
    fn packets_leave_by_the_table() {
        let mut router = Router::new(&Init::new(&Parameters::default().init()));
        let mut traffic = Traffic::default();
        for address in ["10.0.0.1:53", "10.0.0.2:53", "10.0.0.3:53"] {
            traffic.udp("10.0.0.9:4000", address).payload(&[0; 22]);
        }
        // The third has an output that the module does not have.
        for (address, value) in [(0x0a00_0001_u32, 1_u32), (0x0a00_0002, 2), (0x0a00_0003, 9)] {
            let at = (mix(address.into()) % ENTRIES) as usize * 8;
            testing::set_shared(&Shared::ROUTES, at, &[address.to_le_bytes(), value.to_le_bytes()].concat());
        }
        let ways: Vec<_> = testing::push(&mut router, 0, &traffic).iter().map(|sent| sent.port).collect();
        assert_eq!(ways, [0, 1, UNKNOWN]);
    }
}
