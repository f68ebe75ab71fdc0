//! The client's side of credentials: files of policy, credential and key, and answers to the node's
//! challenge.

use crate::caller::{self, Caller};
use crate::error::Error;
use clap::Args;
use flame_abi::LinkType;
use flame_node::{Applicant, Node, NodeError, Possession, Presented};
use flame_source::live::Interface;
use flame_trust::{Credential, Place, PublicKey, Secret};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options for policy, credential and key.
#[derive(Args, Clone)]
pub struct TrustArgs {
    /// Policy of the node: a module gets the intersection of policy, credential and manifest. Without a
    /// policy, modules run with the operator's rights; if /etc/flame/policy.toml exists, only root can run
    /// without it
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,

    /// Credential file, created by `flame grant`. With --policy and no credential, a module only receives
    /// packet counts
    #[arg(long, value_name = "FILE")]
    pub credential: Option<PathBuf>,

    /// Secret key of the credential's holder; - reads it from standard input
    #[arg(long, value_name = "FILE", requires = "credential")]
    pub identity: Option<PathBuf>,
}

impl TrustArgs {
    /// Opens the node, and reads the credential for packets from `place`. Returns `None` without a policy.
    pub fn open(&self, place: &Place) -> Result<Option<Applicant>, Error> {
        let Some(path) = caller::policy(self.policy.as_deref())? else {
            return match &self.credential {
                Some(_) => Err("--credential is for a node with a policy: --policy FILE".into()),
                None => Ok(None),
            };
        };
        tracing::info!(policy = %path.display(), credential = ?self.credential, place = place.name(), "policy applies");
        let node = Node::open(&path)?;
        let presented = presented(self.credential.as_deref(), self.identity.as_deref(), place)?;
        Ok(Some(Applicant { node, presented }))
    }
}

/// Reads the files of a credential and of its holder's key, for packets from `place`.
pub fn presented(
    credential_file: Option<&Path>,
    key: Option<&Path>,
    place: &Place,
) -> Result<Arc<Presented>, Error> {
    let credential = credential_file.map(credential).transpose()?;
    let key = key.map(identity).transpose()?;
    let possession = key.map_or(Possession::Unproved, |key| Possession::Asked(Box::new(key)));
    Ok(Arc::new(Presented { credential, possession, place: place.clone(), options: options() }))
}

/// Returns the place that an option names: `file`, `any`, or one of the names of an interface. A name that
/// this machine does not have is taken as the kernel's own name.
pub fn place(name: &str) -> Result<Place, Error> {
    match (Place::of_word(name), Interface::find(name)) {
        (Some(place), _) => Ok(place),
        (None, Ok(interface)) => Ok(flame_node::place_of(&interface)?),
        (None, Err(_)) => Ok(Place::interface(name)?),
    }
}

/// Returns the link types of packets of an interface, or of captures, as far as they are known before these
/// come.
pub fn links(interface: Option<&str>, files: &[PathBuf]) -> Vec<LinkType> {
    let mut links: Vec<LinkType> = match interface {
        Some(name) => flame_source::live::may_open(name).into_iter().collect(),
        None => files.iter().filter_map(|path| flame_source::first_link(path)).collect(),
    };
    links.sort_unstable();
    links.dedup();
    links
}

/// Returns the error of a decision. What the policy states is for its operator.
pub fn told(error: NodeError) -> Error {
    if caller::audience().is_operator() { error.operator().into() } else { error.into() }
}

/// Reads a credential from a file.
pub fn credential(path: &Path) -> Result<Credential, Error> {
    let text = flame_files::read_at_most(caller::open(path)?, flame_trust::MAX_BYTES as u64)
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8(text)
        .map_err(|_| format!("{}: a credential is text, this is not", path.display()))?;
    Credential::parse(&text).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Reads a holder's key. Standard input was opened by the shell with the caller's own rights.
pub fn identity(path: &Path) -> Result<Secret, Error> {
    if path.as_os_str() == "-" {
        return Ok(Secret::read(std::io::stdin().lock()).map_err(|e| format!("--identity -: {e}"))?);
    }
    Caller::here().may_name("--identity FILE", "the key stays yours: --identity - < FILE")?;
    Ok(Secret::from_file(path)?)
}

/// Returns the signers of a module, from the file next to it. An invalid signature is an error, not a missing
/// signer.
pub fn signers(module: &Path, hash: &[u8; 32]) -> Result<Vec<PublicKey>, Error> {
    let path = flame_trust::file_of(module);
    if !path.exists() {
        return Ok(Vec::new());
    }
    Ok(flame_trust::read_signers(caller::open(&path)?, &path, hash)?)
}

/// Returns the command's arguments for the audit log, truncated, because values may be texts of files.
fn options() -> String {
    let shown = |s: std::ffi::OsString| s.to_string_lossy().chars().take(200).collect::<String>();
    let all: Vec<_> = std::env::args_os().skip(1).map(shown).collect();
    let user = match Caller::here() {
        Caller::Through { uid } => format!(" (user {uid})"),
        _ => String::new(),
    };
    format!("{:?}{user}", all.join(" ").chars().take(2000).collect::<String>())
}
