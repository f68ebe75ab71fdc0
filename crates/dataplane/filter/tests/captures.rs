//! Captured packets: of the project, and those of the folder `FLAME_TRACES`.

use super::language::Packet;
use std::path::{Path, PathBuf};

/// The packets of a file.
pub struct Capture {
    pub link: u16,
    pub packets: Vec<Packet>,
}

/// Parses a classic capture file in this machine's byte order, the only form that tests read.
pub fn classic(bytes: &[u8]) -> Option<Capture> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if !matches!(u32_at(0)?, 0xa1b2_c3d4 | 0xa1b2_3c4d) {
        return None;
    }
    let (link, mut at, mut packets) = (u32_at(20)? as u16, 24, Vec::new());
    while at < bytes.len() {
        let (len, wire_len) = (u32_at(at + 8)? as usize, u32_at(at + 12)?);
        packets.push(Packet { bytes: bytes.get(at + 16..at + 16 + len)?.to_vec(), wire_len });
        at += 16 + len;
    }
    Some(Capture { link, packets })
}

/// Returns the frames of the recorded capture of this project.
pub fn captured() -> Vec<Packet> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demo/demo.pcap");
    let capture = classic(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(capture.link, 1);
    capture.packets
}

/// Returns the folder of the shared captures, if there is one.
pub fn traces() -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    let root = std::env::var_os("FLAME_TRACES").map_or(default, PathBuf::from);
    Some(root.join("open/files")).filter(|folder| folder.is_dir())
}
