//! Turns: blocks of a capture whose edges follow from its packets alone.
//!
//! The modules of a run are called one after the other for each block. So what one of them sees of another in
//! a shared area depends on the edges of blocks, and these on how the bytes of a capture arrive: from a file,
//! decompressed, or through a pipe. In turns, a replay is exact.
//!
//! Calls of services need no turns, for which packets of a slow pipe would have to wait: they are delivered
//! after as many packets, wherever blocks end.

use bytes::{Bytes, BytesMut};
use flame_abi::MAX_BLOCK_BYTES;
use flame_source::{Damage, Next, Notice, Progress, RawBlock, RawPacket, Source, SourceError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum number of packets of a turn. In a replay, calls of services are delivered after as many.
pub(crate) const TURN: usize = 256;

/// A source whose blocks are turns: [`TURN`] packets, or fewer at the end and before a packet of another link
/// type or one that would be too much.
pub(crate) struct Turns {
    source: Box<dyn Source>,
    stop: Arc<AtomicBool>,
    /// The block of the source, and the index of its first packet that was not given.
    block: RawBlock,
    at: usize,
    /// The packets of a turn that is not full, while nothing comes.
    open: Option<(Vec<RawPacket>, BytesMut)>,
    /// The result of the source after the packets that were gathered, which is returned after them.
    last: Option<Result<Next, SourceError>>,
}

impl Turns {
    /// A run that is stopped does not wait until a turn is full.
    pub(crate) fn new(source: Box<dyn Source>, stop: Arc<AtomicBool>) -> Self {
        Self { source, stop, block: RawBlock::default(), at: 0, open: None, last: None }
    }
}

/// Returns whether a packet belongs to the turn that has `turn` and these bytes.
fn fits(turn: &[RawPacket], bytes: usize, packet: &RawPacket) -> bool {
    let Some(last) = turn.last() else { return true };
    turn.len() < TURN && last.link == packet.link && bytes + packet.cap_len as usize <= MAX_BLOCK_BYTES
}

impl Source for Turns {
    fn next(&mut self, turn: &mut RawBlock) -> Result<Next, SourceError> {
        turn.packets.clear();
        turn.shared_offset = None;
        let mut bytes = match std::mem::take(&mut turn.data).try_into_mut() {
            Ok(buffer) => buffer,
            Err(_) => BytesMut::new(),
        };
        bytes.clear();
        if let Some((packets, of_packets)) = self.open.take() {
            (turn.packets, bytes) = (packets, of_packets);
        }
        loop {
            while let Some(packet) = self.block.packets.get(self.at) {
                if !fits(&turn.packets, bytes.len(), packet) {
                    turn.data = bytes.freeze();
                    return Ok(Next::Packets);
                }
                let from = packet.offset as usize;
                turn.packets.push(RawPacket { offset: bytes.len() as u32, ..*packet });
                bytes.extend_from_slice(&self.block.data[from..from + packet.cap_len as usize]);
                self.at += 1;
            }
            let is_waiting = !turn.packets.is_empty();
            let next = match self.last.take() {
                Some(next) => next,
                None if is_waiting && self.stop.load(Ordering::Relaxed) => Ok(Next::Packets),
                None => {
                    self.at = 0;
                    // Dropped, so that the source can use its memory again.
                    self.block.data = Bytes::new();
                    self.block.packets.clear();
                    match self.source.next(&mut self.block) {
                        Ok(Next::Packets) => continue,
                        // The turn is not ended by it: what modules read from each other must not depend on
                        // the time.
                        Ok(Next::Quiet) if is_waiting => {
                            self.open = Some((std::mem::take(&mut turn.packets), bytes));
                            return Ok(Next::Quiet);
                        }
                        next => next,
                    }
                }
            };
            if is_waiting {
                if !matches!(next, Ok(Next::Packets)) {
                    self.last = Some(next);
                }
                turn.data = bytes.freeze();
                return Ok(Next::Packets);
            }
            return next;
        }
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }

    fn close(&mut self) -> bool {
        // What was read is processed.
        if self.open.is_some() {
            self.last = Some(Ok(Next::End));
            return true;
        }
        self.source.close()
    }

    fn tell_when_quiet(&mut self) {
        self.source.tell_when_quiet();
    }

    fn damage(&self) -> &[Damage] {
        self.source.damage()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.source.take_notice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_abi::LinkType;

    /// Packets in blocks of given numbers of packets, and then an error. An empty one is a quiet time.
    struct Blocks(Vec<Vec<RawPacket>>);

    impl Source for Blocks {
        fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
            if self.0.is_empty() {
                return Err(SourceError::Empty { file: "made".to_owned() });
            }
            let (mut bytes, packets) = (Vec::new(), self.0.remove(0));
            if packets.is_empty() {
                return Ok(Next::Quiet);
            }
            for packet in packets {
                block.packets.push(RawPacket { offset: bytes.len() as u32, ..packet });
                bytes.resize(bytes.len() + packet.cap_len as usize, packet.ts_ns as u8);
            }
            block.data = bytes.into();
            Ok(Next::Packets)
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    /// Returns the turns of packets that arrive in blocks of `each`, as their times.
    fn turns(all: &[RawPacket], each: usize) -> Vec<Vec<u64>> {
        let blocks = Blocks(all.chunks(each).map(<[_]>::to_vec).collect());
        let mut source = Turns::new(Box::new(blocks), Arc::default());
        let (mut block, mut turns) = (RawBlock::default(), Vec::new());
        while let Ok(Next::Packets) = source.next(&mut block) {
            assert!(block.packets.iter().all(|p| {
                let bytes = &block.data[p.offset as usize..][..p.cap_len as usize];
                bytes.iter().all(|byte| *byte == p.ts_ns as u8)
            }));
            turns.push(block.packets.iter().map(|p| p.ts_ns).collect());
        }
        turns
    }

    #[test]
    fn edges_follow_from_packets_alone() {
        let packet = |n: u64| RawPacket {
            ts_ns: n,
            offset: 0,
            // Some turns are full by their bytes.
            cap_len: if n % 2000 < 600 { 1400 + n as u32 % 7 } else { 60 },
            wire_len: 1500,
            link: if n < 3333 { LinkType::ETHERNET } else { LinkType::RAW },
        };
        let all: Vec<_> = (0..5000).map(packet).collect();
        let whole = turns(&all, 5000);
        assert_eq!(whole.concat(), (0..5000).collect::<Vec<_>>(), "each packet once, in order");
        assert!(whole.iter().all(|turn| turn.len() <= TURN));
        assert!(whole.iter().any(|turn| turn.last() == Some(&3332)), "another link type");
        for each in [1, 3, 255, 256, 257, 1000] {
            assert_eq!(turns(&all, each), whole, "{each}");
        }
    }

    /// A turn goes on after a quiet time, and is given when the run ends in one.
    #[test]
    fn a_quiet_time_ends_no_turn_and_loses_none() {
        let packet = RawPacket { ts_ns: 1, offset: 0, cap_len: 60, wire_len: 60, link: LinkType::ETHERNET };
        let blocks = vec![vec![packet; 3], vec![], vec![packet; 2], vec![], vec![packet]];
        for closed_after in [1, 2, 9] {
            let mut source = Turns::new(Box::new(Blocks(blocks.clone())), Arc::default());
            let (mut block, mut found) = (RawBlock::default(), Vec::new());
            let end = loop {
                match source.next(&mut block) {
                    Ok(Next::Packets) => found.push(block.packets.len()),
                    Ok(Next::Quiet) => found.push(0),
                    end => break end.is_ok(),
                }
                if found.len() == closed_after {
                    assert!(source.close());
                }
            };
            let expected = match closed_after {
                1 => &[0, 3][..],
                2 => &[0, 0, 5],
                _ => &[0, 0, 6],
            };
            assert_eq!((&found[..], end), (expected, closed_after < 9), "{closed_after}");
        }
    }

    #[test]
    fn a_stopped_run_does_not_wait() {
        let packet = RawPacket { ts_ns: 1, offset: 0, cap_len: 60, wire_len: 60, link: LinkType::ETHERNET };
        let stop = Arc::new(AtomicBool::new(true));
        let mut source = Turns::new(Box::new(Blocks(vec![vec![packet]; 3])), stop);
        let mut block = RawBlock::default();
        assert!(matches!(source.next(&mut block), Ok(Next::Packets)));
        assert_eq!(block.packets.len(), 1);
    }
}
