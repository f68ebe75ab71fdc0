//! A message (RFC 1035, section 4.1): the first question, and the answers to it.

use crate::name::{self, LONGEST, Name, TEXT};
use flame_module::{FixedText, Ip};

/// The length of the header in bytes.
const HEADER: usize = 12;
/// The largest number of answers that are read. `answers` of a row has the number that the header states.
const ANSWERS: usize = 24;

/// The types whose answers have an address or a name.
mod kind {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
}

/// The header and the question of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub id: u16,
    pub is_answer: bool,
    pub opcode: u8,
    pub truncated: bool,
    pub rcode: u8,
    pub questions: u16,
    pub answers: u16,
    pub name: Name,
    pub kind: u16,
    pub class: u16,
    /// The offset of the first answer.
    end: usize,
}

impl Head {
    /// Returns the header and the first question, or `None` if the message is cut off before its end or its
    /// name is malformed. A message without a question (multicast DNS) has the name of its first answer.
    #[inline(never)]
    pub fn read(message: &[u8]) -> Option<Self> {
        let word = |at: usize| message.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let flags = word(2)?;
        let mut head = Self {
            id: word(0)?,
            is_answer: flags >> 15 != 0,
            opcode: (flags >> 11) as u8 & 15,
            truncated: flags >> 9 & 1 != 0,
            rcode: flags as u8 & 15,
            questions: word(4)?,
            answers: word(6)?,
            end: HEADER,
            ..Self::default()
        };
        word(10)?;
        if head.questions == 0 && head.answers == 0 {
            return Some(head);
        }
        let (name, at) = Name::read(message, HEADER)?;
        // The highest bit of a class is a mark in multicast DNS (RFC 6762, section 18.12).
        (head.name, head.kind, head.class) = (name, word(at)?, word(at + 2)?);
        if head.questions > 0 {
            head.end = at + 4;
        }
        // Almost all messages have one question (RFC 9619); multicast DNS may have several.
        for _ in 1..head.questions.min(16) {
            let next = Name::read(message, head.end).filter(|(_, at)| word(at + 2).is_some());
            // Behind a question that cannot be read, no answer is found either.
            head.end = next.map_or(message.len(), |(_, at)| at + 4);
        }
        Some(head)
    }
}

/// The addresses and names in the answers, separated by commas.
#[derive(Default)]
pub struct Answers {
    pub addresses: FixedText<{ 40 * ANSWERS }>,
    pub targets: FixedText<{ 2 * TEXT }>,
}

impl Answers {
    /// Returns them for a message, up to the first answer that is cut off or malformed.
    #[inline(never)]
    pub fn read(message: &[u8], head: &Head) -> Self {
        let mut all = Self::default();
        let mut at = head.end;
        for _ in 0..ANSWERS.min(usize::from(head.answers)) {
            match all.record(message, at) {
                Some(after) => at = after,
                None => break,
            }
        }
        all
    }

    #[inline(never)]
    fn record(&mut self, message: &[u8], at: usize) -> Option<usize> {
        let (_, at) = Name::read(message, at)?;
        let head: &[u8; 10] = message.get(at..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([head[8], head[9]]));
        let data = message.get(at + 10..at + 10 + len)?;
        let target = match (u16::from_be_bytes([head[0], head[1]]), len) {
            (kind::A, 4) => {
                comma(&mut self.addresses);
                self.addresses.push_ip(Ip::v4(*data.first_chunk()?));
                None
            }
            (kind::AAAA, 16) => {
                comma(&mut self.addresses);
                self.addresses.push_ip(Ip::v6(*data.first_chunk()?));
                None
            }
            (kind::CNAME | kind::PTR | kind::NS | kind::DNAME, _) => Some(0),
            (kind::MX, 3..) => Some(2),
            (kind::SRV, 7..) => Some(6),
            _ => None,
        };
        if let Some(skip) = target.filter(|_| !self.targets.is_full()) {
            let (name, _) = Name::read(message, at + 10 + skip)?;
            comma(&mut self.targets);
            name::push(&mut self.targets, &name);
        }
        Some(at + 10 + len)
    }
}

fn comma<const N: usize>(text: &mut FixedText<N>) {
    if !text.is_empty() {
        text.push(",");
    }
}

/// Returns the name of a type, as `AAAA`, or `TYPE123` if it has none here (RFC 3597).
#[inline(never)]
pub fn type_name(kind: u16, text: &mut FixedText<16>) {
    let name = match kind {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        10 => "NULL",
        12 => "PTR",
        13 => "HINFO",
        15 => "MX",
        16 => "TXT",
        17 => "RP",
        24 => "SIG",
        25 => "KEY",
        28 => "AAAA",
        29 => "LOC",
        33 => "SRV",
        35 => "NAPTR",
        39 => "DNAME",
        41 => "OPT",
        43 => "DS",
        44 => "SSHFP",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        50 => "NSEC3",
        51 => "NSEC3PARAM",
        52 => "TLSA",
        59 => "CDS",
        60 => "CDNSKEY",
        64 => "SVCB",
        65 => "HTTPS",
        99 => "SPF",
        249 => "TKEY",
        250 => "TSIG",
        251 => "IXFR",
        252 => "AXFR",
        255 => "ANY",
        256 => "URI",
        257 => "CAA",
        _ => {
            text.push("TYPE");
            return text.push_number(kind.into());
        }
    };
    text.push(name);
}

const _: () = assert!(LONGEST < 256);
