//! capture: writes the packets that modules emit to a pcapng file.
//!
//! Usage:    -w FILE, in addition to --format and -o for records
//! Expects:  a module whose manifest has packets = true, such as anonymize. Under a grant: packets in calls,
//!           and at most transmit bytes a second.
//! Gives:    one section, an interface for each link type from its first packet on, times in nanoseconds
//!           (draft-ietf-opsawg-pcapng). The file receives its name when the run succeeds.
//! Example:  flame run anonymize -r FILE -w OUT.pcapng --set anonymize.key=@KEY
//! Related:  anonymize (module), file (source)

use super::out::Out;
use super::{Sink, SinkError};
use arrow_array::RecordBatch;
use flame_abi::LinkType;
use flame_abi::manifest::Table;
use flame_output::Packet;
use std::path::{Path, PathBuf};

struct Capture {
    records: Box<dyn Sink>,
    out: Out,
    interfaces: Vec<LinkType>,
}

/// Writes packets to `path`, by the same rules as records to files, and passes records on to `records`.
pub fn capture(path: &Path, records: Box<dyn Sink>) -> Result<Box<dyn Sink>, SinkError> {
    let path = Some(path).filter(|p| p.as_os_str() != "-");
    let mut capture = Capture { records, out: Out::open(path)?, interfaces: Vec::new() };
    // Byte order, version 1.0, length unknown.
    let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    capture.write(0x0a0d_0d0a, &section, &[])?;
    Ok(Box::new(capture))
}

impl Capture {
    /// Writes a block: type, length, body padded to 32 bits, length. `head` has at most 32 bytes.
    fn write(&mut self, kind: u32, head: &[u8], rest: &[u8]) -> Result<(), SinkError> {
        let body = head.len() + rest.len();
        let length = (12 + body.next_multiple_of(4)) as u32;
        let mut start = [0; 40];
        start[..4].copy_from_slice(&kind.to_le_bytes());
        start[4..8].copy_from_slice(&length.to_le_bytes());
        start[8..8 + head.len()].copy_from_slice(head);
        let mut end = [0; 8];
        let padding = body.next_multiple_of(4) - body;
        end[padding..padding + 4].copy_from_slice(&length.to_le_bytes());
        self.out.write(&start[..8 + head.len()])?;
        self.out.write(rest)?;
        self.out.write(&end[..padding + 4])
    }

    fn interface(&mut self, link: LinkType) -> Result<u32, SinkError> {
        if let Some(known) = self.interfaces.iter().position(|l| *l == link) {
            return Ok(known as u32);
        }
        let [a, b] = link.0.to_le_bytes();
        // No limit on the length of packets; option 9 (if_tsresol) is one byte, 10^-9; end of options.
        self.write(1, &[a, b, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0], &[])?;
        self.interfaces.push(link);
        Ok(self.interfaces.len() as u32 - 1)
    }
}

impl Sink for Capture {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        self.records.write(module, table, batch)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        let interface = self.interface(packet.link)?;
        let words = [
            interface,
            (packet.ts_ns >> 32) as u32,
            packet.ts_ns as u32,
            packet.bytes.len() as u32,
            packet.wire_len.max(packet.bytes.len() as u32),
        ];
        let mut head = [0; 20];
        head.chunks_exact_mut(4)
            .zip(words)
            .for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        self.write(6, &head, packet.bytes)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush()?;
        self.records.flush()
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        self.out.finish()?;
        self.records.finish()
    }

    fn abandon(&mut self) -> Result<Vec<PathBuf>, SinkError> {
        let mut files: Vec<_> = self.out.abandon()?.into_iter().collect();
        files.extend(self.records.abandon()?);
        Ok(files)
    }

    fn closed(&self) -> bool {
        self.out.closed() || self.records.closed()
    }
}
