//! The client's file of nodes.
//!
//! ```toml
//! current = "tap1"
//!
//! [nodes.tap1]
//! address = "https://tap1.example.org:7443"   # or unix:PATH
//! certificate = "tap1.pem"
//! credential = "alice.cred"
//! identity = "alice.key"
//! user = "flame"                               # who listens on a Unix socket, if neither root nor you
//! ```
//!
//! Paths are relative to the file's folder.

use super::NodeArgs;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DEFAULT: &str = "unix:/run/flame/node.sock";

/// The content of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    pub current: Option<String>,
    #[serde(default)]
    pub nodes: BTreeMap<String, Entry>,
}

/// One node in the file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub address: String,
    pub certificate: Option<PathBuf>,
    pub credential: Option<PathBuf>,
    pub identity: Option<PathBuf>,
    /// The user who listens on a Unix socket, by name or number. By default root, or the client's own user.
    pub user: Option<String>,
}

/// A node to connect to.
pub struct Resolved {
    pub address: Address,
    pub certificate: Option<PathBuf>,
    pub credential: Option<(PathBuf, PathBuf)>,
    pub user: Option<String>,
}

pub enum Address {
    Unix(PathBuf),
    Https { host: String, port: u16 },
}

impl Nodes {
    /// Returns the path of the file.
    pub fn path() -> Option<PathBuf> {
        if let Some(path) = std::env::var_os("FLAME_NODES") {
            return Some(path.into());
        }
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
        Some(config.or_else(home)?.join("flame/nodes.toml"))
    }

    /// Reads the file. A missing file is an empty one.
    pub fn open() -> Result<Self, Error> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()).into()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        }
    }

    /// Writes the file.
    pub fn save(&self) -> Result<(), Error> {
        use std::io::Write;
        let path = Self::path().ok_or("no home folder: set FLAME_NODES to the path of a file")?;
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let mut file = flame_files::Staged::new(&path).map_err(io)?;
        file.write_all(toml::to_string(self)?.as_bytes()).map_err(io)?;
        file.finish().map_err(io)?;
        Ok(())
    }
}

/// Returns the node that the options, the environment or the file name.
pub fn resolve(args: &NodeArgs) -> Result<Resolved, Error> {
    let nodes = Nodes::open()?;
    let from_environment = std::env::var("FLAME_NODE").ok().filter(|name| !name.is_empty());
    let name = args.node.clone().or(from_environment).or_else(|| nodes.current.clone());
    let mut entry = match name {
        None => Entry { address: DEFAULT.to_owned(), ..Entry::default() },
        Some(address) if address.starts_with("unix:") || address.starts_with("https://") => {
            Entry { address, ..Entry::default() }
        }
        Some(name) => {
            let known = nodes.nodes.keys().cloned().collect::<Vec<_>>().join(", ");
            let file = Nodes::path().map_or_else(String::new, |p| p.display().to_string());
            let folder = Nodes::path().and_then(|p| p.parent().map(Path::to_owned)).unwrap_or_default();
            let entry = nodes.nodes.get(&name).cloned().ok_or_else(|| {
                format!(
                    "no node {name:?} in {file}, which has {}; or give unix:PATH or https://HOST:PORT",
                    if known.is_empty() { "none" } else { &known }
                )
            })?;
            let join = |path: Option<PathBuf>| path.map(|path| folder.join(path));
            let Entry { address, certificate, credential, identity, user } = entry;
            Entry {
                address,
                certificate: join(certificate),
                credential: join(credential),
                identity: join(identity),
                user,
            }
        }
    };
    if args.credential.is_some() {
        (entry.credential, entry.identity) = (args.credential.clone(), args.identity.clone());
    }
    if args.certificate.is_some() {
        entry.certificate.clone_from(&args.certificate);
    }
    let credential = match (entry.credential, entry.identity) {
        (Some(credential), Some(identity)) => Some((credential, identity)),
        (None, None) => None,
        _ => return Err("give both a credential and the identity (key) of its holder".into()),
    };
    let Entry { certificate, user, .. } = entry;
    Ok(Resolved { address: address(&entry.address)?, certificate, credential, user })
}

fn address(text: &str) -> Result<Address, Error> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(path.into()));
    }
    let https = text.strip_prefix("https://").map(|rest| rest.trim_end_matches('/')).and_then(|rest| {
        let (host, port) = rest.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Address::Https { host: host.to_owned(), port: port.parse().ok()? }).filter(|_| !host.is_empty())
    });
    https.ok_or_else(|| format!("node {text:?}: expected unix:PATH or https://HOST:PORT").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_or_https() {
        assert!(matches!(address("unix:/run/x").unwrap(), Address::Unix(p) if p == Path::new("/run/x")));
        for (text, wanted) in [("https://a.b:1", ("a.b", 1)), ("https://[::1]:7443/", ("::1", 7443))] {
            let Address::Https { host, port } = address(text).unwrap() else { panic!("{text}") };
            assert_eq!((host.as_str(), port), wanted);
        }
        for wrong in ["http://a:1", "https://a", "https://:1", "https://a:port", "/run/x", ""] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
