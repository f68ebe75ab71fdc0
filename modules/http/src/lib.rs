//! Packets to one TCP destination port.

use flame_module::{Batch, Init, Module, Out, Progress, Slow, flags};

const TCP: u8 = 6;

/// Counts on one worker.
pub struct Http {
    port: u16,
    packets: u64,
    wire_bytes: u64,
}

impl Module for Http {
    fn new(init: &Init) -> Self {
        Self { port: init.integer("port") as u16, packets: 0, wire_bytes: 0 }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        for packet in batch.packets_together() {
            if packet.proto == TCP && packet.is_ip() && !packet.has(flags::LATER_FRAGMENT) {
                let to_port = packet.dport() == Some(self.port);
                self.packets += u64::from(to_port);
                self.wire_bytes += u64::from(packet.wire_len) * u64::from(to_port);
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.message(&[self.packets.to_le_bytes(), self.wire_bytes.to_le_bytes()].concat());
        Progress::Done
    }
}

/// Adds up the workers.
pub struct Total {
    port: u16,
    packets: u64,
    wire_bytes: u64,
}

impl Slow for Total {
    fn new(init: &Init) -> Self {
        Self { port: init.integer("port") as u16, packets: 0, wire_bytes: 0 }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        self.packets += number(0);
        self.wire_bytes += number(8);
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.row(0).u16(self.port).u64(self.packets).u64(self.wire_bytes).finish();
        Progress::Done
    }
}

flame_module::export!(Http, slow = Total);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::Descriptor;
    use flame_module::testing::{Native, Parameters};

    #[test]
    fn only_the_destination_port_of_tcp_counts() {
        // Four packets of one byte layout: ports 1 to 80, and 80 to 1; the last two are not TCP.
        let mut memory = Vec::new();
        let mut packets = Vec::new();
        for (ports, proto, extra) in [
            ([0, 1, 0, 80], TCP, 0),
            ([0, 80, 0, 1], TCP, 0),
            ([0, 1, 0, 80], 17, 0),
            ([0, 1, 0, 80], TCP, flags::LATER_FRAGMENT),
        ] {
            packets.push(Descriptor {
                addr: memory.len() as u32,
                cap_len: 24,
                wire_len: 60,
                l4: 20,
                proto,
                flags: flags::IPV4 | extra,
                ..Descriptor::default()
            });
            memory.extend([0; 20]);
            memory.extend(ports);
        }
        let mut native = Native::<Http, Total>::with_slow(&Parameters::default().integer("port", 80), 0);
        native.packets(&packets, &memory);
        native.end(0);
        let row = &native.rows[0];
        assert_eq!((row.integer(0, 2), row.integer(2, 8), row.integer(10, 8)), (80, 1, 60));
    }
}
