use crate::client::{AnswerArgs, Client, Entry, NodeArgs, Nodes};
use crate::command::list::table;
use crate::console::{complain, say, say_json};
use crate::error::Error;
use crate::exit::Status;
use clap::{Args, Subcommand};
use flame_api::Status as NodeStatus;
use flame_trust::time;
use std::path::PathBuf;

/// Run a node, look at it, and choose between nodes
#[derive(Args)]
pub struct Node {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a node until SIGTERM or Ctrl-C; SIGHUP reads its configuration again
    Run {
        /// Configuration, node.toml
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Check a configuration and the files that it names
    Check {
        /// Configuration, node.toml
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Show the state of a node, for its operator
    Status {
        #[command(flatten)]
        node: NodeArgs,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Add a node to ~/.config/flame/nodes.toml, or change it, and make it the current one
    Add {
        /// Name of the node
        name: String,
        /// unix:PATH or https://HOST:PORT
        address: String,
        /// Certificate of the node, or of its authority, for https
        #[arg(long, value_name = "FILE")]
        certificate: Option<PathBuf>,
        /// Credential to present, which names a holder
        #[arg(long, value_name = "FILE", requires = "identity")]
        credential: Option<PathBuf>,
        /// Secret key of the credential's holder
        #[arg(long, value_name = "FILE", requires = "credential")]
        identity: Option<PathBuf>,
    },
    /// Make a node the current one
    Use { name: String },
    /// List the nodes in ~/.config/flame/nodes.toml
    List,
}

impl Node {
    pub fn run(self) -> Result<Status, Error> {
        match self.what {
            What::Run { config } => {
                flame_daemon::run(&config, &|text| complain!("flame: node: {text}"))?;
                return Ok(Status::Done);
            }
            What::Check { config } => {
                for note in flame_daemon::check(&config)? {
                    complain!("flame: note: {note}");
                }
                say!("{}: valid", config.display());
            }
            What::Status { node, answer } => status(&Client::open(&node)?.get("/v1/status")?, answer),
            What::Add { name, address, certificate, credential, identity } => {
                let full = |path: Option<PathBuf>| path.map(std::path::absolute).transpose();
                let (certificate, credential, identity) =
                    (full(certificate)?, full(credential)?, full(identity)?);
                let mut nodes = Nodes::open()?;
                nodes.nodes.insert(name.clone(), Entry { address, certificate, credential, identity });
                nodes.current = Some(name);
                nodes.save()?;
            }
            What::Use { name } => {
                let mut nodes = Nodes::open()?;
                if !nodes.nodes.contains_key(&name) {
                    return Err(format!("no node {name:?}: flame node add {name} ADDRESS").into());
                }
                nodes.current = Some(name);
                nodes.save()?;
            }
            What::List => {
                let nodes = Nodes::open()?;
                let mut rows = vec![["", "NODE", "ADDRESS"].map(str::to_owned)];
                for (name, entry) in nodes.nodes {
                    let current = if nodes.current.as_ref() == Some(&name) { "*" } else { "" };
                    rows.push([current.to_owned(), name, entry.address]);
                }
                table(&rows);
            }
        }
        Ok(Status::Done)
    }
}

fn status(status: &NodeStatus, answer: AnswerArgs) {
    if answer.is_json() {
        return say_json!(status);
    }
    say!(
        "{} {}, since {}",
        status.name.as_deref().unwrap_or("node"),
        status.version,
        time::show(status.started)
    );
    say!("{} modules, {} running", status.modules, status.running);
    let head = ["SOURCE", "FROM", "METHOD", "WORKERS", "PACKETS", "DROPPED", "STATE"];
    let mut rows = vec![head.map(str::to_owned)];
    for s in &status.sources {
        let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
        let state = s.reason.clone().unwrap_or_else(|| "running".to_owned());
        rows.push([
            s.name.clone(),
            s.from.clone().unwrap_or_default(),
            s.method.clone(),
            s.workers.to_string(),
            number(s.packets),
            number(s.kernel_drops),
            state,
        ]);
    }
    table(&rows);
    status.notes.iter().for_each(|note| say!("note: {note}"));
}
