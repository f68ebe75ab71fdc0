//! A kit for tests: real captures and another program's results for them, packets, capture files and sources
//! from memory, programs to start, and the one way to wait.
#![forbid(unsafe_code)]

mod packets;
mod programs;
mod sources;
mod wait;

use flame_abi::{Descriptor, MAX_PACKET};
use flame_source::{FileOptions, Next, RawBlock};
use std::path::PathBuf;

pub use packets::{Pcap, ipv4, pcap, tcp_packet};
pub use programs::{copy_program, script};
pub use sources::{Endless, Live, Memory, Paced};
pub use wait::{Look, PATIENCE, eventually};

/// Returns the folder of captures: `FLAME_TRACES`, otherwise `../shared/traces` next to the workspace.
pub fn traces() -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder =
        std::env::var_os("FLAME_TRACES").map_or_else(|| PathBuf::from(default), PathBuf::from).join("open");
    if !folder.join("TRUTH.tsv").is_file() {
        eprintln!("skipped: no captures at {}", folder.display());
        return None;
    }
    Some(folder)
}

/// Returns the capture file and the given columns of each line of TRUTH.tsv.
///
/// # Panics
///
/// Panics if the list cannot be read or has no column of a given name.
pub fn truth<const N: usize>(folder: &std::path::Path, columns: [&str; N]) -> Vec<(String, [String; N])> {
    let text = std::fs::read_to_string(folder.join("TRUTH.tsv")).expect("readable");
    let mut lines = text.lines().map(|l| l.split('\t').collect::<Vec<_>>());
    let head = lines.next().expect("has a header");
    let at = columns.map(|c| head.iter().position(|h| *h == c).expect("is a column"));
    lines.map(|l| (l[0].to_owned(), at.map(|i| l.get(i).copied().unwrap_or("-").to_owned()))).collect()
}

/// Passes each block's decoded packets to `f`; returns whether the file could be opened.
pub fn blocks(file: PathBuf, mut f: impl FnMut(&[Descriptor], &[u8])) -> bool {
    let Ok(mut source) = flame_source::open(&[file], &FileOptions { snaplen: MAX_PACKET as u32 }) else {
        return false;
    };
    let mut block = RawBlock::default();
    let mut descriptors = Vec::new();
    while let Ok(Next::Packets) = source.next(&mut block) {
        descriptors.clear();
        for p in &block.packets {
            let bytes = &block.data[p.offset as usize..][..p.cap_len as usize];
            let d = flame_decode::decode(p.link, bytes, p.wire_len, flame_decode::Options::default());
            descriptors.push(Descriptor { ts_ns: p.ts_ns, addr: p.offset, ..d });
        }
        f(&descriptors, &block.data);
    }
    true
}
