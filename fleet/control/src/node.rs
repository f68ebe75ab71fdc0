//! Calls of the node's own command, `flame`: as a session under the node's credential of the fleet, and for
//! revocations as the node's user, its operator.

use crate::Error;
use flame_fleet_protocol::talk::Counters;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time of a call. The node itself is quicker; the rest is a busy machine.
const LONGEST: Duration = Duration::from_secs(60);
/// The exit status of `flame` for what the node does not allow.
const DENIED: i32 = 6;

/// The reason why a call did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The node's policy refuses it.
    Denied(String),
    Failed(String),
}

/// A module on the node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Installed {
    pub name: String,
    pub state: String,
    pub reason: Option<String>,
    pub hash: String,
    pub expires: Option<u64>,
    pub settings: BTreeMap<String, String>,
    #[serde(default)]
    account: Account,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    spool: Spool,
}

/// The packets and records of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Account {
    offered: u64,
    shed: BTreeMap<String, u64>,
    records: u64,
    records_lost: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Usage {
    cpu_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Spool {
    dropped: u64,
}

impl Installed {
    /// Returns the state and the counters for a report.
    pub fn counters(self) -> Counters {
        let Account { offered, shed, records, records_lost } = self.account;
        Counters {
            state: self.state,
            reason: self.reason,
            packets: offered,
            packets_lost: shed.values().sum(),
            records,
            records_lost: records_lost.saturating_add(self.spool.dropped),
            cpu_ns: self.usage.cpu_ns,
        }
    }
}

/// Returns the path of `flame`: beside this program, or in a folder of PATH.
pub fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("flame"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("flame"))
}

/// Runs `flame`, and returns its standard output.
pub fn flame(arguments: &[&str]) -> Result<String, Fault> {
    let failed = |e: std::io::Error| Fault::Failed(format!("flame: {e}"));
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both pipes are read, or the child could wait for them.
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.map(|mut pipe| pipe.read_to_end(&mut text));
        text
    });
    let output = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.map(|mut pipe| pipe.read_to_end(&mut text));
        text
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if begun.elapsed() > LONGEST => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Fault::Failed(format!("flame {}: no answer in {LONGEST:?}", arguments[0])));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (output, errors) = (text(output.join().unwrap_or_default()), text(errors.join().unwrap_or_default()));
    if status.success() {
        return Ok(output);
    }
    let said = errors.lines().rfind(|line| !line.starts_with("flame: note")).unwrap_or_default();
    let said = said.strip_prefix("flame: ").unwrap_or(said).chars().take(1000).collect();
    Err(if status.code() == Some(DENIED) { Fault::Denied(said) } else { Fault::Failed(said) })
}

/// The sessions of the fleet on a node.
pub struct Session<'a> {
    pub node: &'a str,
    pub credential: &'a Path,
    pub identity: &'a Path,
}

impl Session<'_> {
    fn call(&self, arguments: &[&str]) -> Result<String, Fault> {
        let (credential, identity) = (self.credential.to_string_lossy(), self.identity.to_string_lossy());
        let own = ["--node", self.node, "--credential", &credential, "--identity", &identity];
        flame(&[arguments, &own, &["--format", "json"]].concat())
    }

    /// Returns the modules of the fleet.
    pub fn list(&self) -> Result<BTreeMap<String, Installed>, Fault> {
        let lines = self.call(&["list"])?;
        let read = |line: &str| {
            let module: Installed = serde_json::from_str(line)
                .map_err(|e| Fault::Failed(format!("flame list: {e}: is it of another release?")))?;
            Ok((module.name.clone(), module))
        };
        lines.lines().map(read).collect()
    }

    /// Installs a module, or changes one.
    pub fn run(
        &self,
        name: &str,
        file: &Path,
        settings: &[(String, String)],
        is_there: bool,
    ) -> Result<(), Fault> {
        let file = file.to_string_lossy();
        let mut arguments = match is_there {
            true => vec!["update", name, &file],
            false => vec!["install", &file, "--name", name],
        };
        let sets: Vec<_> = settings.iter().map(|(key, value)| format!("--set={key}={value}")).collect();
        arguments.extend(sets.iter().map(String::as_str));
        self.call(&arguments).map(drop)
    }

    pub fn renew(&self, name: &str) -> Result<(), Fault> {
        self.call(&["renew", name]).map(drop)
    }

    pub fn stop(&self, name: &str) -> Result<(), Fault> {
        self.call(&["stop", name]).map(drop)
    }

    pub fn remove(&self, name: &str) -> Result<(), Fault> {
        self.call(&["remove", name]).map(drop)
    }
}

/// Revokes a key or the id of a block, as the node's operator.
pub fn revoke(node: &str, what: &str) -> Result<(), Fault> {
    flame(&["node", "revoke", what, "--node", node]).map(drop)
}

/// Narrows a credential to the time until `expires`, and writes it to a file.
pub fn narrow(credential: &Path, seconds: u64, to: &Path) -> Result<(), Fault> {
    let (from, to) = (credential.to_string_lossy(), to.to_string_lossy());
    flame(&["grant", "narrow", &from, "--expires", &format!("+{seconds}s"), "-o", &to]).map(drop)
}

impl Fault {
    /// Returns the reason.
    pub fn into_text(self) -> String {
        match self {
            Self::Denied(text) | Self::Failed(text) => text,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.into_text().into()
    }
}
