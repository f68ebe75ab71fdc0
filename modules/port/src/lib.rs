//! Counts packets to one TCP destination port, or with a given value in any field.
#![forbid(unsafe_code)]

pub mod field;

use field::Field;
use flame_module::{Batch, Init, Module, Out, Progress, Slow, cold, flags};
use tables::Params;

mod tables {
    flame_module::manifest!();
}

const TCP: u8 = 6;

/// The counter of one worker.
pub struct Port {
    port: u16,
    packets: u64,
    wire_bytes: u64,
    /// The number of packets in which the field is absent or hidden.
    without: u64,
    field: Option<Field>,
}

fn field(params: &Params<'_>) -> Option<Field> {
    Field::new(params).unwrap_or_else(|e| panic!("{e}"))
}

impl Module for Port {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        Self { port: params.port, packets: 0, wire_bytes: 0, without: 0, field: field(&params) }
    }

    fn batch(&mut self, batch: &Batch, _: &mut Out) {
        if let Some(field) = self.field {
            return self.by_field(field, batch);
        }
        for packet in batch.packets_together() {
            if packet.proto == TCP && packet.is_ip() && !packet.has(flags::LATER_FRAGMENT) {
                let to_port = packet.dport() == Some(self.port);
                self.packets += u64::from(to_port);
                self.wire_bytes += u64::from(packet.wire_len) * u64::from(to_port);
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.message(&[self.packets, self.wire_bytes, self.without].map(u64::to_le_bytes).concat());
        Progress::Done
    }
}

impl Port {
    /// Counts by any field, in a function of its own so that the loop for the port stays small.
    #[inline(never)]
    fn by_field(&mut self, field: Field, batch: &Batch) {
        cold();
        for packet in batch.packets_together() {
            match field.matches(&packet) {
                Some(true) => {
                    self.packets += 1;
                    self.wire_bytes += u64::from(packet.wire_len);
                }
                Some(false) => {}
                None => self.without += 1,
            }
        }
    }
}

/// The sums over all workers.
pub struct Total {
    port: u16,
    field: Option<Field>,
    /// Packets, bytes, and packets without the field.
    sums: [u64; 3],
}

impl Slow for Total {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        Self { port: params.port, field: field(&params), sums: [0; 3] }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        for (sum, number) in self.sums.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *sum += u64::from_le_bytes(*number);
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let [packets, wire_bytes, without] = self.sums;
        match self.field {
            None => out.write(&tables::Port { port: self.port, packets, wire_bytes }),
            Some(Field { base, offset, width, mask, value }) => out.write(&tables::Field {
                base,
                offset: offset as u16,
                width: width as u8,
                mask,
                value,
                packets,
                wire_bytes,
                without,
            }),
        };
        Progress::Done
    }
}

flame_module::export!(Port, slow = Total);

#[cfg(test)]
mod tests;
