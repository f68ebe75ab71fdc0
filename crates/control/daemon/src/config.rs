#![doc = include_str!("../../../../docs/node-toml.md")]

mod tables;

use crate::store::Owner;
use flame_api::Reservation;
use flame_source::live::Capture;
use flame_worker::Overload;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum length of the file in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The reason why a configuration cannot be read, with its place.
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

/// The configuration of a node, from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub storage: PathBuf,
    pub policy: Option<PathBuf>,
    pub user: Option<String>,
    /// The time between rows of the accounting.
    pub accounting: Duration,
    /// The time between writes of the state that modules keep.
    pub states: Duration,
    pub socket: Option<Socket>,
    pub tls: Option<Tls>,
    pub metrics: Option<Metrics>,
    pub sources: BTreeMap<String, Source>,
    /// The links on which modules send frames.
    pub links: BTreeMap<String, Link>,
    pub fleet: Option<Fleet>,
    pub isolation: Isolation,
    /// The amounts that all modules together can reserve.
    pub capacity: Reservation,
    /// The amounts that one principal can reserve.
    pub per_principal: Reservation,
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

/// The address at which Prometheus reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    pub listen: SocketAddr,
    pub readers: Readers,
}

/// Who may read the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Clients with the token in this file, or in a file that the node makes.
    Token(Option<PathBuf>),
    /// All programs of this machine.
    Loopback,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub from: From,
    pub workers: u16,
    pub cores: Vec<usize>,
    pub interval_ns: u64,
    pub snaplen: u32,
    /// When modules of low priorities lose packets.
    pub overload: Overload,
    /// The link on which its modules send frames.
    pub link: Option<String>,
}

/// An interface on which modules send frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub interface: String,
    /// The bandwidth for all channels in bits per second.
    pub bandwidth: u64,
}

/// Where records leave the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    pub spool: PathBuf,
    /// The bytes of each table there.
    pub bytes: u64,
    pub labels: BTreeMap<String, String>,
    /// The principal, as a root named it, whose modules stay stopped at a start until the agent runs them.
    pub principal: Option<String>,
}

impl Fleet {
    /// Returns whether the fleet installed the modules of an owner.
    pub fn installs(&self, owner: &Owner) -> bool {
        let is_named = |named: &String| owner.principal.split(['/', '#']).next() == Some(named);
        !owner.is_operator() && self.principal.as_ref().is_some_and(is_named)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum From {
    Interface { name: String, promiscuous: bool, capture: Capture },
    File { path: PathBuf, repeat: bool },
}

/// The processes in which modules run.
#[derive(Clone, Debug, PartialEq)]
pub struct Isolation {
    /// Whether modules of principals run in the node's own process.
    pub is_inline: bool,
    /// The principals whose modules run there in any case.
    pub inline: BTreeSet<String>,
    pub scheduler: Scheduler,
    /// The number of times that one principal's process is started again within ten minutes.
    pub restarts: u32,
}

/// The way in which processes get the processor time that their modules reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The kernel's deadline scheduler where it is permitted. Otherwise the time is a limit only.
    Auto,
    /// The kernel's deadline scheduler. Without it, reservations of processor time are refused.
    Deadline,
    /// The time is a limit only.
    Fair,
}

impl Default for Isolation {
    fn default() -> Self {
        Self { is_inline: false, inline: BTreeSet::new(), scheduler: Scheduler::Auto, restarts: 8 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub modules: usize,
    pub modules_per_principal: usize,
    /// Bytes of files of modules and of their compiled code.
    pub storage_per_principal: u64,
    /// Bytes of the state that the modules of one principal may keep.
    pub state_per_principal: u64,
    /// Bytes of memory of one instance.
    pub memory: u32,
    /// Bytes of records that are kept for each module.
    pub spool: u64,
    pub request_bytes: usize,
    /// Bytes of the bodies of all requests.
    pub bodies: usize,
    pub request_time: Duration,
    pub requests_per_second: u32,
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            modules: 200,
            modules_per_principal: 50,
            storage_per_principal: 1 << 30,
            state_per_principal: 16 << 20,
            memory: 256 << 20,
            spool: 8 << 20,
            request_bytes: 48 << 20,
            bodies: 192 << 20,
            request_time: Duration::from_secs(30),
            requests_per_second: 100,
            connections: 256,
        }
    }
}

/// The offset of an error in the text, and its reason.
pub(crate) type Fault = (usize, String);

impl Config {
    /// Returns whether modules of principals run in processes of their own. Without a policy there are no
    /// principals.
    pub fn has_processes(&self) -> bool {
        self.policy.is_some() && !self.isolation.is_inline
    }

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
        let file: tables::File =
            toml::from_str(text).map_err(|e| syntax(e.to_string().trim_end().to_owned()))?;
        file.checked(folder).map_err(|(start, reason)| ConfigError::Line {
            path: path.to_owned(),
            line: text[..start.min(text.len())].matches('\n').count() + 1,
            reason,
        })
    }
}
