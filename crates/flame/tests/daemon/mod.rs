//! A node in a folder of its own, and requests to it.
#![allow(dead_code)] // Each test that includes it uses a part.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// More time than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

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

/// A replayed capture, without an end.
pub fn replay() -> String {
    let demo = root().join("demo/demo.pcap");
    format!("[sources.trial]\nfile = {:?}\nrepeat = true\ninterval = \"100ms\"\n", demo.display().to_string())
}

pub struct Node {
    pub folder: tempfile::TempDir,
    child: Option<Child>,
    said: Arc<Mutex<String>>,
    namespace: Option<String>,
}

impl Node {
    /// Creates a node's folder with a policy whose roots can give everything. `more` is added to `node.toml`,
    /// after the tables `node` and `socket`.
    pub fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Self { folder, child: None, said: Arc::default(), namespace: None };
        let root = node.run(&["key", "new", "root.key"]);
        node.run(&["key", "new", "node.key"]);
        let policy = format!(
            "[node]\nname = \"tap1\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit.log\"\n\
             [roots]\noperator = \"{root}\"\n[roles.all]\nselect = \"\"\nexpose = \"all\"\n\
             calls = \"records, messages\"\ncode = \"any\"\nrecords_per_second = 1000000\n"
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
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (mut pipe, said) = (child.stderr.take().unwrap(), self.said.clone());
        said.lock().unwrap().clear();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut bytes) {
                said.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        self.child = Some(child);
    }

    /// Returns what the node has said since it was started.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn wait_for_text(&mut self, text: &str) {
        let start = Instant::now();
        while !self.said().contains(text) {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none() && start.elapsed() < PATIENCE, "no {text:?}: {ended:?}, {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
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
        let start = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(start.elapsed() < PATIENCE, "it does not end: {}", self.said()),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        std::thread::sleep(Duration::from_millis(50));
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

pub fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn unbase64(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
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

    pub fn send(&self, text: &str) {
        self.0.borrow_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Reads one reply, whose length is stated.
    pub fn receive(&self) -> (u16, Value) {
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
        reply(&bytes).unwrap()
    }
}
