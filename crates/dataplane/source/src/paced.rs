//! paced: replays a capture file at the pace of its time stamps, as a source of a node.
//!
//! Usage:    in node.toml: [sources.NAME] with file = "FILE"; repeat = true begins again after the end;
//!           workers, cores, interval and snaplen as for an interface
//! Expects:  a capture file that the source `file` reads.
//! Gives:    packets at the pace of their time stamps, with the times of their replay, as if they arrived
//!           now. The node keeps running after the end of the file, and after damage, which ends the file.
//! Example:  flame node run -c node.toml
//! Related:  file, live

use crate::{Damage, FileOptions, Next, Progress, RawBlock, RawPacket, Source, SourceError};
use flame_plan::Discipline;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The delay behind the time stamps at which the replay counts as a full buffer. Nothing is lost then.
const LATE: Duration = Duration::from_secs(1);
/// The longest wait before [`Next::Idle`].
const WAIT: Duration = Duration::from_millis(20);

/// The replay of a file. Packets carry the time at which they are replayed.
pub struct Paced {
    path: PathBuf,
    repeat: bool,
    options: FileOptions,
    source: Option<Box<dyn Source>>,
    /// The block that was read, and the index of its first packet that is not due yet.
    block: RawBlock,
    at: usize,
    /// The difference between the time of replay and the time stamps, in nanoseconds.
    shift: Option<i128>,
    /// The time for which the last packet had been due when it was returned, in nanoseconds.
    late_ns: i128,
    progress: Progress,
    damage: Vec<Damage>,
    closed: bool,
}

impl Paced {
    /// Opens the file, so that its errors are found before packets are due.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`crate::open`].
    pub fn open(path: PathBuf, repeat: bool, snaplen: u32) -> Result<Self, SourceError> {
        let options = FileOptions { snaplen };
        let source = crate::open(std::slice::from_ref(&path), &options)?;
        Ok(Self {
            path,
            repeat,
            options,
            source: Some(source),
            block: RawBlock::default(),
            at: 0,
            shift: None,
            late_ns: 0,
            progress: Progress::default(),
            damage: Vec::new(),
            closed: false,
        })
    }

    /// Reads the next block of the file. Returns whether there is one.
    fn fill(&mut self) -> Result<bool, SourceError> {
        loop {
            let Some(source) = &mut self.source else { return Ok(false) };
            self.at = 0;
            if source.next(&mut self.block)? == Next::Packets {
                return Ok(true);
            }
            self.damage = source.damage().to_vec();
            self.source = None;
            if !self.repeat || self.progress.bytes == 0 {
                return Ok(false);
            }
            self.shift = None;
            self.progress.bytes = 0;
            self.source = Some(crate::open(std::slice::from_ref(&self.path), &self.options)?);
        }
    }
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i128
}

impl Source for Paced {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        block.packets.clear();
        block.shared_offset = None;
        if self.closed {
            return Ok(Next::End);
        }
        if self.at >= self.block.packets.len() && !self.fill()? {
            // The node keeps running after the end of the file.
            std::thread::sleep(WAIT);
            return Ok(Next::Idle);
        }
        let rest = &self.block.packets[self.at..];
        let first = i128::from(rest[0].ts_ns);
        let shift = *self.shift.get_or_insert_with(|| now_ns() - first);
        let due_in = first + shift - now_ns();
        if due_in > 0 {
            std::thread::sleep(WAIT.min(Duration::from_nanos(due_in as u64)));
        }
        let now = now_ns();
        let due = rest.iter().take_while(|p| i128::from(p.ts_ns) + shift <= now);
        let moved = |p: &RawPacket| RawPacket { ts_ns: (i128::from(p.ts_ns) + shift) as u64, ..*p };
        block.packets.extend(due.map(moved));
        self.at += block.packets.len();
        if block.packets.is_empty() {
            return Ok(Next::Idle);
        }
        self.late_ns = block.packets.last().map_or(0, |last| now - i128::from(last.ts_ns));
        block.data = self.block.data.clone();
        self.progress.bytes += block.packets.iter().map(|p| u64::from(p.cap_len)).sum::<u64>();
        Ok(Next::Packets)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn fill(&self) -> u32 {
        (self.late_ns * 1000 / LATE.as_nanos() as i128).clamp(0, 1000) as u32
    }

    fn is_ready(&self) -> bool {
        let Some(packet) = self.block.packets.get(self.at) else { return self.source.is_some() };
        self.shift.is_none_or(|shift| i128::from(packet.ts_ns) + shift <= now_ns())
    }

    fn close(&mut self) -> bool {
        self.closed = true;
        false
    }

    fn damage(&self) -> &[Damage] {
        &self.damage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replayed_at_its_pace_and_again() {
        let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../demo/demo.pcap");
        let count = |n: usize| {
            let mut source = Paced::open(demo.into(), true, 262_144).unwrap();
            let (mut block, mut packets) = (RawBlock::default(), Vec::new());
            while packets.len() < n {
                if source.next(&mut block).unwrap() == Next::Packets {
                    assert!(block.packets.iter().all(|p| i128::from(p.ts_ns) <= now_ns()));
                    packets.extend(block.packets.iter().map(|p| p.ts_ns));
                }
            }
            packets
        };
        let start = now_ns() as u64;
        let times = count(50);
        assert!(times.is_sorted() && times[0] >= start);
        let mut file = crate::open(&[demo.into()], &FileOptions { snaplen: 64 }).unwrap();
        let mut block = RawBlock::default();
        file.next(&mut block).unwrap();
        let gap = block.packets[49].ts_ns - block.packets[0].ts_ns;
        assert_eq!(times[49] - times[0], gap);
    }
}
