//! SYNs from one host to many ports of another: a row when there are as many as the parameter states.

use flame_module::{Batch, Init, Ip, Map, Module, Out, tcp};

flame_module::manifest!();

pub struct Scans {
    most: u8,
    /// A bit for each port modulo 64, by source and destination.
    seen: Map<(Ip, Ip), u64>,
}

impl Module for Scans {
    fn new(init: &Init) -> Self {
        Self { most: Params::from(init).ports, seen: Map::new(1 << 16) }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            let (Some(syn), Some(src), Some(dst)) = (packet.tcp(), packet.src(), packet.dst()) else {
                continue;
            };
            if syn.flags() & (tcp::SYN | tcp::ACK) != tcp::SYN {
                continue;
            }
            let seen = self.seen.or_insert((src, dst), packet.ts_ns);
            let before = *seen;
            *seen |= 1 << (syn.dport() % 64);
            if *seen != before && seen.count_ones() == self.most.into() {
                out.write(&Scan { ts_ns: packet.ts_ns, src, dst, ports: self.most });
            }
        }
    }
}

flame_module::export!(Scans);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn a_scan_is_told_once() {
        let mut traffic = Traffic::default();
        for port in 1..60 {
            traffic.tcp("10.0.0.1:999", &format!("10.0.0.2:{port}")).tcp_flags(tcp::SYN);
            traffic.tcp(&format!("10.0.0.2:{port}"), "10.0.0.1:999").tcp_flags(tcp::RST);
            traffic.tcp("10.0.0.3:999", "10.0.0.2:80").tcp_flags(tcp::SYN);
        }
        let mut native = Native::<Scans>::new(&Parameters::of(Params::DEFAULTS), 0);
        native.run(&traffic);
        let [src, dst] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Ip::v4);
        assert_eq!(native.of::<Scan>(), [Scan { ts_ns: 57_000, src, dst, ports: 20 }]);
    }
}
