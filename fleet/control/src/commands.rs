//! The commands of a fleet's operator, and the two of its nodes.

mod keys;
mod members;
mod modules;
mod top;

use crate::Error;
use crate::folder::Place;
use crate::member::{self, Settings};
use crate::service::{self, Status};
use clap::{Args, Subcommand};
use flame_fleet_protocol::{Label, Labels};
use keys::{init, rotate};
use members::{approve, invite, members, refuse};
use modules::{list, remove, revoke};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

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
    /// Watch the nodes and their modules of the fleet: packets, time, records, losses, revocations
    ///
    /// On a terminal the view is drawn again each second, until Ctrl-C. Otherwise, and with --once, it is
    /// printed once, after two lists of each node with contact, or 10 seconds. The nodes list their modules
    /// while a view is open. Processor time is rounded and changes with the intervals of their accounting.
    Top {
        /// Print one view
        #[arg(long)]
        once: bool,
        /// The form of the view; json prints one
        #[arg(long, value_enum, default_value = "table")]
        format: top::Format,
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
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
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
            Self::Top { once, format, folder } => top::top(&Place::open(&folder.path)?, once, format),
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

/// Warns of a control that does not run, or has no server.
fn warn(status: Option<&Status>) {
    match status {
        None => eprintln!("flame: note: the fleet's control does not run: flame fleet control"),
        Some(status) if !status.is_connected => {
            eprintln!("flame: note: the fleet's control has no connection to its server")
        }
        Some(_) => {}
    }
}

/// Returns labels of a configuration as conditions compare them: a number, maybe with k, M, G or T, is one.
pub fn labels(texts: &BTreeMap<String, String>) -> Labels {
    let label = |text: &String| match flame_fleet_protocol::condition::number(text) {
        Some(number) => Label::Number(number),
        None => Label::Text(text.clone()),
    };
    texts.iter().map(|(name, text)| (name.clone(), label(text))).collect()
}
