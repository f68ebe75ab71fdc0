//! Asks the service `names` for the name of each address that it sees for the first time. The address is the
//! token of the call, so nothing is kept until the outcome comes.

use flame_module::{Batch, Init, Ip, Module, Out, Outcome, Reply, Slow};
use std::collections::HashSet;

flame_module::manifest!();

/// The most addresses that are known. Further ones are not asked for.
const MOST: usize = 65_536;

pub struct Labels(HashSet<u32>);

impl Module for Labels {
    fn new(_: &Init) -> Self {
        Self(HashSet::new())
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            let Some(Ip { family: 4, bytes: [a, b, c, d, ..] }) = packet.dst() else { continue };
            let address = [a, b, c, d];
            if self.0.len() < MOST && self.0.insert(u32::from_be_bytes(address)) {
                out.call(Use::NAMES, u32::from_be_bytes(address).into(), &address);
            }
        }
    }
}

pub struct Named;

impl Slow for Named {
    fn new(_: &Init) -> Self {
        Self
    }

    fn message(&mut self, _: &[u8], _: &mut Out) {}

    fn done(&mut self, reply: &Reply<'_>, out: &mut Out) {
        let outcome = match reply.outcome {
            Outcome::Replied => HostOutcome::Replied,
            Outcome::Nobody => HostOutcome::Nobody,
            Outcome::Ended => HostOutcome::Ended,
            Outcome::Late => HostOutcome::Late,
            Outcome::Refused => HostOutcome::Refused,
        };
        let address = Ip::v4((reply.token as u32).to_be_bytes());
        // The service may send any bytes.
        out.write(&Host { address, name: std::str::from_utf8(reply.bytes).unwrap_or(""), outcome });
    }
}

flame_module::export!(Labels, slow = Named, done);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn each_address_is_asked_for_once() {
        let mut traffic = Traffic::default();
        for _ in 0..2 {
            traffic.tcp("10.0.0.1:999", "192.0.2.7:80");
        }
        let mut native = Native::<Labels, Named>::with_slow(&Parameters::default(), 0);
        native.run(&traffic);
        let token = u32::from_be_bytes([192, 0, 2, 7]).into();
        assert_eq!(native.calls, [(Use::NAMES, token, vec![192, 0, 2, 7])]);
        let reply = Reply { token, outcome: Outcome::Replied, lost: 0, bytes: b"www.example" };
        native.done(&reply);
        native.done(&Reply { outcome: Outcome::Late, bytes: b"\xff", ..reply });
        let address = Ip::v4([192, 0, 2, 7]);
        let rows = [("www.example", HostOutcome::Replied), ("", HostOutcome::Late)];
        assert_eq!(native.of::<Host>(), rows.map(|(name, outcome)| Host { address, name, outcome }));
    }
}
