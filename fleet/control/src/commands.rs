//! The commands of a fleet's operator, and the two of its nodes.

use crate::authority;
use crate::folder::{Fleet, MAX_MODULE, MAX_TEXT, Place};
use crate::follow::is_target;
use crate::member::{self, Settings};
use crate::service::{self, Status};
use crate::state::{Applicant, State, Wish};
use crate::token::{self, Token};
use crate::{Error, node, now, random};
use clap::{Args, Subcommand};
use flame_fleet_protocol::enrolment::{Standing, TokenHash};
use flame_fleet_protocol::rollout::{Outcome, Plan, Progress, Rollout};
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::{Action, Condition, Delegation, Key, Label, Labels, Secret};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The principal for whom credentials of nodes are minted.
const PRINCIPAL: &str = "fleet";
const WATCH: Duration = Duration::from_millis(100);

/// The operator's folder as an option.
#[derive(Args)]
pub struct Folder {
    /// Folder of the fleet, on its operator's machine
    #[arg(long = "fleet", env = "FLAME_FLEET", value_name = "FOLDER", default_value = "fleet")]
    path: PathBuf,
}

/// A node's configuration as an option.
#[derive(Args)]
pub struct Node {
    /// The node's configuration, whose table `fleet` names the folder `member`
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

/// The time from now on that is given as 90d, 12h, 30m or 20s.
#[derive(Clone, Copy)]
pub struct Seconds(u64);

impl std::str::FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?}: expected a number and d, h, m or s, as 90d");
        let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(expected)?;
        let factor = match unit {
            "d" => 86_400,
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            _ => return Err(expected()),
        };
        let number: u64 = digits.parse().map_err(|_| expected())?;
        number.checked_mul(factor).map(Self).ok_or_else(expected)
    }
}

/// A command of the fleet's control.
#[derive(Subcommand)]
pub enum Command {
    /// Make a fleet: its keys, its authority, and the configuration of its server
    Init {
        /// Name of the fleet
        name: String,
        /// Address that nodes connect to: tls://HOST:PORT
        #[arg(long, value_name = "ADDRESS")]
        server: String,
        /// Address on which the server listens [default: the port of --server on all addresses]
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<String>,
        /// The root's secret key (flame key new), which delegates the fleet's key. It is not kept
        #[arg(long, value_name = "FILE")]
        root: PathBuf,
        /// Time for which the delegation is valid
        #[arg(long, default_value = "365d")]
        valid: Seconds,
        /// Certificates of an authority and of the server, and the server's key, in place of made ones
        #[arg(long, num_args = 3, value_names = ["AUTHORITY", "CERTIFICATE", "KEY"])]
        tls: Option<Vec<PathBuf>>,
        #[command(flatten)]
        folder: Folder,
    },
    /// Serve the fleet until ended: sign what is wished, send it, take reports and applications
    Control {
        #[command(flatten)]
        folder: Folder,
    },
    /// Print a token with which a node enrols once; with --token, enrol this node
    Enrol {
        /// The only node for which the token is valid
        #[arg(conflicts_with = "token")]
        node: Option<String>,
        /// On the node: the token, or - to read it from standard input
        #[arg(long, requires = "config")]
        token: Option<String>,
        /// On the node: its configuration, whose table `fleet` names the folder `member`
        #[arg(short, long, value_name = "FILE", requires = "token")]
        config: Option<PathBuf>,
        /// Write the token to this file, which must not exist, instead of standard output
        #[arg(short, long, value_name = "FILE", conflicts_with = "token")]
        output: Option<PathBuf>,
        /// Time for which the token is valid
        #[arg(long, default_value = "1d")]
        valid: Seconds,
        #[command(flatten)]
        folder: Folder,
    },
    /// Let a node in that has applied, after comparing its key
    Approve {
        node: String,
        /// The key that the node printed
        key: String,
        /// The root's secret key, to mint the credential under which the node runs the fleet's modules
        #[arg(long, value_name = "FILE")]
        root: Option<PathBuf>,
        /// Role of that credential in the node's policy
        #[arg(long, default_value = "fleet")]
        role: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// End an application or a membership, for ever for the node's key
    Refuse {
        node: String,
        #[command(flatten)]
        folder: Folder,
    },
    /// Leave the fleet, on a node
    Leave {
        #[command(flatten)]
        node: Node,
    },
    /// List the nodes, with their keys and last reports
    Members {
        #[command(flatten)]
        folder: Folder,
    },
    /// Make another key of the fleet, which the root delegates; nodes that are away learn of it later
    Rotate {
        #[arg(long, value_name = "FILE")]
        root: PathBuf,
        #[arg(long, default_value = "365d")]
        valid: Seconds,
        /// The key was lost or stolen: nothing that it signed is followed any more
        #[arg(long)]
        lost: bool,
        #[command(flatten)]
        folder: Folder,
    },
    /// Install a module on the nodes that meet a condition, in waves
    Install(Install),
    /// Change code, parameters or condition of an installed module, in waves
    Update(Install),
    /// Remove a module from all nodes
    Remove {
        name: String,
        #[command(flatten)]
        folder: Folder,
        /// Return at once
        #[arg(long)]
        detach: bool,
    },
    /// List modules, how far their rollouts have come, and which nodes refuse or fail
    List {
        #[command(flatten)]
        folder: Folder,
        /// Print an object in JSON for each node of each module
        #[arg(long)]
        json: bool,
    },
    /// Revoke a module, a credential or a key on all nodes
    Revoke {
        /// A module of the fleet by name, the SHA-256 of one, the id of a block, or ed25519/KEY
        what: Option<String>,
        /// File of the credential to revoke, with all that were narrowed from it
        #[arg(long, value_name = "FILE", conflicts_with = "what", required_unless_present = "what")]
        credential: Option<PathBuf>,
        /// Return at once
        #[arg(long)]
        detach: bool,
        #[command(flatten)]
        folder: Folder,
    },
}

/// A module, and the nodes on which it is wished.
#[derive(Args)]
pub struct Install {
    /// For install, the file of the module; for update, the name of the installed module
    module: String,
    /// For update, the file of the new code [default: the code that it has]
    #[arg(long, value_name = "FILE")]
    code: Option<PathBuf>,
    /// For install, the name [default: the file's without .wasm]
    #[arg(long)]
    name: Option<String>,
    /// Condition over labels of nodes, as 'site = "penn" and speed >= 10G' [default: all nodes]
    #[arg(long, value_name = "CONDITION")]
    r#where: Option<String>,
    /// Value of a parameter; for update, all that were set before are replaced
    #[arg(long, value_name = "PARAMETER=VALUE")]
    set: Vec<String>,
    /// Time without contact after which the module stops
    #[arg(long, default_value = "1h")]
    lease: Seconds,
    /// Time after which it ends
    #[arg(long, default_value = "90d")]
    expires: Seconds,
    /// Number of nodes in each wave but the last; may be repeated
    #[arg(long = "wave", value_name = "NODES", default_values_t = [1usize, 10, 100, 1000])]
    waves: Vec<usize>,
    /// Share of a wave in percent that may fail or be silent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    failures: u32,
    /// Time for which a wave waits for reports
    #[arg(long, default_value = "60s")]
    patience: Seconds,
    /// Return at once
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    folder: Folder,
}

impl Command {
    /// Runs the command. `settings` reads the part of a node's configuration about its fleet.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing, or not everything, was done.
    pub fn run(self, settings: impl Fn(&Path) -> Result<Settings, Error>) -> Result<(), Error> {
        match self {
            Self::Init { name, server, listen, root, valid, tls, folder } => {
                init(&folder.path, (name, server, listen), &root, valid.0, tls)
            }
            Self::Control { folder } => service::run(&folder.path),
            Self::Enrol { token: Some(token), config: Some(config), .. } => {
                let token = match token.as_str() {
                    "-" => std::io::read_to_string(std::io::stdin())?,
                    _ => token,
                };
                member::enrol(&settings(&config)?, &token)
            }
            Self::Enrol { node, valid, folder, output, .. } => {
                invite(&Place::open(&folder.path)?, node, valid.0, output.as_deref())
            }
            Self::Approve { node, key, root, role, folder } => {
                approve(&Place::open(&folder.path)?, &node, &key, root.as_deref(), &role)
            }
            Self::Refuse { node, folder } => refuse(&Place::open(&folder.path)?, &node),
            Self::Leave { node } => member::leave(&settings(&node.config)?),
            Self::Members { folder } => members(&Place::open(&folder.path)?),
            Self::Rotate { root, valid, lost, folder } => {
                rotate(&Place::open(&folder.path)?, &root, valid.0, lost)
            }
            Self::Install(install) => install.run(true),
            Self::Update(update) => update.run(false),
            Self::Remove { name, folder, detach } => remove(&Place::open(&folder.path)?, &name, detach),
            Self::List { folder, json } => list(&Place::open(&folder.path)?, json),
            Self::Revoke { what, credential, detach, folder } => {
                revoke(&Place::open(&folder.path)?, what, credential.as_deref(), detach)
            }
        }
    }
}

/// Reads a secret key that only its owner may read.
fn key_file(path: &Path) -> Result<Secret, Error> {
    let at = |e: String| Error::from(format!("{}: {e}", path.display()));
    let file = flame_files::open(path, flame_files::Others::Nothing).map_err(|e| at(e.to_string()))?;
    let bytes = flame_files::read_at_most(file, 4096).map_err(|e| at(e.to_string()))?;
    let secret = std::str::from_utf8(&bytes).ok().and_then(Secret::from_pem);
    secret.ok_or_else(|| at("no Ed25519 secret key in PEM: make one with `flame key new FILE`".to_owned()))
}

fn init(
    path: &Path,
    (name, server, listen): (String, String, Option<String>),
    root: &Path,
    valid: u64,
    tls: Option<Vec<PathBuf>>,
) -> Result<(), Error> {
    let fault = || format!("--server {server:?}: expected tls://HOST:PORT");
    let (host, port) =
        server.strip_prefix("tls://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(fault)?;
    let _: u16 = port.parse().map_err(|_| fault())?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let listen = listen.unwrap_or_else(|| format!("0.0.0.0:{port}"));
    let root = key_file(root)?;
    let made = match tls {
        None => Some(authority::make(&name, std::slice::from_ref(&host))?),
        Some(_) => None,
    };
    let given: Vec<Vec<u8>> = tls.iter().flatten().map(std::fs::read).collect::<Result<_, _>>()?;
    let fleet = Fleet { name, root: root.public(), server, listen, store: "server".into() };
    let place = Place::make(path, fleet)?;
    match (made, &given[..]) {
        (Some(made), _) => {
            place.put("ca.pem", made.authority.as_bytes())?;
            place.put("ca.key", made.authority_key.as_bytes())?;
            place.put("server.pem", made.server.as_bytes())?;
            place.put("server.key", made.server_key.as_bytes())?;
        }
        (None, [authority, certificate, key]) => {
            place.put("ca.pem", authority)?;
            place.put("server.pem", certificate)?;
            place.put("server.key", key)?;
        }
        (None, _) => return Err("--tls: expected three files".into()),
    }
    for user in ["control", "archive", "system"] {
        place.put(&format!("{user}.key"), Secret::new(&random()?).to_pem().as_bytes())?;
    }
    delegate(&place, &root, 1, valid)?;
    let state = State::new();
    place.store(&state)?;
    place.configure(&state)?;
    let shown = place.path.display();
    println!("{shown}: fleet {}, under root {}", place.fleet.name, place.fleet.root);
    eprintln!(
        "start its server and its control:\n  nats-server -c {shown}/server.conf\n  flame fleet control --fleet {shown}"
    );
    Ok(())
}

/// Makes a key of the fleet and its delegation.
fn delegate(place: &Place, root: &Secret, number: u64, valid: u64) -> Result<(), Error> {
    if root.public() != place.fleet.root {
        return Err(format!("the root's key is {}, expected {}", root.public(), place.fleet.root).into());
    }
    let secret = Secret::new(&random()?);
    let key = hex(&secret.public().0);
    let delegation =
        Delegation { fleet: place.fleet.name.clone(), key, number, expires: now().saturating_add(valid) };
    place.put("fleet.key", secret.to_pem().as_bytes())?;
    place.put("delegation", &root.delegate(&delegation).to_bytes())
}

fn rotate(place: &Place, root: &Path, valid: u64, lost: bool) -> Result<(), Error> {
    let root = key_file(root)?;
    let (_, number) = place.change(|state| {
        let number = place.delegation()?.1.number + 1;
        delegate(place, &root, number, valid)?;
        state.revocations.number += 1;
        if lost {
            state.revocations.delegations = number;
        }
        Ok(number)
    })?;
    println!("delegation {number} is in force; nodes that are away have it with their next contact");
    Ok(())
}

fn invite(place: &Place, node: Option<String>, valid: u64, output: Option<&Path>) -> Result<(), Error> {
    let secret: [u8; 32] = random()?;
    let expires = now().saturating_add(valid);
    place.change(|state| {
        state.members.tidy(now());
        state.applicants.retain(|applicant| now() < applicant.expires);
        state.members.invite(TokenHash::of(&secret), node, expires);
        let key = token::user(&secret).public();
        state.applicants.push(Applicant { id: token::id(&secret), key, expires });
        Ok(())
    })?;
    let authority = String::from_utf8(place.read("ca.pem", MAX_TEXT)?.unwrap_or_default())?;
    let Fleet { name, root, server, .. } = place.fleet.clone();
    let text = Token { fleet: name, root, server, authority, secret: hex(&secret) }.text();
    match output {
        None => println!("{text}"),
        Some(path) => {
            let made = flame_files::create_new(path).and_then(|mut file| writeln!(file, "{text}"));
            made.map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    Ok(())
}

fn approve(place: &Place, node: &str, key: &str, root: Option<&Path>, role: &str) -> Result<(), Error> {
    let key =
        Key::parse(key).ok_or_else(|| format!("{key:?}: expected ed25519/ and 64 hexadecimal digits"))?;
    if let Some(root) = root {
        let path = place.path.join(format!("credential.{node}"));
        // The name is one of a node, or the application would have been refused.
        let standing = place.state()?.members.nodes().get(node).copied();
        if standing.is_none_or(|standing| standing.key() != key) {
            return Err(format!("node {node:?} has not applied with key {key}").into());
        }
        let (root, path, key) = (root.to_string_lossy(), path.to_string_lossy(), key.to_string());
        let mint = ["grant", "mint", "--key", &root, "--to", PRINCIPAL, "--role", role, "--code", "any"];
        node::flame(&[&mint[..], &["--holder", &key, "-o", &path]].concat())?;
    }
    place.change(|state| Ok(state.members.approve(node, &key)?))?;
    println!("{node} is a member");
    if root.is_none() {
        eprintln!("it runs no modules of the fleet before it has a credential: repeat this with --root FILE");
    }
    Ok(())
}

fn refuse(place: &Place, node: &str) -> Result<(), Error> {
    place.change(|state| {
        let key = state.members.nodes().get(node).map(Standing::key);
        let key = key.ok_or_else(|| format!("no node {node:?}: flame fleet members"))?;
        Ok(state.members.end(node, &key)?)
    })?;
    println!("{node} is no member any more, and its key never again");
    Ok(())
}

fn members(place: &Place) -> Result<(), Error> {
    let state = place.state()?;
    let status = service::status(place);
    let seen = status.clone().unwrap_or_default().nodes;
    for (name, standing) in state.members.nodes() {
        let what = match standing {
            Standing::Applied(_) => "applied",
            Standing::Member(_) => "member",
            Standing::Gone(_) => "gone",
        };
        let labels = state.labels.get(name).into_iter().flatten();
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        let report = match seen.get(name) {
            None => "no report".to_owned(),
            Some(seen) => {
                let refused = match &seen.reason {
                    Some(reason) => {
                        format!(", refused {} statements, the last because {reason}", seen.refused)
                    }
                    None => String::new(),
                };
                format!("reported {} s ago{refused}", now().saturating_sub(seen.at))
            }
        };
        println!("{name:<16} {what:<8} {}  {}  {report}", standing.key(), labels.join(" "));
    }
    warn(status.as_ref());
    Ok(())
}

fn warn(status: Option<&Status>) {
    match status {
        None => eprintln!("flame: note: the fleet's control does not run: flame fleet control"),
        Some(status) if !status.is_connected => {
            eprintln!("flame: note: the fleet's control has no connection to its server")
        }
        Some(_) => {}
    }
}

impl Install {
    fn run(self, is_new: bool) -> Result<(), Error> {
        let place = Place::open(&self.folder.path)?;
        let file = if is_new { Some(PathBuf::from(&self.module)) } else { self.code.clone() };
        let of_file = Path::new(&self.module).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = match is_new {
            true => self.name.clone().or(of_file).unwrap_or_default(),
            false => self.module.clone(),
        };
        if !is_target(&name) {
            let expected = "expected a letter and at most 31 more of a to z, 0 to 9, _ and -";
            return Err(format!("the name {name:?}: {expected} (--name NAME)").into());
        }
        let hash = file.as_deref().map(|file| store(&place, file)).transpose()?;
        let parameters = self.set.iter().map(|set| {
            let (key, value) =
                set.split_once('=').ok_or_else(|| format!("--set {set}: expected PARAMETER=VALUE"))?;
            Ok((key.to_owned(), value.to_owned()))
        });
        let parameters: Vec<_> = parameters.collect::<Result<_, Error>>()?;
        let (state, rollout) = place.change(|state| {
            let before = state.targets.get(&name).filter(|wish| wish.action != Action::Stop);
            let (module, parameters, condition) = match (is_new, before) {
                (true, Some(_)) => {
                    return Err(
                        format!("{name} is installed: flame fleet update {name}, or --name NAME").into()
                    );
                }
                (false, None) => return Err(format!("{name} is not installed: flame fleet list").into()),
                (true, None) => (hash, parameters, self.r#where.clone()),
                (false, Some(wish)) => {
                    let Action::Run { module, parameters: old, .. } = &wish.action else {
                        return Err("it is not installed".into());
                    };
                    let parameters = if parameters.is_empty() { old.clone() } else { parameters };
                    let condition = self.r#where.clone().unwrap_or_else(|| wish.r#where.clone());
                    (hash.or_else(|| Some(module.clone())), parameters, Some(condition))
                }
            };
            let module = module.ok_or("the file of the module is missing")?;
            if state.revocations.revoked.contains(&module) {
                return Err(format!("the module {module} is revoked: build another one").into());
            }
            let action = Action::Run { module, credential: Vec::new(), parameters };
            self.begin(state, &name, condition.unwrap_or_default(), action)
        })?;
        watch(&place, &state, &name, rollout, self.detach)
    }

    fn begin(&self, state: &mut State, name: &str, condition: String, action: Action) -> Result<u64, Error> {
        let plan =
            Plan { waves: self.waves.clone(), failures: self.failures * 10, patience: self.patience.0 };
        begin(state, name, condition, action, plan, (self.lease.0, self.expires.0))
    }
}

/// Keeps a module and its signatures. Returns its SHA-256.
fn store(place: &Place, path: &Path) -> Result<String, Error> {
    let read = |path: &Path, most| {
        let bytes = std::fs::File::open(path).and_then(|file| flame_files::read_at_most(file, most));
        bytes.map_err(|e| Error::from(format!("{}: {e}", path.display())))
    };
    let bytes = read(path, MAX_MODULE)?;
    if !bytes.starts_with(b"\0asm") {
        return Err(
            format!("{}: it does not begin as WebAssembly, expected a .wasm file", path.display()).into()
        );
    }
    let hash = hex(&Sha256::digest(&bytes));
    place.put(&format!("module.{hash}"), &bytes)?;
    let signatures = path.with_added_extension("sig");
    if signatures.exists() {
        place.put(&format!("signatures.{hash}"), &read(&signatures, MAX_TEXT)?)?;
    }
    Ok(hash)
}

/// Begins a rollout. Returns its number.
fn begin(
    state: &mut State,
    name: &str,
    condition: String,
    action: Action,
    plan: Plan,
    (lease, expires): (u64, u64),
) -> Result<u64, Error> {
    let parsed = Condition::parse(&condition).map_err(|e| format!("--where, {e}"))?;
    let nodes = state.members.nodes().iter().filter(|(name, standing)| {
        let labels = state.labels.get(*name).map(labels).unwrap_or_default();
        matches!(standing, Standing::Member(_)) && parsed.holds(&labels)
    });
    let nodes: Vec<String> = nodes.map(|(name, _)| name.clone()).collect();
    state.counter += 1;
    state.rollout += 1;
    let rollout = Rollout::new(state.rollout, nodes, plan, now());
    let (counter, id) = (state.counter, state.rollout);
    let wish =
        Wish { counter, expires: now().saturating_add(expires), lease, r#where: condition, action, rollout };
    state.targets.insert(name.to_owned(), wish);
    Ok(id)
}

/// Returns labels of a configuration as conditions compare them: a number, maybe with k, M, G or T, is one.
pub fn labels(texts: &BTreeMap<String, String>) -> Labels {
    let label = |text: &String| match flame_fleet_protocol::condition::number(text) {
        Some(number) => Label::Number(number),
        None => Label::Text(text.clone()),
    };
    texts.iter().map(|(name, text)| (name.clone(), label(text))).collect()
}

/// Prints what a rollout does until it ends. A rollout that halts is an error.
fn watch(place: &Place, begun: &State, name: &str, rollout: u64, detach: bool) -> Result<(), Error> {
    let start = Instant::now();
    let mut state = begun.clone();
    let mut said = HashSet::new();
    let mut waits = false;
    loop {
        let Some(wish) = state.targets.get(name).filter(|wish| wish.rollout.id() == rollout) else {
            return Err(format!("{name}: another change came first").into());
        };
        let (nodes, ends) = wish.rollout.waves();
        let count = nodes.count();
        let took = start.elapsed().as_secs_f64();
        for (node, outcome) in wish.rollout.outcomes() {
            let text = match outcome {
                Outcome::Running => continue,
                Outcome::Refused(reason) => format!("{node} refuses: {reason}"),
                Outcome::Failed(reason) => format!("{node} failed: {reason}"),
            };
            if said.insert(text.clone()) {
                println!("{text}");
            }
        }
        let followed = wish.rollout.outcomes().values().filter(|of| **of == Outcome::Running).count();
        match wish.rollout.progress() {
            Progress::Done => {
                println!("{name}: {followed} of {count} nodes follow, after {took:.2} s");
                return Ok(());
            }
            Progress::Halted { wave, failed, silent, of } => {
                return Err(format!(
                    "{name}: halted in wave {} of {}: of {of} nodes {failed} failed and {silent} were silent; the others \
                     keep what they had (flame fleet list)",
                    wave + 1,
                    ends.len()
                )
                .into());
            }
            Progress::Wave(_) if detach => return Ok(()),
            Progress::Wave(wave) => {
                let text = format!(
                    "wave {} of {}: up to {} nodes, after {took:.2} s",
                    wave + 1,
                    ends.len(),
                    ends[wave]
                );
                if said.insert(format!("wave {wave}")) {
                    println!("{text}");
                }
            }
        }
        if !waits && start.elapsed() > Duration::from_secs(5) {
            waits = true;
            warn(service::status(place).as_ref());
        }
        std::thread::sleep(WATCH);
        state = place.state()?;
    }
}

fn remove(place: &Place, name: &str, detach: bool) -> Result<(), Error> {
    let (state, rollout) = place.change(|state| {
        let wish =
            state.targets.get(name).ok_or_else(|| format!("{name} is not installed: flame fleet list"))?;
        let (condition, lease) = (wish.r#where.clone(), wish.lease);
        let plan = Plan { waves: Vec::new(), failures: 1000, patience: 60 };
        begin(state, name, condition, Action::Stop, plan, (lease, 90 * 86_400))
    })?;
    watch(place, &state, name, rollout, detach)
}

fn list(place: &Place, json: bool) -> Result<(), Error> {
    let state = place.state()?;
    for (name, wish) in &state.targets {
        let (nodes, ends) = wish.rollout.waves();
        let nodes: Vec<_> = nodes.collect();
        let text = |node: &str| match wish.rollout.outcomes().get(node) {
            None => ("silent", String::new()),
            Some(Outcome::Running) if wish.action == Action::Stop => ("removed", String::new()),
            Some(Outcome::Running) => ("running", String::new()),
            Some(Outcome::Refused(reason)) => ("refused", reason.clone()),
            Some(Outcome::Failed(reason)) => ("failed", reason.clone()),
        };
        if json {
            for node in nodes {
                let (outcome, reason) = text(node);
                println!(
                    "{}",
                    serde_json::json!({"module": name, "node": node, "rollout": wish.rollout.id(), "outcome": outcome, "reason": reason})
                );
            }
            continue;
        }
        let progress = match wish.rollout.progress() {
            Progress::Done => "done".to_owned(),
            Progress::Wave(wave) => format!("wave {} of {}", wave + 1, ends.len()),
            Progress::Halted { wave, .. } => format!("halted in wave {} of {}", wave + 1, ends.len()),
        };
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        nodes.iter().for_each(|node| *counts.entry(text(node).0).or_default() += 1);
        let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!("{name:<16} {progress:<16} {}  {}", counts.join(", "), wish.r#where);
        for node in nodes {
            let (outcome, reason) = text(node);
            if !reason.is_empty() {
                println!("  {node} {outcome}: {reason}");
            }
        }
    }
    warn(service::status(place).as_ref());
    Ok(())
}

fn revoke(place: &Place, what: Option<String>, credential: Option<&Path>, detach: bool) -> Result<(), Error> {
    let what = match (what, credential) {
        (None, Some(path)) => {
            let lines = node::flame(&["grant", "inspect", &path.to_string_lossy(), "--format", "json"])?;
            let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap_or_default())?;
            last["id"].as_str().ok_or("the credential has no id")?.to_owned()
        }
        (what, _) => what.ok_or("state what to revoke")?,
    };
    let start = Instant::now();
    let (_, number) = place.change(|state| {
        let of_target = state.targets.get(&what).map(|wish| &wish.action);
        let what = match of_target {
            Some(Action::Run { module, .. }) => module.clone(),
            Some(Action::Stop) => return Err(format!("{what} is removed: state its SHA-256").into()),
            None if Key::parse(&what).is_some() => what,
            None if !what.is_empty() && what.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                what.to_ascii_lowercase()
            }
            None => {
                let expected = "a module of the fleet, a SHA-256, the id of a block, or ed25519/KEY";
                return Err(format!("{what:?}: expected {expected}").into());
            }
        };
        if !state.revocations.revoked.contains(&what) {
            state.revocations.revoked.push(what);
            state.revocations.number += 1;
        }
        Ok(state.revocations.number)
    })?;
    println!("the list of revocations has number {number}");
    watch_revocation(place, number, start, detach)
}

/// Waits until the list is in force on all nodes with contact.
fn watch_revocation(place: &Place, number: u64, start: Instant, detach: bool) -> Result<(), Error> {
    let mut waits = false;
    while !detach {
        if let Some(status) = service::status(place) {
            let has = |seen: &service::Seen| seen.revoked >= number && seen.has_revoked;
            let near = status.nodes.values().filter(|seen| now() <= seen.at.saturating_add(15));
            let (all, done) = (near.clone().count(), near.filter(|seen| has(seen)).count());
            if all == done {
                let took = start.elapsed().as_secs_f64();
                println!("it is in force on all {all} nodes with contact, after {took:.2} s");
                return Ok(());
            }
        }
        if !waits && start.elapsed() > Duration::from_secs(5) {
            waits = true;
            warn(service::status(place).as_ref());
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(
                "it is not in force on some nodes with contact after 60 s: flame fleet members".into()
            );
        }
        std::thread::sleep(WATCH);
    }
    Ok(())
}
