//! A node in a folder of its own, the sessions of principals on it, and requests to it.

use crate::fixture::Error;
use crate::made::capture;
use flame_api::{Answer, InstallRequest, RenewRequest, SessionRequest, UpdateRequest};
use flame_trust::{Challenge, Credential, Field, Mint, Narrow, SESSION, Secret};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More time than a node takes for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node, which ends when this value is dropped.
pub struct Node {
    pub folder: tempfile::TempDir,
    root: Secret,
    child: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A principal: its credential and its key.
pub struct Holder {
    text: String,
    credential: Credential,
    secret: Secret,
}

impl Holder {
    /// Returns the text of the credential.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the public key of the holder.
    pub fn key(&self) -> String {
        self.secret.public().to_string()
    }
}

/// Returns a capture of a second: bursts of `packets` empty packets of 64 flows, this many milliseconds
/// apart. For 0 milliseconds there are 5,000 bursts.
pub fn bursts(packets: u32, apart_ms: u32) -> Vec<u8> {
    let apart_us = if apart_ms == 0 { 200 } else { apart_ms * 1000 };
    let bursts = 0..1_000_000 / apart_us;
    let times = bursts.flat_map(|burst| (0..packets).map(move |n| (u64::from(burst * apart_us), n)));
    capture(times.map(|(at, n)| (at, crate::send::frame(n as u8 % 64, 60))))
}

impl Node {
    /// Starts a node with a policy whose root can give everything. `more` is the text of `node.toml` after
    /// the tables `node` and `socket`; `files` are put beside it.
    pub fn start(flame: &Path, more: &str, files: &[(&str, &[u8])]) -> Result<Self, Error> {
        Self::start_by(Command::new(flame), more, files)
    }

    /// Starts a node by a command of `flame` without arguments, which may be within a namespace.
    pub fn start_by(mut command: Command, more: &str, files: &[(&str, &[u8])]) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let root = Secret::generate();
        Secret::generate().write_new(&path("node.key"))?;
        let policy = format!(
            "[node]\nname = \"node\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit\"\n\
             [roots]\nroot = \"{}\"\n[roles.all]\nselect = \"\"\nexpose = \"all\"\ncode = \"any\"\n\
             calls = \"records, messages, send\"\nsend = \"udp\"\n",
            root.public()
        );
        let config = format!(
            "[node]\nstorage = \"state\"\npolicy = \"policy.toml\"\n[socket]\npath = \"sock\"\n{more}"
        );
        for (name, text) in [("policy.toml", policy), ("revoked", String::new()), ("node.toml", config)] {
            std::fs::write(path(name), text)?;
        }
        files.iter().try_for_each(|(name, bytes)| std::fs::write(path(name), bytes))?;
        command.args(["node", "run", "-c"]).arg(path("node.toml"));
        let said = std::fs::File::create(path("said"))?;
        let child = command.stderr(said).stdout(Stdio::null()).spawn()?;
        let mut node = Self { folder, root, child };
        let begin = Instant::now();
        while !node.said().contains("node: ready") {
            if begin.elapsed() > PATIENCE || node.child.try_wait()?.is_some() {
                return Err(format!("the node does not start: {}", node.said()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(node)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    /// Makes a principal, with fields that narrow its credential.
    pub fn principal(&self, name: &str, fields: &[(Field, &str)]) -> Result<Holder, Error> {
        let secret = Secret::generate();
        let code = (Field::Code, "any".to_owned());
        let expires = (Field::Expires, "2099-01-01T00:00:00Z".to_owned());
        let more = fields.iter().map(|(field, value)| (*field, (*value).to_owned()));
        let narrow = Narrow {
            fields: [code, expires].into_iter().chain(more).collect(),
            holder: Some(secret.public()),
            ..Narrow::default()
        };
        let mint = Mint { principal: name.to_owned(), role: "all".to_owned(), narrow };
        let credential = Credential::mint(&self.root, &mint)?;
        Ok(Holder { text: credential.text(), credential, secret })
    }

    /// Opens a connection, which is the operator's until a credential is presented.
    pub fn connect<'h>(&self) -> Result<Connection<'h>, Error> {
        let stream = UnixStream::connect(self.folder.path().join("sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, presented: None })
    }

    /// Opens a connection and presents a credential on it.
    pub fn session<'h>(&self, holder: &'h Holder) -> Result<Connection<'h>, Error> {
        let mut connection = self.connect()?;
        let body = serde_json::json!({ "credential": holder.text });
        let given = connection.request("POST", "/v1/session/challenge", Some(&body))?;
        let given: flame_api::Challenge = serde_json::from_value(given)?;
        let me = flame_files::effective_user();
        let channel = flame_api::unix_channel(&given.node, me, me);
        let nonce = given.nonce.try_into().map_err(|_| "the challenge has not 32 bytes")?;
        let challenge = Challenge::on_channel(&nonce, &channel);
        let answer = challenge.answer(&holder.secret, &holder.credential, &SESSION);
        let body = SessionRequest { key: answer.key.to_string(), signature: answer.signature.to_vec() };
        connection.request("POST", "/v1/session", Some(&serde_json::to_value(body)?))?;
        connection.presented = Some((challenge, holder));
        Ok(connection)
    }

    /// Returns the path of one of the node's files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the process in which a principal's module runs.
    pub fn process(&self, module: &str, principal: &str) -> Result<u32, Error> {
        let shown = self.show(module, principal)?;
        let pid = shown["process"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| format!("no process: {shown}").into())
    }

    /// Returns a module as the operator sees it.
    pub fn show(&self, module: &str, principal: &str) -> Result<Value, Error> {
        self.connect()?.show(module, principal)
    }
}

/// A connection, on which several requests are made.
pub struct Connection<'h> {
    stream: UnixStream,
    presented: Option<(Challenge, &'h Holder)>,
}

impl Connection<'_> {
    /// Makes a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the node refuses it.
    pub fn request(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = "host: node\r\ncontent-type: application/json\r\ncontent-length";
        let text = format!("{method} {path} HTTP/1.1\r\n{kind}: {}\r\n\r\n{body}", body.len());
        self.stream.write_all(text.as_bytes())?;
        let (mut head, mut one) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.stream.read_exact(&mut one)?;
            head.extend(one);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|l| l.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut body)?;
        match head.split(' ').nth(1) {
            Some(status) if status.starts_with('2') && body.is_empty() => Ok(Value::Null),
            Some(status) if status.starts_with('2') => Ok(serde_json::from_slice(&body)?),
            _ => Err(format!("{method} {path}: {head}{}", String::from_utf8_lossy(&body)).into()),
        }
    }

    /// Returns a module as the operator sees it.
    pub fn show(&mut self, module: &str, principal: &str) -> Result<Value, Error> {
        self.request("GET", &format!("/v1/modules/{module}?principal={principal}"), None)
    }

    fn answer(&self, wasm: &[u8]) -> Option<Answer> {
        let (challenge, holder) = self.presented.as_ref()?;
        let hash = flame_compile::hash_of(wasm);
        let answer = challenge.answer(&holder.secret, &holder.credential, &hash);
        Some(Answer { key: answer.key.to_string(), signature: answer.signature.to_vec() })
    }

    /// Installs a module under a name.
    pub fn install(&mut self, name: &str, wasm: &[u8], reserve: Option<Value>) -> Result<Value, Error> {
        let request = InstallRequest {
            name: Some(name.to_owned()),
            source: None,
            wasm: wasm.to_vec(),
            signatures: None,
            settings: Default::default(),
            narrow: Vec::new(),
            reserve: reserve.map(serde_json::from_value).transpose()?,
            answer: self.answer(wasm),
        };
        self.request("POST", "/v1/modules", Some(&serde_json::to_value(request)?))
    }

    /// Replaces the code of an installed module.
    pub fn update(&mut self, name: &str, wasm: &[u8]) -> Result<Value, Error> {
        let (wasm, answer) = (Some(wasm.to_vec()), self.answer(wasm));
        let request = UpdateRequest { wasm, answer, ..UpdateRequest::default() };
        self.request("PUT", &format!("/v1/modules/{name}"), Some(&serde_json::to_value(request)?))
    }

    /// Gives an installed module another reservation, while it runs.
    pub fn renew(&mut self, name: &str, wasm: &[u8], reserve: Value) -> Result<Value, Error> {
        let answer = self.answer(wasm).ok_or("a renewal is of a session")?;
        let request =
            RenewRequest { answer, reserve: Some(serde_json::from_value(reserve)?), revision: None };
        let request = serde_json::to_value(request)?;
        self.request("POST", &format!("/v1/modules/{name}/renew"), Some(&request))
    }
}
