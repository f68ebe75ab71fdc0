use crate::client::{AnswerArgs, Client, Entry, NodeArgs, Nodes, table};
use crate::console::{complain, say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::reserve_args::percent_text;
use clap::{Args, Subcommand};
use flame_api::{Credentials, RevokeRequest, Security, Status as NodeStatus};
use flame_trust::time;
use std::path::PathBuf;

/// Run and inspect a node, and select the current one
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
        /// Show what each process of the node may do, as the kernel reports it: user, capabilities, filter of
        /// system calls
        #[arg(long)]
        security: bool,
        #[command(flatten)]
        node: NodeArgs,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// List the credentials under which modules are installed on a node, for its operator
    Credentials {
        #[command(flatten)]
        node: NodeArgs,
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Revoke a credential or a key on a node, for its operator; modules under it have ended then
    Revoke {
        /// Id of a block (`flame grant inspect`), or public key
        what: String,
        #[command(flatten)]
        node: NodeArgs,
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
        /// User who listens on the Unix socket, if neither root nor you
        #[arg(long)]
        user: Option<String>,
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
            What::Status { security: true, node, answer } => {
                security(&Client::open(&node)?.get("/v1/status/security")?, answer);
            }
            What::Status { security: false, node, answer } => {
                status(&Client::open(&node)?.get("/v1/status")?, answer)
            }
            What::Credentials { node, answer } => {
                credentials(&Client::open(&node)?.get("/v1/credentials")?, answer);
            }
            What::Revoke { what, node } => {
                let (key, id) = match what.starts_with("ed25519/") {
                    true => (Some(what), None),
                    false => (None, Some(what)),
                };
                let request = RevokeRequest { key, id, ..RevokeRequest::default() };
                Client::open(&node)?.change("/v1/revocations", &request)?;
            }
            What::Add { name, address, certificate, credential, identity, user } => {
                let full = |path: Option<PathBuf>| path.map(std::path::absolute).transpose();
                let (certificate, credential, identity) =
                    (full(certificate)?, full(credential)?, full(identity)?);
                let mut nodes = Nodes::open()?;
                nodes.nodes.insert(name.clone(), Entry { address, certificate, credential, identity, user });
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

fn credentials(of: &Credentials, answer: AnswerArgs) {
    if answer.is_json() {
        return say_json!(of);
    }
    let mut rows = vec![["PRINCIPAL", "ROLE", "ENDS", "MODULES", "RUNNING", "ID"].map(str::to_owned)];
    rows.extend(of.credentials.iter().map(|one| {
        let ends = one.expires.map_or_else(|| "never".to_owned(), time::show);
        let role = one.role.clone().unwrap_or_default();
        [
            one.principal.clone(),
            role,
            ends,
            one.modules.join(","),
            one.running.len().to_string(),
            one.id.clone(),
        ]
    }));
    table(&rows);
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

fn security(security: &Security, answer: AnswerArgs) {
    if answer.is_json() {
        return say_json!(security);
    }
    let head = [
        "PID",
        "PROCESS",
        "RUNS",
        "GUARANTEED",
        "ENDED",
        "THREADS",
        "USER",
        "CAPABILITIES",
        "SECCOMP",
        "NO NEW PRIVILEGES",
        "NAMESPACE",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let unknown = || "unknown".to_owned();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for process in &security.processes {
        for threads in &process.threads {
            rows.push([
                process.pid.to_string(),
                process.name.clone(),
                match &process.runs {
                    None => "-".to_owned(),
                    Some(r) => format!("{} of {} on {}", r.modules, r.principal, r.source),
                },
                match process.runs.as_ref().map(|r| r.guaranteed_ppm) {
                    None | Some(0) => "-".to_owned(),
                    Some(ppm) => percent_text(ppm),
                },
                process.runs.as_ref().map_or_else(|| "-".to_owned(), |r| r.ended.to_string()),
                threads.count.to_string(),
                threads.user.to_string(),
                match threads.effective.len() {
                    0 => "none".to_owned(),
                    1..=4 => threads.effective.join(" "),
                    n => format!("{n} of them"),
                },
                threads.seccomp.clone().unwrap_or_else(unknown),
                threads.no_new_privileges.map_or_else(unknown, yes),
                match process.own_user_namespace {
                    Some(true) => "own".to_owned(),
                    Some(false) => "the node's".to_owned(),
                    None => unknown(),
                },
            ]);
        }
    }
    table(&rows);
}
