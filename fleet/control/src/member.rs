//! The node's side: its folder with key and state, and how it enrols and leaves.

use crate::folder::MAX_TEXT;
use crate::service::ask;
use crate::token::{self, Token};
use crate::{Error, random};
use flame_files::Folder;
use flame_fleet_nats::{Access, Bus, User};
use flame_fleet_protocol::enrolment::apply_with;
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::talk::{Application, Ask, Subjects, enrolment, read_reply};
use flame_fleet_protocol::{Key, Secret, Stored};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for the operator's service.
const ANSWER: Duration = Duration::from_secs(20);
const MAX_STATE: u64 = 64 << 20;

/// What a node's configuration states about its fleet.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    /// The folder of the node's keys and state.
    pub member: PathBuf,
    pub labels: BTreeMap<String, String>,
    /// The node's address for `flame --node`.
    pub node: String,
    /// Whether modules of the fleet run without contact, too.
    pub keeps: bool,
}

/// A member of a fleet, as its node knows it.
pub struct Member {
    folder: Folder,
    pub path: PathBuf,
    pub known: Known,
    pub secret: Arc<Secret>,
}

/// What a token stated, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    pub name: String,
    pub fleet: String,
    pub root: Key,
    pub server: String,
}

/// What a node keeps over restarts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub stored: Stored,
    /// The revocations that are in force on the node.
    pub revoked: BTreeSet<String>,
}

impl Member {
    /// Opens the folder of a node that has enrolled.
    ///
    /// # Errors
    ///
    /// Returns an error if it has not, or if others have access to the folder.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let shown = path.display().to_string();
        let at = |e: &dyn std::fmt::Display| Error::from(format!("{shown}: {e}"));
        let folder = Folder::private(path).map_err(|e| at(&e))?;
        let known = folder.read("member.toml", MAX_TEXT).map_err(|e| at(&e))?;
        let known = known.ok_or_else(|| at(&"the node has not enrolled: flame fleet enrol --token TOKEN"))?;
        let known = toml::from_str(&String::from_utf8(known)?).map_err(|e| at(&e))?;
        let secret =
            secret(&folder).map_err(|e| at(&e))?.ok_or_else(|| at(&"node.key is missing: enrol again"))?;
        Ok(Self { folder, path: path.to_owned(), known, secret: Arc::new(secret) })
    }

    /// Returns the way to the server as this node.
    pub fn access(&self) -> Access {
        let Known { name, server, .. } = &self.known;
        let (secret, authority) = (self.secret.clone(), self.path.join("ca.pem"));
        let inbox = Subjects::of(name).inbox;
        let user = User { secret, authority, inbox, node: Some(name.clone()) };
        Access { server: server.clone(), user: Some(user) }
    }

    /// Returns what was kept.
    pub(crate) fn kept(&self) -> Result<Kept, Error> {
        let at = |e: &dyn std::fmt::Display| Error::from(format!("{}/state: {e}", self.path.display()));
        let bytes = self.folder.read("state", MAX_STATE).map_err(|e| at(&e))?;
        // Without it, old intents could come again.
        let remedy = "restore it from a backup, or enrol as another node";
        let bytes = bytes.ok_or_else(|| at(&format!("it is missing: {remedy}")))?;
        serde_json::from_slice(&bytes).map_err(|e| at(&format!("{e}: {remedy}")))
    }

    /// Keeps this, before it is acted on.
    pub(crate) fn keep(&self, kept: &Kept) -> Result<(), Error> {
        let bytes = serde_json::to_vec(kept)?;
        self.put("state", &bytes)
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let at = |e| format!("{}/{name}: {e}", self.path.display());
        Ok(self.folder.put_synced(name, bytes).map_err(at)?)
    }

    /// Removes a file, if it is there.
    pub(crate) fn forget(&self, name: &str) {
        let _ = self.folder.remove(name);
    }
}

fn secret(folder: &Folder) -> std::io::Result<Option<Secret>> {
    let bytes = folder.read("node.key", 4096)?;
    let secret = bytes.as_deref().map(|bytes| std::str::from_utf8(bytes).ok().and_then(Secret::from_pem));
    match secret {
        Some(None) => Err(std::io::Error::other("node.key is no key: remove it, and enrol again")),
        found => Ok(found.flatten()),
    }
}

/// Applies with a token. The answer is printed.
pub fn enrol(settings: &Settings, token: &str) -> Result<(), Error> {
    let Token { fleet, root, server, authority, secret: digits } = Token::parse(token)?;
    let once = Token::parse(token)?.secret().ok_or("the token has no secret")?;
    let path = &settings.member;
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    let folder = Folder::private(path).map_err(at)?;
    // The same key again, after an answer that was lost.
    let secret = match secret(&folder).map_err(at)? {
        Some(secret) => secret,
        None => {
            let secret = Secret::new(&random()?);
            folder.put_synced("node.key", secret.to_pem().as_bytes()).map_err(at)?;
            secret
        }
    };
    let name = settings.name.clone();
    folder.put_synced("ca.pem", authority.as_bytes()).map_err(at)?;
    let id = token::id(&once);
    let (subject, inbox) = enrolment(&id);
    let user =
        User { secret: Arc::new(token::user(&once)), authority: path.join("ca.pem"), inbox, node: None };
    let mut bus = Bus::connect(&Access { server: server.clone(), user: Some(user) })?;
    let begun = std::time::Instant::now();
    while !bus.is_connected() {
        if begun.elapsed() > ANSWER {
            return Err(format!(
                "{server}: no connection in {ANSWER:?}: does the server run, and is the token still valid?"
            )
            .into());
        }
        std::thread::sleep(Duration::from_millis(50));
        bus.tend()?;
    }
    let signature = apply_with(&secret, &once, &fleet, &name);
    let application = Application {
        token: digits,
        name: name.clone(),
        key: secret.public().to_string(),
        signature: hex(&signature),
    };
    let application = serde_json::to_vec(&application)?;
    let answer = loop {
        match bus.request(&subject, application.clone(), ANSWER) {
            Ok(answer) => break read_reply(&answer)?.to_vec(),
            // The operator's service may be about to start. It takes the same application twice.
            Err(e) if begun.elapsed() > ANSWER => return Err(e.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
        bus.tend()?;
    };
    let known = toml::to_string(&Known { name: name.clone(), fleet, root, server })?;
    folder.put_synced("member.toml", known.as_bytes()).map_err(at)?;
    folder.put_new("state", &serde_json::to_vec(&Kept::default())?).map_err(at)?;
    println!("{name} {}: {}", secret.public(), String::from_utf8_lossy(&answer));
    if answer == b"applied" {
        eprintln!(
            "the operator compares the key and lets it in: flame fleet approve {name} {}",
            secret.public()
        );
    }
    Ok(())
}

/// Leaves the fleet. Modules of the fleet end with its leases; the agent is to be ended.
pub fn leave(settings: &Settings) -> Result<(), Error> {
    let member = Member::open(&settings.member)?;
    let bus = Bus::connect(&member.access())?;
    ask(&bus, &Subjects::of(&member.known.name).ask, Ask::Leave.to_bytes(), ANSWER)?;
    member.forget("member.toml");
    member.forget("node.key");
    println!("{} has left {}", member.known.name, member.known.fleet);
    Ok(())
}
