//! `dns`: names that clients ask for, the answers, and the time to them.
//!
//! Expects the payload of UDP, and of TCP segments that hold whole messages. Writes the tables `question`,
//! `client`, `name` and `state` of `module.toml`. The README describes them, the parameters and the memory.
#![forbid(unsafe_code)]

mod message;
mod name;
mod question;
mod sums;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use message::{Answers, Head};
pub use name::Name;
pub use sums::Merge;

use flame_module::{Batch, Init, Module, Out, Packet, Progress, proto};
use question::{Ends, Questions};
use sums::Sums;

/// The largest number of messages that are read from one TCP segment.
const MESSAGES: usize = 4;

/// The fast path.
pub struct Dns {
    worker: u32,
    questions: Questions,
    is_interval: bool,
    /// Messages that are cut off or malformed, and TCP segments that do not begin with a whole message.
    malformed: u64,
    partial: u64,
}

impl Module for Dns {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        Self {
            worker: init.worker,
            questions: Questions::new(&params, Sums::new(&params)),
            is_interval: init.interval_ns > 0,
            malformed: 0,
            partial: 0,
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        for packet in batch.packets() {
            // The ports are tested here, because a filter would not find them behind VLAN tags.
            match packet.proto {
                proto::UDP if has_port(&packet, &[53, 5353, 5355]) => self.packet(&packet, out),
                proto::TCP if has_port(&packet, &[53]) => self.packet(&packet, out),
                _ => {}
            }
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.questions.scan(now_ns, out);
        if self.is_interval {
            self.questions.sums.send(out);
        }
        Progress::Done
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        self.questions.scan(u64::MAX, out);
        self.questions.sums.send(out);
        let (evicted, evicted_sums) = (self.questions.evicted(), self.questions.sums.evicted());
        if self.malformed + self.partial + self.questions.repeated + evicted + evicted_sums > 0 {
            out.write(&tables::State {
                worker: self.worker,
                malformed: self.malformed,
                partial: self.partial,
                repeated: self.questions.repeated,
                evicted,
                evicted_sums,
            });
        }
        Progress::Done
    }
}

/// Returns whether one of the ports is among these.
#[inline]
fn has_port(packet: &Packet<'_>, ports: &[u16]) -> bool {
    let is = |port: Option<u16>| port.is_some_and(|port| ports.contains(&port));
    is(packet.sport()) || is(packet.dport())
}

impl Dns {
    #[inline(never)]
    fn packet(&mut self, packet: &Packet<'_>, out: &mut Out) {
        let (Some(ends), payload) = (Ends::of(packet), packet.payload()) else { return };
        if packet.proto == proto::UDP {
            self.message(packet, &ends, payload, out);
        } else {
            self.segment(packet, &ends, payload, out);
        }
    }

    /// Reads the messages of a TCP segment, each after its length (RFC 7766, section 8).
    fn segment(&mut self, packet: &Packet<'_>, ends: &Ends, payload: &[u8], out: &mut Out) {
        let mut rest = payload;
        for _ in 0..MESSAGES {
            let Some((len, after)) = rest.split_first_chunk() else { break };
            match after.split_at_checked(u16::from_be_bytes(*len).into()) {
                Some((message, next)) if message.len() >= 12 => {
                    self.message(packet, ends, message, out);
                    rest = next;
                }
                _ => {
                    self.partial += 1;
                    break;
                }
            }
        }
    }

    fn message(&mut self, packet: &Packet<'_>, ends: &Ends, message: &[u8], out: &mut Out) {
        match Head::read(message) {
            Some(head) if head.is_answer => self.questions.answer(packet, ends, &head, message, out),
            Some(head) => self.questions.ask(packet, ends, head, out),
            None => self.malformed += u64::from(!message.is_empty()),
        }
    }
}

flame_module::export!(Dns, slow = Merge);

#[cfg(test)]
mod tests;
