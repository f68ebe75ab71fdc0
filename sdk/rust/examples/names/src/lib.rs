//! Serves names: DNS answers with addresses go to the slow instance, and other modules ask it for the name of
//! an address.

use flame_module::{Batch, HashMap, Init, Module, Out, Progress, Request, Slow};

flame_module::manifest!();

/// The most names that are kept. Later ones have no place.
const MOST: usize = 65_536;

pub struct Answers;

impl Module for Answers {
    fn new(_: &Init) -> Self {
        Self
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            if let Some((address, name)) = answer(packet.payload()) {
                out.message(&[&address[..], name.join(&b'.').as_slice()].concat());
            }
        }
    }
}

/// Returns the address in the first answer of a message with one question, and the labels of the question.
fn answer(message: &[u8]) -> Option<([u8; 4], Vec<&[u8]>)> {
    // A response without an error to one question, with an answer (RFC 1035).
    let ([_, _, kind, flags, 0, 1, answers @ ..], rest) = message.split_first_chunk::<12>()? else {
        return None;
    };
    let is_answer = kind & 0x80 != 0 && flags & 15 == 0 && answers[..2] != [0, 0];
    let (mut labels, mut rest) = (Vec::new(), is_answer.then_some(rest)?);
    while let (&len @ 1..=63, behind) = rest.split_first()? {
        let (label, behind) = behind.split_at_checked(len.into())?;
        labels.push(label);
        rest = behind;
    }
    // The end of the name, type and class, then a pointer to the name, type A, class, lifetime and length.
    match rest {
        [0, 0, 1, 0, 1, 0xc0, 12, 0, 1, 0, 1, _, _, _, _, 0, 4, a, b, c, d, ..] => {
            Some(([*a, *b, *c, *d], labels))
        }
        _ => None,
    }
}

pub struct Names {
    names: HashMap<[u8; 4], Vec<u8>>,
    served: u64,
}

impl Slow for Names {
    fn new(_: &Init) -> Self {
        Self { names: HashMap::new(), served: 0 }
    }

    fn message(&mut self, bytes: &[u8], _: &mut Out) {
        let Some((address, name)) = bytes.split_first_chunk() else { return };
        if self.names.len() < MOST || self.names.contains_key(address) {
            self.names.insert(*address, name.to_vec());
        }
    }

    fn serve(&mut self, request: &Request<'_>, out: &mut Out) {
        // Other modules send any bytes.
        let address = <&[u8; 4]>::try_from(request.bytes).ok();
        let name = address.and_then(|address| self.names.get(address));
        out.reply(request.call, name.map_or(&[], |name| name));
        self.served += 1;
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        out.write(&Total { names: self.names.len() as u64, served: self.served });
        Progress::Done
    }
}

flame_module::export!(Answers, slow = Names, serve);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{Native, Parameters, Traffic};

    #[test]
    fn the_last_answer_names_an_address() {
        let mut traffic = Traffic::default();
        let head = b"\0\x01\x81\x80\0\x01\0\x01\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
        let record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x07";
        let message = [&head[..], record].concat();
        traffic.udp("10.0.0.2:53", "10.0.0.1:999").payload(&message);
        traffic.udp("10.0.0.2:53", "10.0.0.1:999").payload(&message[..40]);
        traffic.udp("10.0.0.2:53", "10.0.0.1:999").payload(&[255; 500]);
        let mut native = Native::<Answers, Names>::with_slow(&Parameters::default(), 0);
        native.run(&traffic);
        for (call, bytes) in [(0, &[192, 0, 2, 7][..]), (1, &[192, 0, 2, 8]), (2, &[1; 5])] {
            native.serve(&Request { call, service: Service::NAMES, bytes });
        }
        assert_eq!(native.replies, [(0, b"www.example".to_vec()), (1, vec![]), (2, vec![])]);
        native.end(1);
        assert_eq!(native.of::<Total>(), [Total { names: 1, served: 3 }]);
    }
}
