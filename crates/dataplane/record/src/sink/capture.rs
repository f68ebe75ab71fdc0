//! capture: writes the packets of modules, or those that a filter and a view show, to a capture file.
//!
//! Usage:    -w FILE, in addition to --format and -o for records; -w - writes to standard output. A name in
//!           .pcap, .cap or .dmp is a pcap file, with times in microseconds or, of a capture that has them
//!           and with --nano, in nanoseconds; any other is pcapng, with nanoseconds. A name that ends in .gz
//!           or .zst after that is compressed. Times after 2106 need pcapng. --rotate, --keep, -G, -W and -C
//!           as for -o.
//! Expects:  a module whose manifest has packets = true, such as anonymize. Under a grant: packets in calls,
//!           and at most transmit bytes a second. Without such a module, the packets that pass the filter are
//!           written, as --expose and --transform show them.
//! Gives:    pcapng: one section, an interface for each link type from its first packet on
//!           (draft-ietf-opsawg-pcapng). pcap: one link type, another is an error (draft-ietf-opsawg-pcap).
//!           The file receives its name when the run succeeds.
//! Example:  flame run -r FILE -w OUT.pcap --transform ip=prefix --key KEY tcp port 443
//! Related:  anonymize (module), file (source)

use super::out::{Out, packed};
use super::{Sink, SinkError, beside};
use arrow_array::RecordBatch;
use flame_abi::LinkType;
use flame_abi::manifest::Table;
use flame_output::Packet;
use std::collections::HashMap;
use std::path::Path;

/// The format of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureFormat {
    Pcapng,
    /// The format of pcap with times in microseconds.
    Pcap,
    /// The format of pcap with times in nanoseconds.
    PcapNano,
}

impl CaptureFormat {
    /// Returns the format for a file of this name. `nano` asks for nanoseconds, which pcapng always has.
    pub fn of(path: &Path, nano: bool) -> Self {
        let path = packed(path).map_or_else(|| path.to_owned(), |(plain, _)| plain);
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        match (extension.as_deref(), nano) {
            (Some("pcap" | "cap" | "dmp"), false) => Self::Pcap,
            (Some("pcap" | "cap" | "dmp"), true) => Self::PcapNano,
            _ => Self::Pcapng,
        }
    }
}

/// The most bytes of one packet that a pcap file announces.
const SNAPLEN: u32 = 262_144;

struct Capture {
    out: Out,
    format: CaptureFormat,
    /// The number of the interface of each link type so far. A pcap file has one link type.
    interfaces: HashMap<LinkType, u32>,
}

/// Writes packets to `path`, by the same rules as records to files, and passes records on to `records`.
///
/// # Errors
///
/// Returns the errors of [`packets`].
pub fn capture(
    path: &Path,
    format: CaptureFormat,
    records: Box<dyn Sink>,
) -> Result<Box<dyn Sink>, SinkError> {
    Ok(beside(records, packets(path, format)?))
}

/// Writes packets to `path`, and no records.
///
/// # Errors
///
/// Returns an error if the file cannot be created or its first block cannot be written.
pub fn packets(path: &Path, format: CaptureFormat) -> Result<Box<dyn Sink>, SinkError> {
    let path = Some(path).filter(|p| p.as_os_str() != "-");
    let mut capture = Capture { out: Out::open(path)?, format, interfaces: HashMap::new() };
    if format == CaptureFormat::Pcapng {
        // Byte order, version 1.0, length unknown.
        let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        capture.write_block(0x0a0d_0d0a, &section, &[])?;
    }
    Ok(Box::new(capture))
}

impl Capture {
    /// Writes a block of pcapng: type, length, body padded to 32 bits, length. `head` has at most 32 bytes.
    fn write_block(&mut self, kind: u32, head: &[u8], rest: &[u8]) -> Result<(), SinkError> {
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
        if let Some(known) = self.interfaces.get(&link) {
            return Ok(*known);
        }
        let [a, b] = link.0.to_le_bytes();
        // No limit on the length of packets; option 9 (if_tsresol) is one byte, 10^-9; end of options.
        self.write_block(1, &[a, b, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0], &[])?;
        let number = self.interfaces.len() as u32;
        self.interfaces.insert(link, number);
        Ok(number)
    }

    fn pcapng(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        let interface = self.interface(packet.link)?;
        let (high, low) = ((packet.ts_ns >> 32) as u32, packet.ts_ns as u32);
        let captured = packet.bytes.len() as u32;
        let head = words([interface, high, low, captured, packet.wire_len.max(captured)]);
        self.write_block(6, head.as_flattened(), packet.bytes)
    }

    fn pcap(&mut self, packet: Packet<'_>, unit_ns: u64) -> Result<(), SinkError> {
        match self.interfaces.keys().next() {
            None => {
                self.header(packet.link)?;
                self.interfaces.insert(packet.link, 0);
            }
            Some(first) if *first == packet.link => {}
            Some(first) => {
                return Err(SinkError::ManyLinks {
                    path: self.out.path().to_owned(),
                    first: first.0,
                    other: packet.link.0,
                });
            }
        }
        let (seconds, rest) = (packet.ts_ns / 1_000_000_000, packet.ts_ns % 1_000_000_000 / unit_ns);
        let Ok(seconds) = u32::try_from(seconds) else {
            return Err(SinkError::Time { path: self.out.path().to_owned(), seconds });
        };
        let captured = packet.bytes.len() as u32;
        let wire = packet.wire_len.max(captured);
        self.out.write(words([seconds, rest as u32, captured, wire]).as_flattened())?;
        self.out.write(packet.bytes)
    }

    /// Writes the header of a pcap file: magic, version 2.4, no zone, no accuracy, length, link type.
    fn header(&mut self, link: LinkType) -> Result<(), SinkError> {
        let magic = if self.format == CaptureFormat::PcapNano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        self.out.write(words([magic, 4 << 16 | 2, 0, 0, SNAPLEN, link.0.into()]).as_flattened())
    }
}

/// Returns words as bytes, the lowest first.
fn words<const N: usize>(words: [u32; N]) -> [[u8; 4]; N] {
    words.map(u32::to_le_bytes)
}

impl Sink for Capture {
    fn write(&mut self, _: &str, _: &Table, _: &RecordBatch) -> Result<(), SinkError> {
        Ok(())
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), SinkError> {
        match self.format {
            CaptureFormat::Pcapng => self.pcapng(packet),
            CaptureFormat::Pcap => self.pcap(packet, 1000),
            CaptureFormat::PcapNano => self.pcap(packet, 1),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        if self.format != CaptureFormat::Pcapng && self.interfaces.is_empty() {
            // A capture without packets is one of Ethernet.
            self.header(LinkType::ETHERNET)?;
        }
        self.out.finish()
    }

    one_output!();
}
