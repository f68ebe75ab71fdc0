//! A node in a folder of its own, and requests to it.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use flame_testing::Pcap;
pub use flame_testing::{PATIENCE, eventually as wait_for};

/// Returns the path of the command under test: `FLAME`, or the command that cargo built.
pub fn flame() -> String {
    std::env::var("FLAME").unwrap_or_else(|_| env!("CARGO_BIN_EXE_flame").to_owned())
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns a standard module that `make build` built, or reports that it is missing and returns `None`.
pub fn module(name: &str) -> Option<PathBuf> {
    let bin = Path::new(env!("CARGO_BIN_EXE_flame")).parent().unwrap().join("modules");
    let folder = std::env::var_os("FLAME_MODULES").map_or(bin, PathBuf::from);
    let path = folder.join(format!("{name}.wasm"));
    if !path.is_file() {
        eprintln!("skipped: {} is not there (run `make build`)", path.display());
        return None;
    }
    Some(path)
}

/// The time between two packets of a replay.
const EACH_NS: u64 = 3_000_000;

/// Returns the recorded capture with its packets at equal distances. As they were recorded, most come within
/// half a second of five, and tests that wait for packets would wait for that.
pub fn even() -> &'static Path {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let demo = std::fs::read(root().join("demo/demo.pcap")).unwrap();
        let (mut even, mut ts_ns, mut at) = (Pcap::default(), 1_600_000_000_000_000_000, 24);
        while at < demo.len() {
            let length = u32::from_le_bytes(demo[at + 8..at + 12].try_into().unwrap()) as usize;
            even.push(ts_ns, &demo[at + 16..at + 16 + length]);
            (at, ts_ns) = (at + 16 + length, ts_ns + EACH_NS);
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (path, own) = (folder.join("even.pcap"), folder.join(format!("even-{}", std::process::id())));
        even.write(&own);
        // Another program of tests may read it.
        std::fs::rename(own, &path).unwrap();
        path
    })
}

/// A replayed capture, without an end.
pub fn replay() -> String {
    replay_of(even())
}

/// A capture that is replayed without an end.
pub fn replay_of(file: &Path) -> String {
    let file = file.display().to_string();
    format!("[sources.trial]\nfile = {file:?}\nrepeat = true\ninterval = \"100ms\"\n")
}

/// Writes a capture of a second with thousands of packets, so that there is always a next one.
pub fn dense(path: &Path) {
    let packet = |n: u64| (1_600_000_000_000_000_000 + n * 200_000, [0; 60]);
    Pcap::default().with((0..5_000).map(packet)).write(path);
}

/// Returns the program for processes, where the node under test looks for it.
fn runner() -> PathBuf {
    let program = PathBuf::from(flame()).with_file_name("flame-runner");
    assert!(program.is_file(), "the program for processes is built: {}", program.display());
    program
}

pub struct Node {
    pub folder: tempfile::TempDir,
    child: Option<Child>,
    said: Arc<Mutex<String>>,
    /// The thread that reads what the node says, to its end.
    listener: Option<JoinHandle<()>>,
    namespace: Option<String>,
    runner: Option<PathBuf>,
    /// Further variables of its environment.
    variables: Vec<(String, PathBuf)>,
}

impl Node {
    /// Creates a node's folder with a policy whose roots can give everything. `more` is added to `node.toml`,
    /// after the tables `node` and `socket`.
    pub fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Self {
            folder,
            child: None,
            said: Arc::default(),
            listener: None,
            namespace: None,
            runner: None,
            variables: Vec::new(),
        };
        let root = node.run(&["key", "new", "root.key"]);
        node.run(&["key", "new", "node.key"]);
        let policy = format!(
            "[node]\nname = \"tap1\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit.log\"\n\
             [roots]\noperator = \"{root}\"\n[roles.all]\nselect = \"\"\nexpose = \"all\"\n\
             calls = \"records, messages, state\"\ncode = \"any\"\nrecords_per_second = 1000000\n\
             compile = \"1h/1h\"\n"
        );
        std::fs::write(node.path("policy.toml"), policy).unwrap();
        std::fs::write(node.path("revoked"), "").unwrap();
        node.configure(more);
        node
    }

    pub fn configure(&self, more: &str) {
        let text = format!(
            "[node]\nstorage = \"state\"\npolicy = \"policy.toml\"\n[socket]\npath = \"node.sock\"\n{more}\n"
        );
        std::fs::write(self.path("node.toml"), text).unwrap();
    }

    /// Lets the node run in a network namespace.
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Gives the node a variable in its environment.
    pub fn with_variable(mut self, name: &str, value: PathBuf) -> Self {
        self.variables.push((name.to_owned(), value));
        self
    }

    /// Lets the node start a shell script in place of the program for processes. It runs in the node's
    /// folder, and `real "$@"` becomes that program.
    pub fn with_runner(mut self, script: &str) -> Self {
        let folder = self.folder.path().display().to_string();
        let real = runner().display().to_string();
        let text = format!("#!/bin/bash\ncd '{folder}'\nreal() {{ exec '{real}' \"$@\"; }}\n{script}\n");
        self.runner = Some(flame_testing::script(self.path("runner.sh"), &text));
        self
    }

    /// Lets the node use a copy of the program for processes in a folder that only root may enter.
    pub fn with_private_runner(mut self) -> Self {
        let folder = self.path("private");
        std::fs::create_dir(&folder).unwrap();
        let only = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
        std::fs::set_permissions(&folder, only).unwrap();
        flame_testing::copy_program(&runner(), &folder.join("flame-runner"));
        self.runner = Some(folder.join("flame-runner"));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> String {
        format!("unix:{}", self.path("node.sock").display())
    }

    /// Starts the node and waits until it is ready.
    pub fn start(&mut self) {
        self.spawn();
        self.wait_for_text("node: ready");
    }

    pub fn spawn(&mut self) {
        let mut command = match &self.namespace {
            Some(namespace) => {
                let mut ip = Command::new("ip");
                ip.args(["netns", "exec", namespace]).arg(flame());
                ip
            }
            None => Command::new(flame()),
        };
        command.args(["node", "run", "-c"]).arg(self.path("node.toml"));
        if let Some(runner) = &self.runner {
            command.env("FLAME_RUNNER", runner);
        }
        command.envs(self.variables.iter().cloned());
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (mut pipe, said) = (child.stderr.take().unwrap(), self.said.clone());
        said.lock().unwrap().clear();
        let listener = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut bytes) {
                said.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        self.listener = Some(listener);
        self.child = Some(child);
    }

    /// Returns what the node has said since it was started.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn wait_for_text(&mut self, text: &str) {
        wait_for(format!("{text:?}"), || {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            let is_there = self.said().contains(text);
            assert!(is_there || ended.is_none(), "no {text:?}: {ended:?}, {}", self.said());
            is_there
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the node was started").id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Kills the node at once.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the node was started");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends the node in order, and returns what it said.
    pub fn end(&mut self) -> String {
        self.signal("TERM");
        let mut child = self.child.take().expect("the node was started");
        let status = wait_for("the end of the node", || child.try_wait().unwrap());
        // Its last message is read once the pipe is at its end.
        let listener = self.listener.take().expect("the node was started");
        wait_for("the end of its messages", || listener.is_finished());
        assert!(status.success(), "{status}: {}", self.said());
        self.said()
    }

    /// Runs a command in the folder, which must succeed, and returns its output.
    pub fn run(&self, arguments: &[&str]) -> String {
        let out = self.output(arguments);
        assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
        text(&out.stdout).trim().to_owned()
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(flame());
        command.args(arguments).current_dir(self.folder.path());
        command.env("FLAME_NODES", self.path("nodes.toml")).env("FLAME_NODE", self.socket());
        command.output().unwrap()
    }

    /// Runs a command that fails, and returns its message.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let out = self.output(arguments);
        assert!(!out.status.success(), "{arguments:?} succeeded: {}", text(&out.stdout));
        text(&out.stderr)
    }

    /// Runs a command whose answer is one line of JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.run(&[arguments, &["--format", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {out}"))
    }

    /// Runs a command for the holder of NAME.cred and NAME.key, whose answer is one line of JSON.
    pub fn json_of(&self, name: &str, arguments: &[&str]) -> Value {
        let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
        self.json(&[arguments, &["--credential", &credential, "--identity", &key]].concat())
    }

    /// Creates key and credential of a principal, in NAME.key and NAME.cred.
    pub fn mint(&self, name: &str, more: &[&str]) {
        let (key, credential) = (format!("{name}.key"), format!("{name}.cred"));
        let public = match self.path(&key).exists() {
            true => self.run(&["key", "show", &key]),
            false => self.run(&["key", "new", &key]),
        };
        let _ = std::fs::remove_file(self.path(&credential));
        let all = ["grant", "mint", "--key", "root.key", "--to", name, "--role", "all", "--code", "any"];
        self.run(&[&all[..], &["--holder", &public, "-o", &credential], more].concat());
    }

    /// Makes a request on the Unix socket and returns status and body.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.try_request(method, path, body).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    pub fn try_request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<(u16, Value)> {
        request(&self.path("node.sock"), method, path, body)
    }
}

/// A process that is killed at the end of the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a request on a Unix socket and returns status and body.
pub fn request(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    reply(&raw(socket, head.as_bytes())?)
}

/// Sends bytes and returns all that comes back until the node closes the connection.
pub fn raw(socket: &Path, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // A node that refuses a body may not read it to its end.
    let _ = stream.write_all(bytes);
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Err(e) if all.is_empty() => Err(e),
        _ => Ok(all),
    }
}

/// Parses a reply.
pub fn reply(bytes: &[u8]) -> std::io::Result<(u16, Value)> {
    let text = String::from_utf8_lossy(bytes);
    let wrong = || std::io::Error::other(format!("no reply: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(wrong)?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(wrong)?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
            if std::thread::panicking() {
                eprintln!("the node said: {}", self.said.lock().unwrap());
            }
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn unbase64(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

/// A credential and its holder's key.
pub struct Holder {
    text: String,
    credential: flame_trust::Credential,
    secret: flame_trust::Secret,
}

impl Holder {
    /// Reads NAME.cred and the key of `holder`.
    pub fn of(node: &Node, name: &str, holder: &str) -> Self {
        let text = std::fs::read_to_string(node.path(&format!("{name}.cred"))).unwrap();
        let credential = flame_trust::Credential::parse(&text).unwrap();
        let secret = flame_trust::Secret::from_file(&node.path(&format!("{holder}.key"))).unwrap();
        Self { text, credential, secret }
    }

    /// Returns the challenge that the node gives on a connection.
    pub fn challenge(&self, connection: &Connection) -> Value {
        let body = serde_json::json!({ "credential": self.text });
        let (code, challenge) = connection.post("/v1/session/challenge", &body);
        assert_eq!(code, 200, "{challenge}");
        challenge
    }

    /// Returns the answer to a challenge on a channel, as the body of a request.
    pub fn answer(&self, challenge: &Value, channel: &[u8]) -> Value {
        self.answer_for(challenge, channel, &flame_trust::SESSION)
    }

    /// Returns the answer for a module with this hash, or for the session.
    pub fn answer_for(&self, challenge: &Value, channel: &[u8], hash: &[u8; 32]) -> Value {
        let nonce = unbase64(challenge["nonce"].as_str().unwrap()).try_into().unwrap();
        let challenge = flame_trust::Challenge::on_channel(&nonce, channel);
        let answer = challenge.answer(&self.secret, &self.credential, hash);
        serde_json::json!({ "key": answer.key.to_string(), "signature": base64(&answer.signature) })
    }
}

/// Opens a connection and begins a session on it, with NAME.cred and the key of `holder`.
pub fn session(node: &Node, name: &str, holder: &str) -> Connection {
    let holder = Holder::of(node, name, holder);
    let connection = Connection::open(&node.path("node.sock"));
    let challenge = holder.challenge(&connection);
    let (code, session) = connection.post("/v1/session", &holder.answer(&challenge, &channel(&challenge)));
    assert_eq!(code, 200, "{session}");
    connection
}

/// Returns the channel of a Unix socket to a node of this user.
pub fn channel(challenge: &Value) -> Vec<u8> {
    let me = flame_files::effective_user();
    flame_api::unix_channel(challenge["node"].as_str().unwrap(), me, me)
}

/// One connection, on which several requests are made.
pub struct Connection(std::cell::RefCell<UnixStream>);

impl Connection {
    pub fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream.into())
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.with_body("POST", path, &body.to_string())
    }

    pub fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.with_body("PUT", path, &body.to_string())
    }

    pub fn delete(&self, path: &str) -> (u16, Value) {
        self.with_body("DELETE", path, "")
    }

    fn with_body(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let head = "host: node\r\ncontent-type: application/json";
        self.send(&format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"));
        self.receive()
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: node\r\n\r\n"));
        self.receive()
    }

    /// Returns the body of a reply that is text.
    pub fn text(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: node\r\n\r\n"));
        let bytes = self.receive_bytes();
        text(&bytes).split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    pub fn send(&self, text: &str) {
        self.0.borrow_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Returns whether the node does not reply for a while.
    pub fn is_silent(&self) -> bool {
        let mut stream = self.0.borrow_mut();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let read = stream.read(&mut [0]);
        read.is_err_and(|e| matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut))
    }

    /// Reads until the node closes the connection.
    pub fn rest(&self) -> String {
        let mut all = Vec::new();
        self.0.borrow_mut().read_to_end(&mut all).unwrap();
        text(&all)
    }

    /// Reads one reply, whose length is stated.
    pub fn receive(&self) -> (u16, Value) {
        reply(&self.receive_bytes()).unwrap()
    }

    fn receive_bytes(&self) -> Vec<u8> {
        let mut stream = self.0.borrow_mut();
        let (mut bytes, mut one) = (Vec::new(), [0]);
        while !bytes.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut one).unwrap();
            bytes.extend(one);
        }
        let head = text(&bytes).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|l| l.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        bytes.extend(body);
        bytes
    }
}
