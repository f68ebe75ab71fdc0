//! The configurations of the two services.

use crate::Error;
use crate::maintain::length;
use flame_fleet_control::{Member, Settings};
use flame_fleet_nats::{Access, User};
use flame_fleet_protocol::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The usual bytes of a principal's stream.
const STREAM: u64 = 1 << 30;

/// The part of a node's configuration that its agent reads. The node checks the rest of it
/// (`crates/control/daemon/src/config.rs`).
pub struct Agent {
    pub name: String,
    pub spool: PathBuf,
    pub access: Access,
    /// Whether the node has enrolled, and follows the fleet.
    pub is_member: bool,
    /// The bytes of each principal's stream.
    pub stream: u64,
}

pub struct Archive {
    pub folder: PathBuf,
    pub access: Access,
    /// The nanoseconds for which rows are kept.
    pub keep: Option<u64>,
}

#[derive(Deserialize)]
struct NodeFile {
    fleet: Option<FleetTable>,
    socket: Option<SocketTable>,
}

#[derive(Deserialize)]
struct SocketTable {
    path: PathBuf,
}

#[derive(Deserialize)]
struct FleetTable {
    name: String,
    spool: PathBuf,
    server: Option<String>,
    stream: Option<String>,
    member: Option<PathBuf>,
    alone: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
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
    /// The files of the server's authority and of the archive's key, of a server with users.
    authority: Option<PathBuf>,
    key: Option<PathBuf>,
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

/// Reads what a node's configuration states about its membership.
pub fn settings(path: &Path) -> Result<Settings, Error> {
    let (NodeFile { fleet, socket }, folder) = read(path)?;
    let shown = path.display();
    let expected = "expected one with name, spool and member";
    let fleet = fleet.ok_or_else(|| format!("{shown}: no table [fleet], {expected}"))?;
    let member =
        fleet.member.ok_or_else(|| format!("{shown}: [fleet] has no member, expected a folder for keys"))?;
    let keeps = match fleet.alone.as_deref() {
        None | Some("stop") => false,
        Some("keep") => true,
        Some(other) => return Err(format!("{shown}: alone {other:?}, expected \"stop\" or \"keep\"").into()),
    };
    let socket =
        socket.map_or_else(|| PathBuf::from("/run/flame/node.sock"), |socket| folder.join(socket.path));
    let node = format!("unix:{}", std::path::absolute(socket)?.display());
    Ok(Settings { name: fleet.name, member: folder.join(member), labels: fleet.labels, node, keeps })
}

impl Agent {
    /// Reads the node's configuration.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (NodeFile { fleet, .. }, folder) = read(path)?;
        let shown = path.display();
        let FleetTable { name, spool, server, stream, member, .. } = fleet
            .ok_or_else(|| format!("{shown}: no table [fleet], expected one with name, spool and server"))?;
        let is_member = member.is_some();
        let access = match (member, server) {
            (Some(member), _) => {
                let member = Member::open(&folder.join(member))?;
                if member.known.name != name {
                    let enrolled = &member.known.name;
                    return Err(
                        format!("{shown}: name {name:?}, and the node enrolled as {enrolled:?}").into()
                    );
                }
                member.access()
            }
            (None, Some(server)) => Access::open(&server),
            (None, None) => {
                let expected = "expected server = \"nats://HOST:4222\", or member = FOLDER";
                return Err(format!("{shown}: [fleet] has no server, {expected}").into());
            }
        };
        let stream = match stream {
            None => STREAM,
            Some(text) => size(&text)
                .ok_or_else(|| format!("{shown}: stream {text:?}, expected a size as in \"1GiB\""))?,
        };
        Ok(Self { name, spool: folder.join(spool), access, is_member, stream })
    }
}

impl Archive {
    /// Reads the configuration of an archive.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (ArchiveFile { archive }, folder) = read(path)?;
        let user = match (archive.authority, archive.key) {
            (None, None) => None,
            (Some(authority), Some(key)) => {
                let key = folder.join(key);
                let at = |e: &dyn std::fmt::Display| format!("{}: {e}", key.display());
                let pem = std::fs::read_to_string(&key).map_err(|e| at(&e))?;
                let secret = Secret::from_pem(&pem).ok_or_else(|| at(&"no Ed25519 secret key in PEM"))?;
                let (authority, inbox) = (folder.join(authority), "flame.inbox.archive".to_owned());
                Some(User { secret: Arc::new(secret), authority, inbox, node: None })
            }
            _ => {
                return Err(
                    format!("{}: expected both of authority and key, or neither", path.display()).into()
                );
            }
        };
        let access = Access { server: archive.server, user };
        let keep = archive.keep.as_deref().map(length).transpose();
        let keep = keep.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self { folder: folder.join(archive.folder), access, keep })
    }
}

/// Reads a size in bytes as the node's configuration writes it.
pub fn size(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    units.into_iter().find_map(|(unit, shift)| {
        let digits = text.strip_suffix(unit)?;
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok())??;
        number.checked_mul(1 << shift)
    })
}
