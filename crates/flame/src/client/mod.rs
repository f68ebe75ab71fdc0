//! The client of a node: finds it, connects, presents a credential, and makes requests.

mod connect;
mod nodes;
mod print;

pub use nodes::{Entry, Nodes};
pub use print::{print_modules, table};

use crate::error::Error;
use crate::exit::Status;
use crate::format::OutputFormat;
use bytes::Bytes;
use clap::Args;
use connect::Channel;
use flame_api::{Answer, Challenge, ChallengeRequest, Module, Problem, Session, SessionRequest};
use flame_trust::{Credential, SESSION, Secret};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// Options that choose a node, and the credential for it.
#[derive(Args, Clone)]
pub struct NodeArgs {
    /// Node: a name from ~/.config/flame/nodes.toml, unix:PATH or https://HOST:PORT [default: FLAME_NODE, or
    /// the file's current node, or unix:/run/flame/node.sock]
    #[arg(long, help_heading = "Node", value_name = "NODE")]
    pub node: Option<String>,

    /// Credential to present, which names a holder
    #[arg(long, help_heading = "Node", value_name = "FILE", requires = "identity")]
    pub credential: Option<PathBuf>,

    /// Secret key of the credential's holder
    #[arg(long, help_heading = "Node", value_name = "FILE", requires = "credential")]
    pub identity: Option<PathBuf>,

    /// Certificate of the node, or of its authority, for https
    #[arg(long, help_heading = "Node", value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

impl NodeArgs {
    /// Returns the options as they were given, for a command that is to be copied; each begins with a space.
    pub fn words(&self) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let given = [
            ("node", self.node.clone()),
            ("credential", path(&self.credential)),
            ("identity", path(&self.identity)),
            ("certificate", path(&self.certificate)),
        ];
        let plain = |c: char| c.is_alphanumeric() || "-._~/:@%+,=".contains(c);
        let word = |value: String| match value.chars().all(plain) {
            true => value,
            false => format!("'{}'", value.replace('\'', "'\\''")),
        };
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| format!(" --{name} {}", word(value))).collect()
    }
}

/// The format of answers, for commands whose answer is not records.
#[derive(Args, Clone, Copy)]
pub struct AnswerArgs {
    /// Format of the answer
    #[arg(long, value_enum, default_value = "table")]
    pub format: OutputFormat,
}

impl AnswerArgs {
    pub fn is_json(self) -> bool {
        matches!(self.format, OutputFormat::Json)
    }
}

/// An installed module, and the node on which it is.
#[derive(Args)]
pub struct ModuleArgs {
    /// Name of the module on the node
    pub name: String,

    /// Principal of the module, for the operator
    #[arg(long)]
    pub principal: Option<String>,

    #[command(flatten)]
    pub node: NodeArgs,

    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// A change of an installed module that needs no further options.
#[derive(Args)]
pub struct ChangeArgs {
    #[command(flatten)]
    module: ModuleArgs,

    /// Revision that the change is meant for [default: the present one]
    #[arg(long)]
    revision: Option<u64>,
}

impl ChangeArgs {
    /// Makes the change and prints the module after it.
    pub fn make(self, method: Method, action: &str) -> Result<Status, Error> {
        let ModuleArgs { name, principal, node, answer } = self.module;
        let path = module_path(&name, action, principal.as_deref(), self.revision);
        let module: Module = Client::open(&node)?.request(method, &path, None::<&()>)?;
        print_modules(&[module], answer);
        Ok(Status::Done)
    }
}

/// A connection to a node.
pub struct Client {
    pub runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    host: String,
    session: Option<Presented>,
}

/// A credential that was presented on a connection.
struct Presented {
    credential: Credential,
    secret: Secret,
    challenge: flame_trust::Challenge,
}

impl Client {
    /// Connects to the node that the options name, and presents the credential, if there is one.
    pub fn open(args: &NodeArgs) -> Result<Self, Error> {
        let node = nodes::resolve(args)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, channel, host) = runtime.block_on(connect::connect(&node))?;
        let mut client = Self { runtime, sender, host, session: None };
        if let Some((credential, identity)) = &node.credential {
            let credential = crate::trust_args::credential(credential)?;
            let secret = Secret::from_file(identity)?;
            channel.check()?;
            client.present(credential, secret, &channel)?;
        }
        Ok(client)
    }

    /// Proves to hold a credential, in three messages.
    fn present(&mut self, credential: Credential, secret: Secret, channel: &Channel) -> Result<(), Error> {
        let request = ChallengeRequest { credential: credential.text() };
        let Challenge { nonce, node } =
            self.request(Method::POST, "/v1/session/challenge", Some(&request))?;
        let nonce = nonce.try_into().map_err(|_| "the node's challenge has not 32 bytes")?;
        let challenge = flame_trust::Challenge::on_channel(&nonce, &channel.bytes(&node));
        let answer = challenge.answer(&secret, &credential, &SESSION);
        let request = SessionRequest { key: answer.key.to_string(), signature: answer.signature.to_vec() };
        let _: Session = self.request(Method::POST, "/v1/session", Some(&request))?;
        self.session = Some(Presented { credential, secret, challenge });
        Ok(())
    }

    /// Returns the answer of the credential's holder for a module, if a credential was presented.
    pub fn answer(&self, hash: &[u8; 32]) -> Option<Answer> {
        let Presented { credential, secret, challenge } = self.session.as_ref()?;
        let answer = challenge.answer(secret, credential, hash);
        Some(Answer { key: answer.key.to_string(), signature: answer.signature.to_vec() })
    }

    /// Makes a request and reads the whole reply.
    pub fn request<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let body = body.map(serde_json::to_vec).transpose()?;
        let response = self.send(method, path, body)?;
        let (parts, body) = response.into_parts();
        let bytes =
            self.runtime.block_on(body.collect()).map_err(|e| format!("the node's reply: {e}"))?.to_bytes();
        if !parts.status.is_success() {
            return Err(problem(parts.status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|e| {
            format!("the node's reply cannot be read: {e} (is it a node of another version?)").into()
        })
    }

    /// Posts a change whose reply has no body.
    pub fn change(&mut self, path: &str, body: &impl Serialize) -> Result<(), Error> {
        let response = self.send(Method::POST, path, Some(serde_json::to_vec(body)?))?;
        let (parts, body) = response.into_parts();
        let bytes = self.runtime.block_on(body.collect())?.to_bytes();
        if parts.status.is_success() { Ok(()) } else { Err(problem(parts.status, &bytes)) }
    }

    /// Makes a request without a body.
    pub fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, Error> {
        self.request(Method::GET, path, None::<&()>)
    }

    /// Makes a request and returns the reply, whose body has not been read.
    pub fn stream(&mut self, path: &str) -> Result<Response<Incoming>, Error> {
        let response = self.send(Method::GET, path, None)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let bytes = self.runtime.block_on(body.collect())?.to_bytes();
        Err(problem(parts.status, &bytes))
    }

    fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, Error> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.host);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        let reply = self.runtime.block_on(self.sender.send_request(request));
        reply.map_err(|e| {
            format!("{}: {e} (did the node end, or is it at its limit of connections?)", self.host).into()
        })
    }
}

fn problem(status: hyper::StatusCode, bytes: &[u8]) -> Error {
    match serde_json::from_slice::<Problem>(bytes) {
        Ok(problem) => Box::new(problem),
        Err(_) => format!("the node replied {status}: {}", String::from_utf8_lossy(bytes)).into(),
    }
}

/// Returns `text` for a path or a query.
pub fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Returns the path of a module, with its principal and revision in the query.
pub fn module_path(name: &str, more: &str, principal: Option<&str>, revision: Option<u64>) -> String {
    let mut path = format!("/v1/modules/{}{more}", quoted(name));
    let principal = principal.map(|p| format!("principal={}", quoted(p)));
    let query: Vec<String> = principal.into_iter().chain(revision.map(|n| format!("revision={n}"))).collect();
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    path
}
