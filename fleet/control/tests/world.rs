//! A fleet with its server and its control, and nodes that are folders and keys only.

use crate::program::program;
use clap::Parser;
use flame_fleet_control::{Command, Member, Settings};
use flame_fleet_nats::{Access, User};
use flame_fleet_protocol::{Delegated, Key, Secret};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

pub struct World {
    folder: tempfile::TempDir,
    server: Child,
    pub root: Secret,
}

impl World {
    /// Makes a fleet and starts its server and its control, or says why it cannot.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let root = Secret::new(&[7; 32]);
        let path = |name: &str| folder.path().join(name).display().to_string();
        write_private(&folder.path().join("root.key"), &root.to_pem());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (server, listen) = (format!("tls://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
        let (fleet, key) = (path("fleet"), path("root.key"));
        let init = ["init", "f", "--server", &server, "--listen", &listen, "--root", &key, "--fleet", &fleet];
        command(&init, None).unwrap();
        let mut server = std::process::Command::new(program);
        let server = server.arg("-c").arg(folder.path().join("fleet/server.conf"));
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let world = Self { folder, server, root };
        let fleet = world.fleet();
        // It ends with the process.
        std::thread::spawn(move || command(&["control", "--fleet", &fleet], None));
        Some(world)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn fleet(&self) -> String {
        self.path("fleet").display().to_string()
    }

    /// Runs a command of the operator.
    pub fn run(&self, arguments: &[&str]) -> Result<(), String> {
        command(&[arguments, &["--fleet", &self.fleet()]].concat(), None)
    }

    pub fn settings(&self, node: &str) -> Settings {
        let labels = [("site".to_owned(), node.to_owned()), ("speed".to_owned(), "10G".to_owned())].into();
        let node_address = format!("unix:{}", self.path("no.sock").display());
        Settings { name: node.to_owned(), member: self.path(node), labels, node: node_address, keeps: false }
    }

    /// Invites a node. Returns the token.
    pub fn invite(&self, node: &str) -> String {
        let file = self.path(&format!("token-{node}"));
        self.run(&["enrol", node, "--output", &file.display().to_string()]).unwrap();
        std::fs::read_to_string(file).unwrap()
    }

    /// Enrols a node as its own command does.
    pub fn apply(&self, node: &str, token: &str) -> Result<(), String> {
        let settings = self.settings(node);
        command(&["enrol", "--token", token.trim(), "--config", "node.toml"], Some(settings))
    }

    /// Makes a node a member.
    pub fn enrol(&self, node: &str) -> Member {
        self.apply(node, &self.invite(node)).unwrap();
        let member = Member::open(&self.path(node)).unwrap();
        self.run(&["approve", node, &member.secret.public().to_string()]).unwrap();
        member
    }

    pub fn secret(&self, name: &str) -> Secret {
        let pem = std::fs::read_to_string(self.path("fleet").join(name)).unwrap();
        Secret::from_pem(&pem).unwrap()
    }

    pub fn delegated(&self) -> Delegated {
        Delegated::read(&std::fs::read(self.path("fleet/delegation")).unwrap()).unwrap().0
    }

    /// Returns the way to the server as a user of the operator's folder.
    pub fn access(&self, user: &str) -> Access {
        let secret = Arc::new(self.secret(&format!("{user}.key")));
        let authority = self.path("fleet/ca.pem");
        let server = std::fs::read_to_string(self.path("fleet/fleet.toml")).unwrap();
        let server = server.lines().find_map(|line| line.strip_prefix("server = ")).unwrap();
        let user = User { secret, authority, inbox: format!("flame.inbox.{user}"), node: None };
        Access { server: server.trim_matches('"').to_owned(), user: Some(user) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

fn command(arguments: &[&str], settings: Option<Settings>) -> Result<(), String> {
    let cli = Cli::try_parse_from([&["fleet"], arguments].concat()).unwrap_or_else(|e| panic!("{e}"));
    let settings = |_: &Path| settings.clone().ok_or_else(|| "no settings".into());
    cli.command.run(settings).map_err(|e| e.to_string())
}

pub fn write_private(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut file = flame_files::create_new(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A key that the fleet does not know.
pub fn stranger() -> Key {
    Secret::new(&[99; 32]).public()
}
