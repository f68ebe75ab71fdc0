//! Answers ARP and ping for an address that no machine has: each answer is the question, turned round, on the
//! channel of its kind.

use flame_module::{Batch, Init, Module, Out};
use std::net::Ipv4Addr;

flame_module::manifest!();

/// The card that has the address: a local one.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

pub struct Echo([u8; 4]);

impl Module for Echo {
    fn new(init: &Init) -> Self {
        let address: Ipv4Addr = Params::from(init).address.parse().expect("address is one of IPv4");
        Self(address.octets())
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            // A packet that is longer than a frame of 1,514 bytes has no answer.
            let mut frame = [0; 1515];
            let len = packet.bytes().len().min(frame.len());
            let question = &mut frame[..len];
            question.copy_from_slice(&packet.bytes()[..len]);
            if len > 1514 {
                continue;
            }
            let Some(kind) = self.turn(question) else { continue };
            let channel = if kind == AnswerKind::Arp { Channel::ARP } else { Channel::ECHO };
            if out.send_on(channel, question) {
                out.write(&Answer {
                    ts_ns: packet.ts_ns,
                    to: packet.bytes()[6..12].try_into().unwrap(),
                    kind,
                });
            }
        }
    }
}

impl Echo {
    /// Makes an answer of a question for this address.
    fn turn(&self, frame: &mut [u8]) -> Option<AnswerKind> {
        let kind = match *frame {
            // ARP, request: the asker's addresses are the target's, and the sender's are this host's.
            [_, _, _, _, _, _, _, _, _, _, _, _, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, ..] => {
                let asker: [u8; 10] = frame.get(22..32)?.try_into().ok()?;
                let wanted = frame.get(38..42)? == self.0;
                frame[21] = 2;
                frame[22..28].copy_from_slice(&MAC);
                frame[28..32].copy_from_slice(&self.0);
                frame[32..42].copy_from_slice(&asker);
                wanted.then_some(AnswerKind::Arp)
            }
            // IPv4 without options and not a fragment, ICMP, echo request.
            [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, ..] => {
                let wanted = frame.get(30..34)? == self.0 && frame[23] == 1 && frame.get(34..36)? == [8, 0];
                let whole = frame[20] & 0x3f == 0 && frame[21] == 0;
                let (from, to) = frame[26..34].split_at_mut(4);
                from.swap_with_slice(to);
                frame[34] = 0;
                // A type that is less by 8 makes the checksum more by 0x0800 (RFC 1624).
                let sum = u32::from(u16::from_be_bytes(frame.get(36..38)?.try_into().ok()?)) + 0x0800;
                frame[36..38].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
                (wanted && whole).then_some(AnswerKind::Echo)
            }
            _ => None,
        };
        let asker: [u8; 6] = frame.get(6..12)?.try_into().ok()?;
        frame[..6].copy_from_slice(&asker);
        frame[6..12].copy_from_slice(&MAC);
        kind
    }
}

flame_module::export!(Echo);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::Descriptor;
    use flame_module::testing::{Native, Parameters};

    #[test]
    fn only_questions_for_the_address_are_answered() {
        let arp = |op: u8, to: [u8; 4]| {
            let head = [&[0xff; 6][..], &[9; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, op]].concat();
            [&head[..], &[9; 6], &[192, 0, 2, 1], &[0; 6], &to].concat()
        };
        let ping = |to: [u8; 4], kind: u8| {
            let head =
                [&MAC[..], &[9; 6], &[8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 1], &to];
            [&head.concat()[..], &[kind, 0, 0xf7, 0xf1, 0, 7, 0, 7]].concat()
        };
        let frames =
            [arp(1, [192, 0, 2, 2]), arp(1, [192, 0, 2, 3]), arp(2, [192, 0, 2, 2]), ping([192, 0, 2, 2], 8)];
        let more = [ping([192, 0, 2, 2], 0), ping([192, 0, 2, 3], 8), vec![0; 14], vec![8; 60]];
        let (mut memory, mut descriptors) = (Vec::new(), Vec::new());
        for frame in frames.iter().chain(&more) {
            let (addr, cap_len) = (memory.len() as u32, frame.len() as u32);
            descriptors.push(Descriptor { addr, cap_len, wire_len: cap_len, ..Descriptor::default() });
            memory.extend(frame);
        }
        let mut native = Native::<Echo>::new(&Parameters::of(Params::DEFAULTS), 0);
        native.packets(&descriptors, &memory);
        assert_eq!(native.sent.iter().map(|(channel, _)| *channel).collect::<Vec<_>>(), [0, 1]);
        let answer = &native.sent[0].1;
        assert_eq!(
            (&answer[..14], &answer[20..32]),
            (&[9, 9, 9, 9, 9, 9, 2, 0, 0, 0, 0, 7, 8, 6][..], &[0, 2, 2, 0, 0, 0, 0, 7, 192, 0, 2, 2][..],)
        );
        assert_eq!(answer[32..], [9, 9, 9, 9, 9, 9, 192, 0, 2, 1]);
        let answer = &native.sent[1].1;
        assert_eq!(answer[26..42], [192, 0, 2, 2, 192, 0, 2, 1, 0, 0, 0xff, 0xf1, 0, 7, 0, 7]);
        assert_eq!(native.of::<Answer>().len(), 2);
    }
}
