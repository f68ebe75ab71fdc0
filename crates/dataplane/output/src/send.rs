//! Packets that a module sends: the frames of kind [`SEND`], and which packets of a batch they name.

use crate::error::Fault;
use flame_abi::MAX_BATCH;
use flame_abi::output::{FRAME, MADE, SEND, SEND_HEAD};

/// The packets of a batch of which some were sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    count: u32,
    seen: [u64; MAX_BATCH / 64],
}

impl Sent {
    /// Returns a batch of `count` packets of which none was sent.
    pub fn of(count: u32) -> Self {
        Self { count, ..Self::default() }
    }

    /// Returns whether no packet from `count` on was sent.
    pub fn is_within(&self, count: u32) -> bool {
        let beyond = |(word, seen): (usize, &u64)| {
            let first = (count as usize).saturating_sub(word * 64);
            if first >= 64 { 0 } else { seen >> first }
        };
        self.seen.iter().enumerate().all(|each| beyond(each) == 0)
    }

    /// Records that `count` packets from `first` on are sent. Returns false, and records nothing, if one of
    /// them was sent before or is not in the batch.
    pub(crate) fn send_run(&mut self, first: u16, count: u16) -> bool {
        let (first, end) = (usize::from(first), usize::from(first) + usize::from(count));
        if end > self.count as usize || end > MAX_BATCH {
            return false;
        }
        // The bits of a word that lie in the run.
        let within = |word: usize| {
            let (from, to) = (first.max(word * 64), end.min(word * 64 + 64));
            if from >= to { 0 } else { u64::MAX >> (64 - (to - from)) << (from - word * 64) }
        };
        let is_new = self.seen.iter().enumerate().all(|(word, seen)| seen & within(word) == 0);
        if is_new {
            self.seen.iter_mut().enumerate().for_each(|(word, seen)| *seen |= within(word));
        }
        is_new
    }

    /// Records that a packet is sent.
    pub(crate) fn send(&mut self, index: u16) -> Result<(), Fault> {
        let (word, bit) = (usize::from(index) / 64, 1 << (index % 64));
        match self.seen.get_mut(word).filter(|_| u32::from(index) < self.count) {
            None => Err(Fault::Index { found: index, count: self.count }),
            Some(seen) if *seen & bit != 0 => Err(Fault::Twice { found: index }),
            Some(seen) => {
                *seen |= bit;
                Ok(())
            }
        }
    }
}

/// The head of the frame of a packet that is sent as it came.
const PLAIN_SEND: [u8; FRAME] = {
    let ([a, b, ..], [c, d]) = ((SEND_HEAD as u32).to_le_bytes(), SEND.to_le_bytes());
    [a, b, 0, 0, c, d, 0, 0]
};

/// Returns the index and the output of a packet of the batch that is sent as it came, and the output after
/// this frame; or `None` if the output begins with another frame.
#[inline]
pub fn plain_send(output: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (head, after) = output.split_first_chunk::<FRAME>()?;
    let ([a, b, c, d], rest) = after.split_first_chunk::<SEND_HEAD>()?;
    let (index, port) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
    (*head == PLAIN_SEND && index != MADE).then_some((index, port, rest))
}

/// Returns the first packet, the output and the number of the packets in `output`, if it consists of packets
/// of the batch that follow each other and are sent as they came.
pub(crate) fn run(output: &[u8]) -> Option<(u16, u16, u16)> {
    let (first, port, _) = plain_send(output)?;
    let (all, rest) = output.as_chunks::<{ FRAME + SEND_HEAD }>();
    let count = u16::try_from(all.len()).ok().filter(|count| rest.is_empty() && *count <= MADE - first)?;
    let [a, b] = port.to_le_bytes();
    let follows = |(at, frame): (u16, &[u8; FRAME + SEND_HEAD])| {
        let [c, d] = (first + at).to_le_bytes();
        frame[..FRAME] == PLAIN_SEND && frame[FRAME..] == [c, d, a, b]
    };
    (0..count).zip(all).all(follows).then_some((first, port, count))
}

/// Splits the payload of a packet that is sent: index, if it is one of the batch, output and bytes.
pub(crate) fn send(payload: &[u8]) -> Option<(Option<u16>, u16, &[u8])> {
    let ([a, b, c, d], bytes) = payload.split_first_chunk::<SEND_HEAD>()?;
    let index = u16::from_le_bytes([*a, *b]);
    Some(((index != MADE).then_some(index), u16::from_le_bytes([*c, *d]), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Schema, frames};
    use flame_abi::manifest::Manifest;
    use flame_plan::Forward;

    fn frame(index: u16, port: u16, bytes: &[u8]) -> Vec<u8> {
        let length = ((SEND_HEAD + bytes.len()) as u32).to_le_bytes();
        let head = [index.to_le_bytes(), port.to_le_bytes()].concat();
        [&length[..], &SEND.to_le_bytes(), &[0, 0], &head, bytes].concat()
    }

    /// Returns the number of frames before the first fault, as the rules of the ABI state them.
    fn expected(all: &[(u16, u16, &[u8])], rights: Forward) -> Result<usize, usize> {
        let mut sent = Vec::new();
        for (at, (index, port, bytes)) in all.iter().enumerate() {
            let is_right = match *index {
                MADE => rights.transmit && !bytes.is_empty(),
                index => index < 3 && !sent.contains(&index) && (rights.modify || bytes.is_empty()),
            };
            if *port >= 2 || !is_right {
                return Err(at);
            }
            sent.extend((*index != MADE).then_some(*index));
        }
        Ok(all.len())
    }

    /// All outputs of up to four frames: their faults are found where they are, and what is read is what was
    /// written, with and without the short way of frames without bytes.
    #[test]
    fn frames_without_bytes_are_checked_and_read_like_others() {
        let manifest = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n\
            [ports]\noutputs = 2\nmodify = true\ntransmit = true\n";
        let manifest = Manifest::parse(manifest.as_bytes()).unwrap();
        let kinds: [(u16, u16, &[u8]); 9] = [
            (0, 0, b""),
            (1, 1, b""),
            (2, 0, b""),
            (3, 0, b""),
            (0, 2, b""),
            (1, 0, b"bytes"),
            (MADE, 1, b"made"),
            (MADE, 0, b""),
            (2, 1, b"x"),
        ];
        let right = |n: usize| Forward { modify: n % 2 == 1, transmit: n > 1, hold: n > 1 };
        let numbers = (1..=4).flat_map(|count| (0..9_usize.pow(count) * 4).map(move |n| (count, n)));
        for (count, number) in numbers {
            let (rights, number) = (right(number % 4), number / 4);
            let some: Vec<_> = (0..count).map(|at| kinds[number / 9_usize.pow(at) % 9]).collect();
            let output: Vec<u8> = some.iter().flat_map(|(i, p, b)| frame(*i, *p, b)).collect();
            let schema = Schema::new(&manifest).forwarding(rights);
            let found = schema.check_sent(&output, false, Some(&mut Sent::of(3)));
            let found = found.map(|counts| counts.sent as usize).map_err(|e| e.frame);
            assert_eq!(found, expected(&some, rights), "{some:?} {rights:?}");
            let (mut rest, mut read) = (&output[..], Vec::new());
            while !rest.is_empty() {
                if let Some((index, port, next)) = plain_send(rest) {
                    read.push((index, port, &b""[..]));
                    rest = next;
                } else {
                    let mut others = frames(rest);
                    let Some(Frame::Send { packet, port, bytes }) = others.next() else { panic!("{some:?}") };
                    read.push((packet.unwrap_or(MADE), port, bytes));
                    rest = others.rest();
                }
            }
            assert_eq!(read, some);
        }
        for end in 0..12 {
            assert_eq!(plain_send(&frame(0, 0, b"")[..end]), None);
        }
    }

    /// Runs of any place and length, after any packet was sent alone: as one, or none of it if a packet of it
    /// may not be sent.
    #[test]
    fn a_run_is_sent_as_its_packets_are() {
        for count in [1, 63, 64, 65, 200, 256] {
            for alone in [None, Some(0), Some(62), Some(64), Some(130)] {
                for first in (0..count as u16 + 3).step_by(if count > 65 { 7 } else { 1 }) {
                    for length in [1, 2, 3, 61, 64, 65, 128, 192, 256, u16::MAX] {
                        let mut one_by_one = Sent::of(count);
                        alone.into_iter().for_each(|at| drop(one_by_one.send(at)));
                        let mut at_once = one_by_one;
                        let before = at_once.seen;
                        let each =
                            (first..first.saturating_add(length)).map(|at| one_by_one.send(at).is_ok());
                        let is_right = each.fold(true, |all, one| all & one) && u32::from(length) <= count;
                        let case = (count, alone, first, length);
                        assert_eq!(at_once.send_run(first, length), is_right, "{case:?}");
                        let expected = if is_right { one_by_one.seen } else { before };
                        assert_eq!(at_once.seen, expected, "{case:?}");
                    }
                }
            }
        }
        // The index of a new packet belongs to no run.
        let frames = |indices: [u16; 2]| indices.map(|index| frame(index, 1, b"")).concat();
        assert_eq!(run(&frames([7, 8])), Some((7, 1, 2)));
        assert_eq!(run(&frames([MADE - 2, MADE - 1])), Some((MADE - 2, 1, 2)));
        for others in [[7, 9], [8, 7], [7, 7], [MADE - 1, MADE], [MADE, 0]] {
            assert_eq!(run(&frames(others)), None, "{others:?}");
        }
        assert_eq!(run(&[frame(0, 1, b""), frame(1, 0, b"")].concat()), None);
        assert_eq!((run(b""), run(&frames([0, 1])[..23])), (None, None));
    }
}
