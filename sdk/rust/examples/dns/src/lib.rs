//! Names that are asked for: text in a row, and loops with an end of their own.

use flame_module::{Batch, Init, Module, Out, proto};

flame_module::manifest!();

pub struct Dns;

impl Module for Dns {
    fn new(_: &Init) -> Self {
        Self
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets().filter(|p| p.proto == proto::UDP && p.dport() == Some(53)) {
            // Twelve bytes of header, then labels: a length and this many bytes each (RFC 1035).
            let (mut rest, mut name, mut used) = (packet.payload().get(12..).unwrap_or(&[]), [b'.'; 256], 0);
            while let Some((&len @ 1..=63, behind)) = rest.split_first() {
                let (Some(label), Some(place)) =
                    (behind.get(..len.into()), name.get_mut(used..used + usize::from(len)))
                else {
                    break;
                };
                place.copy_from_slice(label);
                (rest, used) = (&behind[label.len()..], used + label.len() + 1);
            }
            let (Some(client), &[0, high, low, ..]) = (packet.src(), rest) else { continue };
            let name = std::str::from_utf8(&name[..used.saturating_sub(1)]).unwrap_or("(not UTF-8)");
            out.write(&Question {
                ts_ns: packet.ts_ns,
                client,
                name,
                r#type: u16::from_be_bytes([high, low]),
            });
        }
    }
}

flame_module::export!(Dns);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::Ip;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn whole_questions_have_a_row() {
        let mut traffic = Traffic::default();
        let question = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x1c\0\x01";
        traffic.udp("10.0.0.1:999", "10.0.0.2:53").payload(question);
        traffic.udp("10.0.0.1:999", "10.0.0.2:53").payload(question).captured(60);
        traffic.udp("10.0.0.1:999", "10.0.0.2:53").payload(&[255; 500]);
        traffic.udp("10.0.0.2:53", "10.0.0.1:999").payload(question);
        let mut native = Native::<Dns>::new(&Parameters::default(), 0);
        native.run(&traffic);
        let client = Ip::v4([10, 0, 0, 1]);
        assert_eq!(native.of::<Question>(), [Question { ts_ns: 0, client, name: "www.example", r#type: 28 }]);
    }
}
