//! Nodes, agents, a server and an archive as processes.

use crate::program::program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds.
pub fn wait_for(what: impl AsRef<str>, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {}", what.as_ref());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Returns the file of a variable, or the other one.
fn found(variable: &str, other: PathBuf) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = named.into_iter().chain([other]).find(|path| path.exists());
    if path.is_none() {
        eprintln!("skipped: state {variable}, or run `make build`");
    }
    path
}

/// The processes of a test by name, which end with it: `server`, `control`, `archive`, each agent by the name
/// of its node, each node as `node-NAME`.
pub struct Processes {
    folder: tempfile::TempDir,
    pub flame: PathBuf,
    nats: PathBuf,
    modules: PathBuf,
    running: BTreeMap<String, Child>,
}

impl Processes {
    /// Finds the programs, or says why it cannot.
    pub fn find() -> Option<Self> {
        let built = Path::new(env!("CARGO_BIN_EXE_flame-fleet")).parent()?;
        let nats = program()?;
        let flame = found("FLAME", built.join("flame"))?;
        let modules = found("FLAME_MODULES", built.join("modules"))?;
        let folder = tempfile::tempdir().unwrap();
        Some(Self { folder, flame, nats, modules, running: BTreeMap::new() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn module(&self, name: &str) -> String {
        self.modules.join(name).display().to_string()
    }

    /// Starts a process. The server has this configuration.
    pub fn begin(&mut self, name: &str, server: &str) {
        let fleet = env!("CARGO_BIN_EXE_flame-fleet");
        let (program, arguments, last) = match (name, name.strip_prefix("node-")) {
            ("server", _) => (self.nats.clone(), &["-c"][..], self.path(server)),
            ("control", _) => (fleet.into(), &["fleet", "control", "--fleet"][..], self.path("fleet")),
            ("archive", _) => (fleet.into(), &["fleet", "archive", "-c"][..], self.path("archive.toml")),
            (_, Some(node)) => {
                (self.flame.clone(), &["node", "run", "-c"][..], self.path(node).join("node.toml"))
            }
            (agent, None) => {
                (fleet.into(), &["fleet", "agent", "-c"][..], self.path(agent).join("node.toml"))
            }
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(last).stdout(Stdio::null()).stderr(self.log());
        let child = command.spawn().unwrap();
        assert!(self.running.insert(name.to_owned(), child).is_none(), "{name} runs already");
    }

    fn log(&self) -> File {
        File::options().create(true).append(true).open(self.path("log")).unwrap()
    }

    /// Runs the program under test until a line of its output fulfils a condition.
    pub fn until(&self, arguments: &[&str], mut is_it: impl FnMut(&str) -> bool) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
        let command = command.args(arguments).env("FLAME_ARCHIVE", self.path("archive"));
        let mut child = command.stdout(Stdio::piped()).stderr(self.log()).spawn().unwrap();
        let (to, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        let begun = Instant::now();
        let next = || lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())).ok();
        let found = std::iter::from_fn(next).any(|line| is_it(&line));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found, "no such line of {arguments:?} in {PATIENCE:?}");
    }

    /// Kills a process by SIGKILL.
    pub fn kill(&mut self, name: &str) {
        let mut child = self.running.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let names: Vec<_> = self.running.keys().cloned().collect();
        names.iter().for_each(|name| self.kill(name));
        if std::thread::panicking() {
            println!("{}", std::fs::read_to_string(self.path("log")).unwrap_or_default());
        }
    }
}

pub struct World {
    processes: Processes,
    port: u16,
    nodes: Vec<String>,
}

impl World {
    /// Starts nodes with modules, their agents, a server and an archive, or says why it cannot.
    pub fn start(nodes: &[&str]) -> Option<Self> {
        let processes = Processes::find()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let nodes: Vec<_> = nodes.iter().map(|&name| name.to_owned()).collect();
        let mut world = Self { processes, port, nodes: nodes.clone() };
        world.configure();
        world.begin("server");
        world.begin("archive");
        for name in &nodes {
            world.begin(&format!("node-{name}"));
            wait_for("a node", || world.path(name).join("node.sock").exists());
            let install = |module: &str, more: &[&str]| {
                let module = world.module(module);
                world.flame(name, &[&["install", &module], more].concat())
            };
            wait_for("count", || install("count.wasm", &[]).is_ok());
            install("flow.wasm", &["--set", "idle_timeout=100ms", "--set", "linger=100ms"]).unwrap();
            world.begin(name);
        }
        Some(world)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.processes.path(name)
    }

    pub fn module(&self, name: &str) -> String {
        self.processes.module(name)
    }

    fn configure(&self) {
        let (port, disk) = (self.port, self.path("server"));
        let server = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{\n store_dir: {disk:?}\n sync_interval: always\n}}\n"
        );
        std::fs::write(self.path("server.conf"), server).unwrap();
        let archive = format!("[archive]\nfolder = \"archive\"\nserver = \"nats://127.0.0.1:{port}\"\n");
        std::fs::write(self.path("archive.toml"), archive).unwrap();
        let capture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/demo.pcap").canonicalize().unwrap();
        for name in &self.nodes {
            std::fs::create_dir(self.path(name)).unwrap();
            let node = format!(
                "[node]\nstorage = \"state\"\n[socket]\npath = \"node.sock\"\n[sources.trial]\nfile = {capture:?}\n\
                 repeat = true\ninterval = \"100ms\"\n[fleet]\nname = {name:?}\nspool = \"spool\"\n\
                 server = \"nats://127.0.0.1:{port}\"\nlabels = {{ site = \"test\" }}\n"
            );
            std::fs::write(self.path(name).join("node.toml"), node).unwrap();
        }
    }

    pub fn begin(&mut self, name: &str) {
        self.processes.begin(name, "server.conf");
    }

    pub fn kill(&mut self, name: &str) {
        self.processes.kill(name);
    }

    pub fn flame(&self, node: &str, arguments: &[&str]) -> Result<String, String> {
        let socket = format!("unix:{}", self.path(node).join("node.sock").display());
        let mut command = Command::new(&self.processes.flame);
        command.args(arguments).env("FLAME_NODE", socket).env("FLAME_NODES", self.path("nodes.toml"));
        output(&mut command)
    }

    /// Runs the program under test. `FLAME_ARCHIVE` names the archive for queries.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame-fleet"));
        output(command.args(arguments).env("FLAME_ARCHIVE", self.path("archive")))
    }

    /// Runs the program under test until a line of its output fulfils a condition.
    pub fn until(&self, arguments: &[&str], is_it: impl FnMut(&str) -> bool) {
        self.processes.until(arguments, is_it);
    }

    pub fn query(&self, sql: &str) -> Vec<Value> {
        let lines = self.run(&["query", sql, "--format", "json"]).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the archived rows of each node.
    pub fn archived(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for table in ["count.interval", "count.count", "flow.flow"] {
            // A table is there once it has rows.
            let sql = format!("SELECT node, count(*) AS rows FROM {table} GROUP BY node");
            let lines = self.run(&["query", &sql, "--format", "json"]).unwrap_or_default();
            for row in lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
                *all.entry(row["node"].as_str().unwrap().to_owned()).or_insert(0) +=
                    row["rows"].as_u64().unwrap();
            }
        }
        all
    }

    /// Stops all modules, and returns the rows that each node has made.
    pub fn stop_modules(&self) -> BTreeMap<String, u64> {
        let rows = |node: &String| {
            let of = |module: &str| {
                self.flame(node, &["stop", module]).unwrap();
                let shown = self.flame(node, &["show", module, "--format", "json"]).unwrap();
                let shown: Value = serde_json::from_str(&shown).unwrap();
                assert_eq!(shown["spool"]["dropped"], 0, "{shown}");
                // The node keeps all of them in memory, too.
                shown["spool"]["rows"].as_u64().unwrap()
            };
            (node.clone(), of("count") + of("flow"))
        };
        self.nodes.iter().map(rows).collect()
    }

    /// Returns the number of batches in spool files that are not archived.
    pub fn kept(&self) -> u64 {
        let mut kept = 0;
        for node in &self.nodes {
            for module in ["count", "flow"] {
                for table in
                    std::fs::read_dir(self.path(node).join("spool/%").join(module)).unwrap().flatten()
                {
                    let reader = flame_spool::Reader::open(&table.path()).unwrap();
                    let last = flame_spool::Kept::ranges(&reader).last().unwrap();
                    let cut = reader.stated().map(|cut| cut.archived.position);
                    let until = cut.filter(|cut| cut.epoch == last.epoch).map_or(0, |cut| cut.sequence);
                    kept += last.last - until;
                }
            }
        }
        kept
    }
}

pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
