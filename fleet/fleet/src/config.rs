//! The configurations of the two services.

use crate::Error;
use crate::maintain::length;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The usual bytes of a principal's stream.
const STREAM: u64 = 1 << 30;

/// The part of a node's configuration that its agent reads. The node checks the rest of it
/// (`crates/control/daemon/src/config.rs`).
#[derive(Debug)]
pub struct Agent {
    pub name: String,
    pub spool: PathBuf,
    pub server: String,
    /// The bytes of each principal's stream.
    pub stream: u64,
}

#[derive(Debug)]
pub struct Archive {
    pub folder: PathBuf,
    pub server: String,
    /// The nanoseconds for which rows are kept.
    pub keep: Option<u64>,
}

#[derive(Deserialize)]
struct NodeFile {
    fleet: Option<FleetTable>,
}

#[derive(Deserialize)]
struct FleetTable {
    name: String,
    spool: PathBuf,
    server: Option<String>,
    stream: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchiveFile {
    archive: ArchiveTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchiveTable {
    folder: PathBuf,
    server: String,
    keep: Option<String>,
}

/// Reads a file, and returns it with its folder, to which paths in it are relative.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<(T, PathBuf), Error> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("{shown}: {e}"))?;
    let file = toml::from_str(&text).map_err(|e| format!("{shown}: {}", e.to_string().trim_end()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((file, folder.to_owned()))
}

impl Agent {
    /// Reads the node's configuration.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (NodeFile { fleet }, folder) = read(path)?;
        let shown = path.display();
        let FleetTable { name, spool, server, stream } = fleet
            .ok_or_else(|| format!("{shown}: no table [fleet], expected one with name, spool and server"))?;
        let server = server.ok_or_else(|| {
            format!("{shown}: [fleet] has no server, expected server = \"nats://HOST:4222\"")
        })?;
        let stream = match stream {
            None => STREAM,
            Some(text) => size(&text)
                .ok_or_else(|| format!("{shown}: stream {text:?}, expected a size as in \"1GiB\""))?,
        };
        Ok(Self { name, spool: folder.join(spool), server, stream })
    }
}

impl Archive {
    /// Reads the configuration of an archive.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (ArchiveFile { archive }, folder) = read(path)?;
        let keep = archive.keep.as_deref().map(length).transpose();
        let keep = keep.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self { folder: folder.join(archive.folder), server: archive.server, keep })
    }
}

/// Reads a size in bytes as the node's configuration writes it.
fn size(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    units.into_iter().find_map(|(unit, shift)| {
        let digits = text.strip_suffix(unit)?;
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok())??;
        number.checked_mul(1 << shift)
    })
}
