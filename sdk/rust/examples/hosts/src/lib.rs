//! Senders that were ever seen, in a set of fixed size that is kept over updates and restarts: `export`
//! writes the state as bytes, `import` checks and takes it. Senders that the set forgot are counted again if
//! they return, so the number of those that were forgotten is stated.

use flame_module::{Batch, Init, Ip, Map, Module, Out, Progress};

flame_module::manifest!();

/// The bytes of a host in the state, and those before the hosts.
const HOST: usize = 17;
const HEAD: usize = 16;

pub struct Hosts {
    packets: u64,
    /// The senders, with nothing about them.
    hosts: Map<Ip, ()>,
    count: u64,
}

impl Hosts {
    fn total(&self, out: &mut Out) {
        let forgotten = self.hosts.evicted;
        out.write(&Total { packets: self.packets, hosts: self.count, forgotten });
    }
}

impl Module for Hosts {
    fn new(_: &Init) -> Self {
        Self { packets: 0, hosts: Map::new(16_384), count: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets() {
            self.packets += 1;
            if let Some(src) = packet.src()
                && self.hosts.get(src).is_none()
            {
                self.hosts.or_insert(src, packet.ts_ns);
                self.count += 1;
            }
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        self.total(out);
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.total(out);
        Progress::Done
    }

    fn export(&mut self, state: &mut Vec<u8>) {
        state.extend(self.packets.to_le_bytes());
        state.extend(self.count.to_le_bytes());
        for (host, ()) in self.hosts.iter() {
            state.push(host.family);
            state.extend(host.bytes);
        }
    }

    fn import(&mut self, state: &[u8]) -> bool {
        let Some((head, hosts)) = state.split_first_chunk::<HEAD>() else { return false };
        let (hosts, rest) = hosts.as_chunks::<HOST>();
        let ([packets, count], _) = head.as_chunks::<8>() else { return false };
        if !rest.is_empty() || hosts.iter().any(|host| host[0] != 4 && host[0] != 6) {
            return false;
        }
        self.packets = u64::from_le_bytes(*packets);
        for [family, bytes @ ..] in hosts {
            self.hosts.or_insert(Ip { family: *family, bytes: *bytes }, 0);
        }
        self.count = u64::from_le_bytes(*count);
        true
    }
}

flame_module::export!(Hosts, state);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn the_next_instance_goes_on() {
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:1", "10.0.0.2:2");
        traffic.udp("[fd00::1]:1", "[fd00::2]:2");
        let mut first = Native::<Hosts>::new(&Parameters::default(), 0);
        first.run(&traffic);
        let (state, _) = first.export();
        assert_eq!(state.len(), HEAD + 2 * HOST);
        let mut second = Native::<Hosts>::new(&Parameters::default(), 0);
        for damaged in [&state[..15], &state[..state.len() - 1], &[0; HEAD + HOST][..]] {
            assert!(!second.import(damaged, &[]));
        }
        assert!(second.import(&state, &[]));
        second.run(&traffic);
        second.end(0);
        assert_eq!(second.of::<Total>(), [Total { packets: 4, hosts: 2, forgotten: 0 }]);
    }
}
