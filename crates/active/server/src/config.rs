//! The configuration of an active node or host.

use crate::certificates::{Judge, payer_of, place_of};
use crate::extensions::{Extensions, Service};
use flame_active_node::{Map, Rights, Room, Settings, Terms};
use flame_capsule::{Limits, MAX_LIST, Payer, Place, interface};
use flame_trust::{Credential, Denied, Identity, Policy, Secret};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ConfigError {
    path: String,
    reason: String,
}

/// A configuration, with the credential and the policy that it names.
pub struct Config {
    pub listen: SocketAddr,
    pub policy: Policy,
    pub policy_path: PathBuf,
    pub credential: Credential,
    pub secret: Secret,
    /// The principal of its own credential.
    pub own: Identity,
    /// The role of nodes.
    pub nodes: String,
    /// The most that a peer may have accepted in a second.
    pub share: Limits,
    pub settings: Settings,
    /// The names of places.
    pub names: BTreeMap<Place, String>,
    /// Where the latest time is kept.
    pub time: Option<PathBuf>,
    /// The node whose modules capsules find.
    pub installed: Option<Installed>,
    /// The services of installed modules.
    pub services: BTreeMap<String, Service>,
}

/// The node of modules whose records the services read: as its operator, or under a credential, which shows
/// the modules of its principal alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Installed {
    /// `unix:PATH` or `https://HOST:PORT`.
    pub node: String,
    pub credential: Option<PathBuf>,
    pub identity: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
}

impl Installed {
    /// Returns it with paths relative to a folder.
    fn within(self, folder: &Path) -> Self {
        let at = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        let node = match self.node.strip_prefix("unix:") {
            Some(path) => format!("unix:{}", folder.join(path).display()),
            None => self.node,
        };
        let (credential, identity, certificate) =
            (at(self.credential), at(self.identity), at(self.certificate));
        Self { node, credential, identity, certificate }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: SocketAddr,
    policy: PathBuf,
    credential: PathBuf,
    identity: PathBuf,
    #[serde(default = "relay")]
    nodes: String,
    time: Option<PathBuf>,
    #[serde(default)]
    neighbours: BTreeMap<String, SocketAddr>,
    /// For other names, the neighbour on the way.
    #[serde(default)]
    ways: BTreeMap<String, String>,
    /// For neighbours, the interface over which they are reached.
    #[serde(default)]
    interfaces: BTreeMap<String, String>,
    #[serde(default = "Bounds::share")]
    share: Bounds,
    #[serde(default)]
    accounts: BTreeMap<String, Account>,
    #[serde(default = "Account::strangers", rename = "best-effort")]
    best_effort: Account,
    #[serde(default = "Bounds::strangers")]
    strangers: Bounds,
    installed: Option<Installed>,
    #[serde(default)]
    services: BTreeMap<String, Service>,
}

fn relay() -> String {
    "relay".to_owned()
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    hops: u8,
    instructions: u64,
    bytes: u64,
    copies: u32,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum Call {
    Send,
    Deliver,
    Leave,
    Service,
    Times,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Account {
    calls: BTreeSet<Call>,
    /// The most of the bound of one capsule.
    #[serde(default = "Bounds::capsule")]
    most: Bounds,
    /// The resolution of time in milliseconds.
    #[serde(default = "second")]
    resolution: u64,
}

fn second() -> u64 {
    1000
}

impl Bounds {
    fn share() -> Self {
        Self { hops: 32, instructions: 1_000_000_000, bytes: 256 << 20, copies: 1_000_000 }
    }

    fn strangers() -> Self {
        Self { hops: 4, instructions: 10_000_000, bytes: 1 << 20, copies: 1000 }
    }

    fn capsule() -> Self {
        Self { hops: 32, instructions: 1_000_000, bytes: 256 << 10, copies: 256 }
    }
}

impl From<Bounds> for Limits {
    fn from(bounds: Bounds) -> Self {
        let Bounds { hops, instructions, bytes, copies } = bounds;
        Self { hops, instructions, bytes, copies }
    }
}

impl Account {
    fn strangers() -> Self {
        let most = Bounds { hops: 4, instructions: 20_000, bytes: 16 << 10, copies: 8 };
        Self { calls: BTreeSet::from([Call::Send, Call::Deliver]), most, resolution: second() }
    }
}

impl From<&Account> for Terms {
    fn from(account: &Account) -> Self {
        let has = |call| account.calls.contains(&call);
        let rights = Rights {
            send: has(Call::Send),
            deliver: has(Call::Deliver),
            leave: has(Call::Leave),
            service: has(Call::Service) || has(Call::Times),
            times: has(Call::Times),
        };
        Self { rights, most: account.most.into(), resolution: account.resolution }
    }
}

impl Config {
    /// Reads a configuration, its policy and credential. Paths are relative to its folder. `now` is in
    /// seconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is invalid, if a name in it is not known, or if the
    /// credential is not valid.
    pub fn open(path: &Path, now: u64) -> Result<Self, ConfigError> {
        let fail = |path: &Path, reason: &dyn std::fmt::Display| ConfigError {
            path: path.display().to_string(),
            reason: reason.to_string(),
        };
        let text = std::fs::read_to_string(path).map_err(|e| fail(path, &e))?;
        let file: File = toml::from_str(&text).map_err(|e| fail(path, &e.to_string().trim_end()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let policy_path = folder.join(&file.policy);
        let policy = Policy::open(&policy_path).map_err(|e| fail(&policy_path, &e))?;
        let secret = Secret::from_file(&folder.join(&file.identity)).map_err(|e| fail(path, &e))?;
        let at = folder.join(&file.credential);
        let text = std::fs::read_to_string(&at).map_err(|e| fail(&at, &e))?;
        let credential = Credential::parse(text.trim()).map_err(|e| fail(&at, &e))?;
        let named = policy.named(&credential).map_err(|e| fail(&at, &e))?;
        match policy.admit_session(&named, now) {
            // It names the nodes that accept it, and a host is none of them.
            Ok(()) | Err(Denied::Place { .. }) => {}
            Err(denied) => return Err(fail(&at, &denied)),
        }
        let own = named.identity;
        if !policy.roles.contains_key(&file.nodes) {
            let reason = format!(
                "nodes = {:?} is no role of {}: name the role of the nodes' credentials",
                file.nodes,
                policy_path.display()
            );
            return Err(fail(path, &reason));
        }
        let settings = settings(&file, &policy, &own).map_err(|reason| fail(path, &reason))?;
        let known = file.neighbours.keys().chain(file.ways.keys()).chain([&own.principal]);
        let names = known.map(|name| (place_of(&own.root, name), name.clone())).collect();
        let time = file.time.map(|time| folder.join(time));
        let (listen, nodes, share) = (file.listen, file.nodes, file.share.into());
        let installed = file.installed.map(|installed| installed.within(folder));
        let services = file.services;
        Ok(Self {
            listen,
            policy,
            policy_path,
            credential,
            secret,
            own,
            nodes,
            share,
            settings,
            names,
            time,
            installed,
            services,
        })
    }

    /// Returns the judge of certificates.
    #[must_use]
    pub fn judge(&self) -> Judge {
        Judge::new(self.policy.clone(), self.nodes.clone(), self.share)
    }

    /// Returns its own payer.
    #[must_use]
    pub fn payer(&self) -> Payer {
        payer_of(&self.own.root, &self.own.principal)
    }

    /// Returns the place of a name.
    #[must_use]
    pub fn place(&self, name: &str) -> Place {
        place_of(&self.own.root, name)
    }

    /// Returns the services of installed modules.
    #[must_use]
    pub fn extensions(&self) -> Extensions {
        Extensions::new(&self.services, |name| self.place(name))
    }
}

fn settings(file: &File, policy: &Policy, own: &Identity) -> Result<Settings, String> {
    if file.neighbours.len() > MAX_LIST {
        let found = file.neighbours.len();
        return Err(format!(
            "[neighbours] has {found} entries, at most {MAX_LIST} are seen: divide the network"
        ));
    }
    let place = |name: &str| place_of(&own.root, name);
    let mut ways = BTreeMap::new();
    for (to, via) in &file.ways {
        if !file.neighbours.contains_key(via) {
            return Err(format!(
                "[ways] {to} = {via:?} is no neighbour: add it to [neighbours], or correct it"
            ));
        }
        ways.insert(place(to), place(via));
    }
    if let Some(name) = file.interfaces.keys().find(|name| !file.neighbours.contains_key(*name)) {
        return Err(format!("[interfaces] {name:?} is no neighbour: add it to [neighbours], or correct it"));
    }
    if !file.services.is_empty() && file.installed.is_none() {
        return Err("[services] are of installed modules: name their node in [installed]".to_owned());
    }
    for (called, service) in &file.services {
        service.check(called)?;
        if let Some(name) = service.neighbours.iter().find(|name| !file.neighbours.contains_key(*name)) {
            return Err(format!(
                "[services.{called}] {name:?} is no neighbour: add it to [neighbours], or correct it"
            ));
        }
    }
    let neighbours: Vec<_> = file.neighbours.iter().map(|(name, at)| (place(name), *at)).collect();
    let interfaces = file.interfaces.iter().map(|(name, over)| (place(name), interface(over))).collect();
    let of_all_roots = |(name, account): (&String, &Account)| {
        let terms = Terms::from(account);
        policy.roots.values().map(|root| (payer_of(root, name), terms)).collect::<Vec<_>>()
    };
    Ok(Settings {
        here: place(&own.principal),
        map: Map::new(&neighbours, ways).over(interfaces),
        accounts: file.accounts.iter().flat_map(of_all_roots).collect(),
        best_effort: Terms::from(&file.best_effort),
        strangers: file.strangers.into(),
        room: Room::default(),
    })
}
