//! Questions that wait for their answers.

use crate::message::{Answers, Head, type_name};
use crate::name::{self, TEXT};
use crate::sums::Sums;
use crate::tables::{self, Params, QuestionOutcome as Outcome, QuestionRcode as Rcode, QuestionTransport};
use flame_module::{Entry, FixedText, FlowTable, Ip, Out, Packet, mix, proto};

/// The endpoints of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub src: Ip,
    pub sport: u16,
    pub dst: Ip,
    pub dport: u16,
}

impl Ends {
    /// Returns the endpoints of a packet whose header and ports are visible.
    pub fn of(packet: &Packet<'_>) -> Option<Self> {
        Some(Self { src: packet.src()?, sport: packet.sport()?, dst: packet.dst()?, dport: packet.dport()? })
    }

    fn reversed(&self) -> Self {
        Self { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport }
    }

    /// Returns whether the destination is a group of hosts: multicast DNS (RFC 6762) and LLMNR (RFC 4795).
    fn is_to_group(&self) -> bool {
        match self.dst.family {
            4 => self.dst.bytes[0] >> 4 == 14,
            _ => self.dst.bytes[0] == 0xff,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Question {
    /// The endpoints, from the client to the server.
    ends: Ends,
    first: u64,
    last: u64,
    head: Head,
    sent: u16,
    is_tcp: bool,
    /// Whether its answer came. It is kept until the timeout, so that a copy of the answer is known as one.
    is_answered: bool,
}

impl Entry for Question {
    fn used(&self) -> u64 {
        self.last
    }
}

pub struct Questions {
    waiting: FlowTable<Question>,
    timeout: u64,
    has_rows: bool,
    pub sums: Sums,
    /// Answers to questions that were answered before.
    pub repeated: u64,
}

impl Questions {
    pub fn new(params: &Params, sums: Sums) -> Self {
        Self {
            waiting: FlowTable::new(params.max_questions as usize, params.timeout),
            timeout: params.timeout,
            has_rows: params.questions,
            sums,
            repeated: 0,
        }
    }

    pub fn evicted(&self) -> u64 {
        self.waiting.evicted
    }

    /// Returns the hash under which a question waits. Many questions of one flow may wait at once.
    fn hash(packet: &Packet<'_>, head: &Head) -> u32 {
        mix(u64::from(packet.hash) << 16 | u64::from(head.id)) as u32
    }

    /// Takes a question in.
    #[inline(never)]
    pub fn ask(&mut self, packet: &Packet<'_>, ends: &Ends, head: Head, out: &mut Out) {
        let now = packet.ts_ns;
        let is_tcp = packet.proto == proto::TCP;
        let new = Question { ends: *ends, first: now, last: now, head, sent: 1, is_tcp, is_answered: false };
        if ends.is_to_group() {
            return self.finish(&new, Outcome::Group, None, out);
        }
        let hash = Self::hash(packet, &head);
        let name = head.name.lower();
        let is = |q: &Question| {
            q.head.id == head.id && q.ends == *ends && q.head.kind == head.kind && q.head.name.lower() == name
        };
        match self.waiting.find(hash, now, is) {
            Some(index) if !self.waiting.get(index).is_answered => {
                let question = self.waiting.get(index);
                question.last = question.last.max(now);
                question.sent = question.sent.saturating_add(1);
            }
            Some(index) => *self.waiting.get(index) = new,
            None => {
                let mut replaced = None;
                let timeout = self.timeout;
                self.waiting.insert_with(hash, now, new, |old| {
                    let is_late = now.saturating_sub(old.last) > timeout;
                    replaced = Some((*old, if is_late { Outcome::Unanswered } else { Outcome::Evicted }));
                });
                if let Some((old, outcome)) = replaced.filter(|(old, _)| !old.is_answered) {
                    self.finish(&old, outcome, None, out);
                }
            }
        }
    }

    /// Finds the question of an answer, and writes its row.
    #[inline(never)]
    pub fn answer(&mut self, packet: &Packet<'_>, ends: &Ends, head: &Head, message: &[u8], out: &mut Out) {
        let now = packet.ts_ns;
        let ends = ends.reversed();
        let name = head.name.lower();
        // Number and question must both be equal (RFC 5452, section 4.2). A server may leave the question
        // out when it reports an error.
        let is = |q: &Question| {
            let is_same = q.head.kind == head.kind && q.head.name.lower() == name;
            q.head.id == head.id && q.ends == ends && (head.questions == 0 || is_same)
        };
        let hash = Self::hash(packet, head);
        let reply = Some((head, message));
        match self.waiting.find(hash, now, is) {
            Some(index) if self.waiting.get(index).is_answered => self.repeated += 1,
            Some(index) => {
                let question = self.waiting.get(index);
                question.is_answered = true;
                let mut question = *question;
                question.last = now;
                self.finish(&question, Outcome::Answered, reply, out);
            }
            None => {
                let is_tcp = packet.proto == proto::TCP;
                let alone =
                    Question { ends, first: now, last: now, head: *head, is_tcp, ..Question::default() };
                self.finish(&alone, Outcome::Unasked, reply, out);
            }
        }
    }

    /// Ends the questions whose timeout is over.
    pub fn scan(&mut self, now: u64, out: &mut Out) {
        for place in 0..self.waiting.places() {
            let Some(question) = self.waiting.in_place(place) else { continue };
            if now.saturating_sub(question.last) <= self.timeout {
                continue;
            }
            let question = *question;
            self.waiting.remove(place);
            if !question.is_answered {
                self.finish(&question, Outcome::Unanswered, None, out);
            }
        }
    }

    /// Writes the row of a question. Of an answered one, `last` is the time of the answer.
    #[inline(never)]
    fn finish(&mut self, q: &Question, outcome: Outcome, reply: Option<(&Head, &[u8])>, out: &mut Out) {
        let time = match outcome {
            Outcome::Answered => q.last.saturating_sub(q.first),
            _ => 0,
        };
        let code = reply.map(|(head, _)| head.rcode);
        self.sums.add(q.ends.src, &q.head.name, outcome, code, time, q.last);
        if !self.has_rows {
            return;
        }
        let (mut name, mut kind) = (FixedText::<TEXT>::default(), FixedText::default());
        name::push(&mut name, &q.head.name);
        type_name(q.head.kind, &mut kind);
        let answers = reply.map_or_else(Answers::default, |(head, message)| Answers::read(message, head));
        out.write(&tables::Question {
            ts_ns: q.first,
            client: q.ends.src,
            cport: q.ends.sport,
            server: q.ends.dst,
            sport: q.ends.dport,
            transport: if q.is_tcp { QuestionTransport::Tcp } else { QuestionTransport::Udp },
            id: q.head.id,
            name: name.as_str(),
            r#type: kind.as_str(),
            class: q.head.class,
            outcome,
            rcode: code.map_or(Rcode::None, rcode),
            time_ns: time as i64,
            answers: reply.map_or(0, |(head, _)| head.answers),
            addresses: answers.addresses.as_str(),
            targets: answers.targets.as_str(),
            sent: q.sent,
            opcode: q.head.opcode,
            truncated: reply.is_some_and(|(head, _)| head.truncated),
        });
    }
}

/// Returns the word for a code (IANA, DNS parameters).
fn rcode(code: u8) -> Rcode {
    [
        Rcode::Noerror,
        Rcode::Formerr,
        Rcode::Servfail,
        Rcode::Nxdomain,
        Rcode::Notimp,
        Rcode::Refused,
        Rcode::Yxdomain,
        Rcode::Yxrrset,
        Rcode::Nxrrset,
        Rcode::Notauth,
        Rcode::Notzone,
        Rcode::N11,
        Rcode::N12,
        Rcode::N13,
        Rcode::N14,
        Rcode::N15,
    ][usize::from(code & 15)]
}
