//! file: reads capture files, plain or compressed, several in time order.
//!
//! Usage:    -r FILE, repeatable; a folder stands for the captures in it, and - for standard input
//!           -s BYTES limits the bytes of each packet, -c COUNT the packets
//! Expects:  pcap or pcapng, plain, gzip or zstd, of a link type that is decoded.
//! Gives:    packets in time order over all files. Damage ends its file: the packets before it are kept, and
//!           the run has exit status 3. In a folder, files that are damaged, unsupported, unreadable or empty
//!           are skipped, counted and listed at the end, with the same status; only a sound capture without
//!           packets leaves it at 0. Noted with the packet's number, and no damage: a packet that states
//!           fewer bytes on the wire than were captured (the captured ones count), a time that goes back by
//!           more than a second, a time before 1970, and drops that statistics of pcapng state. Only files
//!           whose packets are due take memory, one that was compressed by `zstd --long` up to 128 MiB, and
//!           only those are judged if -c ends the run. An aggregated frame of 802.11 (A-MSDU) is a packet for
//!           each of its frames, up to 256, each with the headers of the whole.
//! Example:  flame run flow -r FILE -r FILE
//! Related:  live, paced (on a node), pcap, pcapng, capture (sink)

mod ahead;
mod divided;
mod due;
mod input;
mod merge;
mod pcap;
mod pcapng;
mod reader;
mod spares;
mod step;

pub use merge::Help;

use crate::{Damage, DamageKind, RawPacket, Source, SourceError};
use bytes::Bytes;
use flame_abi::{LinkType, MAX_PACKET};
use std::path::{Path, PathBuf};

/// Options for reading files.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// The number of bytes of each packet that are read.
    pub snaplen: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { snaplen: MAX_PACKET as u32 }
    }
}

/// Opens files, folders (all captures in them) and `-` (standard input), in time order.
///
/// # Errors
///
/// Returns an error if a file is not a capture, or its link type is not decoded. In a folder, such a file or
/// an unreadable one is skipped and reported in [`Source::damage`]; a folder without any capture is an
/// error.
pub fn open(paths: &[PathBuf], options: &FileOptions) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(open_files(paths, options)?))
}

fn open_files(paths: &[PathBuf], options: &FileOptions) -> Result<merge::Files, SourceError> {
    let mut files = merge::Files::default();
    for path in paths {
        if !path.is_dir() {
            let reader = reader::Reader::open(path, options.snaplen, files.spares())?;
            if paths.len() == 1 {
                files.add_only(reader)
            } else {
                files.add(reader)
            }
            continue;
        }
        let before = files.len();
        let mut skipped = Vec::new();
        for file in folder(path)? {
            match reader::Reader::open(&file, options.snaplen, files.spares()) {
                Ok(reader) => files.add(reader.in_folder(true)),
                Err(error) => skipped.push(skip(&file.display().to_string(), error)?),
            }
        }
        if files.len() == before {
            return Err(SourceError::EmptyFolder { folder: path.display().to_string(), skipped });
        }
        files.add_damage(skipped);
    }
    Ok(files)
}

/// Returns the first packet of a capture file, or of the captures in a folder. Returns `None` without a
/// packet that can be read, and of a pipe, whose packets come once.
fn first(path: &Path) -> Option<RawPacket> {
    let stays = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.is_dir());
    let mut source = stays.then(|| open(&[path.to_owned()], &FileOptions::default()).ok())??;
    let mut block = crate::RawBlock::default();
    source.next(&mut block).ok()?;
    block.packets.first().copied()
}

/// Returns the link type of the first packet of a capture file, or of the captures in a folder. Returns
/// `None` without a packet that can be read, and of a pipe, whose packets come once.
pub fn first_link(path: &Path) -> Option<LinkType> {
    first(path).map(|packet| packet.link)
}

/// Returns the time of the first packet of captures, or `None` if a file has none that can be read.
pub fn first_time(paths: &[PathBuf]) -> Option<u64> {
    let times: Option<Vec<u64>> = paths.iter().map(|path| first(path).map(|packet| packet.ts_ns)).collect();
    times?.into_iter().min()
}

/// Returns the entry in the list of damage for a file of a folder.
///
/// # Errors
///
/// Returns the error if it is not the file's: with too many open files, the rest would be left out, too.
fn skip(file: &str, error: SourceError) -> Result<Damage, SourceError> {
    use SourceError::{Compressed, Damaged, Empty, Io, LinkType, NotACapture};
    let kind = match &error {
        Empty { .. } => DamageKind::Empty,
        Damaged { .. } => DamageKind::Damaged,
        NotACapture { .. } | Compressed { .. } | LinkType { .. } => DamageKind::Unsupported,
        Io { error, .. } if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            DamageKind::Unreadable
        }
        _ => return Err(error),
    };
    // The list names the file before the reason.
    let reason = error.to_string();
    let reason = reason.strip_prefix(&format!("{file}: ")).unwrap_or(&reason).to_owned();
    Ok(Damage { file: file.to_owned(), kind, offset: 0, reason })
}

/// Returns the files of a folder by name, without those of its subfolders.
fn folder(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let fail = |error| SourceError::Io { place: path.display().to_string(), error };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let file = entry.map_err(fail)?.path();
        // A link to a file that is gone is listed as unreadable.
        if file.is_file() || file.is_symlink() && !file.exists() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a whole capture from memory and returns the number of packets and the damage. For fuzzing.
///
/// # Panics
///
/// Panics if a packet does not lie in its block, which no bytes may cause.
///
/// # Errors
///
/// Returns an error if the bytes do not begin with the whole header of a capture, or if no packet of its link
/// type is decoded.
pub fn parse(bytes: &[u8]) -> Result<(u64, Vec<Damage>), SourceError> {
    let reader = reader::Reader::from_memory("memory", Bytes::copy_from_slice(bytes), MAX_PACKET as u32)?;
    let mut files = merge::Files::default();
    files.add_only(reader);
    let mut block = crate::RawBlock::default();
    let mut packets = 0;
    while files.next(&mut block)? == crate::Next::Packets {
        for p in &block.packets {
            assert!((p.offset + p.cap_len) as usize <= block.data.len(), "packet lies in its block");
        }
        packets += block.packets.len() as u64;
    }
    Ok((packets, files.damage().to_vec()))
}

#[cfg(test)]
mod tests;
