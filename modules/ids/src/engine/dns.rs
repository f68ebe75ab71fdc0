//! The names that a DNS message asks for (RFC 1035), as far as they lie in one packet.

use super::facts::{Facts, Group};

/// The port of DNS.
const PORT: u16 = 53;
/// The most questions of one message that are read, and the most messages of one packet.
const MOST: usize = 16;
/// The most bytes of a name, and the most pointers in it.
const NAME: usize = 255;
const POINTERS: usize = 8;

/// The names of a packet, each after a dot.
#[derive(Default)]
pub struct Names {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Names {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Reads a packet: the names of its queries, if it is DNS; the answer is whether it is.
    pub fn read(&mut self, f: &Facts<'_>) -> bool {
        self.clear();
        if f.ports.0 != PORT && f.ports.1 != PORT {
            return false;
        }
        match f.group {
            Group::Udp => self.message(f.payload).is_some(),
            Group::Tcp => {
                let mut rest = f.payload;
                let mut messages = 0;
                while let Some((length, after)) = rest.split_first_chunk() {
                    let length = usize::from(u16::from_be_bytes(*length));
                    let Some(message) = after.get(..length) else { break };
                    if messages == MOST || self.message(message).is_none() {
                        break;
                    }
                    messages += 1;
                    rest = &after[length..];
                }
                messages > 0
            }
            _ => false,
        }
    }

    /// Adds the names of a message if it is a query; `None` if it is not DNS.
    pub fn message(&mut self, message: &[u8]) -> Option<()> {
        let header = message.first_chunk::<12>()?;
        let is_query = header[2] & 0x80 == 0;
        // Opcodes up to 6 are assigned; the bit after the flags must be zero.
        let questions = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[2] >> 3 & 15 > 6 || header[3] & 0x40 != 0 || questions == 0 || questions > 256 {
            return None;
        }
        let before = (self.bytes.len(), self.ends.len());
        let mut at = 12;
        for _ in 0..questions.min(MOST) {
            match self.name(message, at) {
                Some(after) if message.len() >= after + 4 => at = after + 4,
                _ => {
                    self.bytes.truncate(before.0);
                    self.ends.truncate(before.1);
                    return None;
                }
            }
        }
        if !is_query {
            self.bytes.truncate(before.0);
            self.ends.truncate(before.1);
        }
        Some(())
    }

    /// Appends the name at `at` and returns the offset after it.
    fn name(&mut self, message: &[u8], mut at: usize) -> Option<usize> {
        let start = self.bytes.len();
        let (mut after, mut pointers) = (None, 0);
        self.bytes.push(b'.');
        loop {
            let length = usize::from(*message.get(at)?);
            match length >> 6 {
                0 if length == 0 => break,
                0 => {
                    let label = message.get(at + 1..at + 1 + length)?;
                    if self.bytes.len() > start + 1 {
                        self.bytes.push(b'.');
                    }
                    self.bytes.extend(label);
                    if self.bytes.len() > start + NAME {
                        return None;
                    }
                    at += 1 + length;
                }
                3 => {
                    let low = usize::from(*message.get(at + 1)?);
                    let to = (length & 0x3f) << 8 | low;
                    pointers += 1;
                    // A pointer leads back, so names end.
                    if to >= at || pointers > POINTERS {
                        return None;
                    }
                    after = after.or(Some(at + 2));
                    at = to;
                }
                _ => return None,
            }
        }
        self.ends.push(self.bytes.len());
        Some(after.unwrap_or(at + 1))
    }
}
