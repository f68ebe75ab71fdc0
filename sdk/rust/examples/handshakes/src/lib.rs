//! Times from SYN to SYN-ACK: those under way lie in a `FlowTable`, found by the flow hash that both
//! directions share.

use flame_module::{Batch, Entry, FlowTable, Init, Module, Out, tcp};

flame_module::manifest!();

#[derive(Clone, Copy, Default)]
struct Syn {
    at: u64,
    /// The sequence number that the answer acknowledges.
    next: u32,
}

impl Entry for Syn {
    fn used(&self) -> u64 {
        self.at
    }
}

pub struct Handshakes(FlowTable<Syn>);

impl Module for Handshakes {
    fn new(init: &Init) -> Self {
        Self(FlowTable::new(1 << 14, Params::from(init).timeout))
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            let Some(tcp) = packet.tcp() else { continue };
            match tcp.flags() & (tcp::SYN | tcp::ACK) {
                tcp::SYN => {
                    let syn = Syn { at: packet.ts_ns, next: tcp.seq().wrapping_add(1) };
                    self.0.insert(packet.hash, packet.ts_ns, syn);
                }
                both if both == tcp::SYN | tcp::ACK => {
                    let found = self.0.find(packet.hash, packet.ts_ns, |syn| syn.next == tcp.ack());
                    let (Some(index), Some(server)) = (found, packet.src()) else { continue };
                    let time_ns = packet.ts_ns.saturating_sub(self.0.get(index).at) as i64;
                    self.0.remove(index);
                    out.write(&Answer { ts_ns: packet.ts_ns, server, port: tcp.sport(), time_ns });
                }
                _ => {}
            }
        }
    }
}

flame_module::export!(Handshakes);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::Ip;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn an_answer_is_timed_once_and_only_if_it_is_one() {
        let mut traffic = Traffic::default();
        traffic.tcp("10.0.0.1:999", "10.0.0.2:80").tcp_flags(tcp::SYN).seq(7).at(1_000);
        traffic.tcp("10.0.0.2:80", "10.0.0.1:999").tcp_flags(tcp::SYN | tcp::ACK).ack(9).at(2_000);
        traffic.tcp("10.0.0.2:80", "10.0.0.1:999").tcp_flags(tcp::SYN | tcp::ACK).ack(8).at(5_000);
        traffic.again();
        let mut native = Native::<Handshakes>::new(&Parameters::of(Params::DEFAULTS), 0);
        native.run(&traffic);
        let answer = Answer { ts_ns: 5_000, server: Ip::v4([10, 0, 0, 2]), port: 80, time_ns: 4_000 };
        assert_eq!(native.of::<Answer>(), [answer]);
    }
}
