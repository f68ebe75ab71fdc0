//! The node's configuration, `node.toml`.
//!
//! ```toml
//! [node]
//! storage = "/var/lib/flame"        # modules, code and compiled code
//! policy = "/etc/flame/policy.toml" # without it, only the operator has access
//! user = "flame"                    # the user to become once started
//!
//! [socket]
//! path = "/run/flame/node.sock"
//! mode = "0666"                     # who may connect is decided by the kernel's report of the user
//! operators = []                    # users with the rights of root and of the node's own user
//! users = ["alice"]                 # users who may connect and present a credential
//!
//! [tls]                             # optional
//! listen = "0.0.0.0:7443"
//! certificate = "tls.pem"           # with `key`; without both, the node makes a certificate of its own
//! key = "tls.key"
//! names = ["tap1.example.org"]      # the names in the certificate that the node makes
//!
//! [sources.tap]
//! interface = "eth0"
//! workers = 2
//! cores = [0, 1]                    # the cores on which its threads run
//! interval = "1s"                   # packet time between reports
//!
//! [sources.trial]
//! file = "trial.pcap"               # replayed at the pace of its time stamps
//! repeat = true
//!
//! [limits]
//! modules = 200
//! memory = "256MiB"                 # of one instance
//! spool = "8MiB"                    # of records that are kept for each module
//! request_bytes = "48MiB"
//! request_time = "30s"
//! requests_per_second = 100         # of one principal
//! connections = 256
//! ```
//!
//! Paths are relative to the file's folder.

use crate::units::{NAME, duration, is_name, size};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Maximum length of the file in bytes.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {error}")]
    Io { path: String, error: std::io::Error },
    /// The parser's words name line and column.
    #[error("{path}: {reason}")]
    Syntax { path: String, reason: String },
    #[error("{path}, line {line}: {reason}")]
    Line { path: String, line: usize, reason: String },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub storage: PathBuf,
    pub policy: Option<PathBuf>,
    pub user: Option<String>,
    pub socket: Option<Socket>,
    pub tls: Option<Tls>,
    pub sources: BTreeMap<String, Source>,
    pub limits: Limits,
}

/// The Unix socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Socket {
    pub path: PathBuf,
    pub mode: u32,
    pub operators: Vec<String>,
    pub users: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    pub listen: SocketAddr,
    /// The files of the certificate's chain and key. Without them the node makes its own.
    pub files: Option<(PathBuf, PathBuf)>,
    pub names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub from: From,
    pub workers: u16,
    pub cores: Vec<usize>,
    pub interval_ns: u64,
    pub snaplen: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum From {
    Interface { name: String, promiscuous: bool },
    File { path: PathBuf, repeat: bool },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub modules: usize,
    /// Bytes of memory of one instance.
    pub memory: u32,
    /// Bytes of records that are kept for each module.
    pub spool: u64,
    pub request_bytes: usize,
    pub request_time: Duration,
    pub requests_per_second: u32,
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            modules: 200,
            memory: 256 << 20,
            spool: 8 << 20,
            request_bytes: 48 << 20,
            request_time: Duration::from_secs(30),
            requests_per_second: 100,
            connections: 256,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    node: NodeTable,
    socket: Option<SocketTable>,
    tls: Option<TlsTable>,
    #[serde(default)]
    sources: BTreeMap<Spanned<String>, Spanned<SourceTable>>,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    storage: PathBuf,
    policy: Option<PathBuf>,
    user: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketTable {
    path: PathBuf,
    mode: Option<Spanned<String>>,
    #[serde(default)]
    operators: Vec<String>,
    #[serde(default)]
    users: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    listen: Spanned<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    #[serde(default)]
    names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceTable {
    interface: Option<String>,
    promiscuous: Option<bool>,
    file: Option<PathBuf>,
    repeat: Option<bool>,
    workers: Option<Spanned<u16>>,
    #[serde(default)]
    cores: Vec<Spanned<usize>>,
    interval: Option<Spanned<String>>,
    snaplen: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    modules: Option<Spanned<usize>>,
    memory: Option<Spanned<String>>,
    spool: Option<Spanned<String>>,
    request_bytes: Option<Spanned<String>>,
    request_time: Option<Spanned<String>>,
    requests_per_second: Option<Spanned<u32>>,
    connections: Option<Spanned<usize>>,
}

/// The offset of an error in the text, and its reason.
pub(crate) type Fault = (usize, String);

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    ///
    /// Returns an error with the line and what was expected there.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        let shown = || path.display().to_string();
        let text = std::fs::read(path).map_err(|error| ConfigError::Io { path: shown(), error })?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        Self::parse(&text, &shown(), &folder)
    }

    /// Parses the text of a file at `path`. Paths in it are relative to `folder`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Config::open`].
    pub fn parse(bytes: &[u8], path: &str, folder: &Path) -> Result<Self, ConfigError> {
        let syntax = |reason: String| ConfigError::Syntax { path: path.to_owned(), reason };
        if bytes.len() > MAX_BYTES {
            return Err(syntax(format!("{} bytes, at most {MAX_BYTES} are read", bytes.len())));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| syntax(format!("not UTF-8 at byte {}", e.valid_up_to())))?;
        let file: File = toml::from_str(text).map_err(|e| syntax(e.to_string().trim_end().to_owned()))?;
        file.checked(folder).map_err(|(start, reason)| ConfigError::Line {
            path: path.to_owned(),
            line: text[..start.min(text.len())].matches('\n').count() + 1,
            reason,
        })
    }
}

impl File {
    fn checked(self, folder: &Path) -> Result<Config, Fault> {
        let mut sources = BTreeMap::new();
        for (name, table) in self.sources {
            let start = table.span().start;
            if !is_name(name.get_ref()) {
                return Err((name.span().start, format!("source {:?}: {NAME}", name.get_ref())));
            }
            sources.insert(name.into_inner(), table.into_inner().checked(start, folder)?);
        }
        if sources.is_empty() {
            return Err((
                0,
                "no source: add [sources.NAME] with interface = \"…\" or file = \"…\"".to_owned(),
            ));
        }
        if self.socket.is_none() && self.tls.is_none() {
            return Err((0, "nothing to listen on: add [socket] with path = \"…\", or [tls]".to_owned()));
        }
        Ok(Config {
            storage: folder.join(self.node.storage),
            policy: self.node.policy.map(|path| folder.join(path)),
            user: self.node.user,
            socket: self.socket.map(|socket| socket.checked(folder)).transpose()?,
            tls: self.tls.map(|tls| tls.checked(folder)).transpose()?,
            sources,
            limits: self.limits.checked()?,
        })
    }
}

impl SocketTable {
    fn checked(self, folder: &Path) -> Result<Socket, Fault> {
        let mode = match self.mode {
            None => 0o600,
            Some(text) => {
                u32::from_str_radix(text.get_ref(), 8).ok().filter(|m| *m <= 0o777).ok_or_else(|| {
                    (
                        text.span().start,
                        format!("mode {:?}: expected octal digits, as in \"0660\"", text.get_ref()),
                    )
                })?
            }
        };
        Ok(Socket { path: folder.join(self.path), mode, operators: self.operators, users: self.users })
    }
}

impl TlsTable {
    fn checked(self, folder: &Path) -> Result<Tls, Fault> {
        let start = self.listen.span().start;
        let listen = self.listen.get_ref().parse().map_err(|_| {
            let found = self.listen.get_ref();
            (start, format!("listen {found:?}: expected an address and a port, as in \"0.0.0.0:7443\""))
        })?;
        let files = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((folder.join(certificate), folder.join(key))),
            (None, None) => None,
            _ => return Err((start, "give both certificate and key, or neither".to_owned())),
        };
        Ok(Tls { listen, files, names: self.names })
    }
}

impl SourceTable {
    fn checked(self, start: usize, folder: &Path) -> Result<Source, Fault> {
        let from = match (self.interface, self.file) {
            (Some(name), None) => {
                if self.repeat.is_some() {
                    return Err((start, "repeat is for files".to_owned()));
                }
                From::Interface { name, promiscuous: self.promiscuous.unwrap_or(true) }
            }
            (None, Some(path)) => {
                if self.promiscuous.is_some() {
                    return Err((start, "promiscuous is for interfaces".to_owned()));
                }
                From::File { path: folder.join(path), repeat: self.repeat.unwrap_or(false) }
            }
            _ => return Err((start, "give either interface = \"…\" or file = \"…\"".to_owned())),
        };
        let workers = match &self.workers {
            Some(n) if !(1..=64).contains(n.get_ref()) => {
                return Err((n.span().start, format!("workers = {}: expected 1 to 64", n.get_ref())));
            }
            Some(n) => *n.get_ref(),
            None => 1,
        };
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(core) = self.cores.iter().find(|core| *core.get_ref() >= here.max(1024)) {
            return Err((core.span().start, format!("core {}: this machine has {here}", core.get_ref())));
        }
        let interval_ns = self.interval.as_ref().map_or(Ok(1_000_000_000), duration)?;
        Ok(Source {
            from,
            workers,
            cores: self.cores.into_iter().map(Spanned::into_inner).collect(),
            interval_ns,
            snaplen: self.snaplen.unwrap_or(262_144),
        })
    }
}

impl LimitsTable {
    fn checked(self) -> Result<Limits, Fault> {
        let usual = Limits::default();
        let bytes = |text: Option<Spanned<String>>, usual: u64, most: u64| match text {
            None => Ok(usual),
            Some(text) => {
                let found = size(text.get_ref()).filter(|n| (1..=most).contains(n));
                found.ok_or_else(|| {
                    let (found, most) = (text.get_ref(), most >> 20);
                    (
                        text.span().start,
                        format!("{found:?}: expected a size as in \"8MiB\", at most {most}MiB"),
                    )
                })
            }
        };
        let count = |n: Option<Spanned<usize>>, usual: usize, most: usize| match n {
            Some(n) if !(1..=most).contains(n.get_ref()) => {
                Err((n.span().start, format!("{}: expected 1 to {most}", n.get_ref())))
            }
            n => Ok(n.map_or(usual, Spanned::into_inner)),
        };
        let rate = self.requests_per_second.map(|n| Spanned::new(n.span(), *n.get_ref() as usize));
        Ok(Limits {
            modules: count(self.modules, usual.modules, 10_000)?,
            memory: bytes(self.memory, usual.memory.into(), 2 << 30)? as u32,
            spool: bytes(self.spool, usual.spool, 64 << 30)?,
            request_bytes: bytes(self.request_bytes, usual.request_bytes as u64, 1 << 30)? as usize,
            request_time: match &self.request_time {
                None => usual.request_time,
                Some(text) => Duration::from_nanos(duration(text)?),
            },
            requests_per_second: count(rate, usual.requests_per_second as usize, 1_000_000)? as u32,
            connections: count(self.connections, usual.connections, 65_536)?,
        })
    }
}
