//! Messages of the fleet's control between its nodes and its operator, beside the signed statements, and the
//! subjects on which they come. A server holds who may use which subject; a node decides by signatures.

use crate::agent::Age;
use crate::rollout::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The subject of statements for all nodes.
pub const TO_ALL: &str = "flame.to.all";
/// The subject on which the operator has nodes list their modules. It is not signed: all that follows from it
/// is a report.
pub const LOOK: &str = "flame.to.look";
/// The most modules of a node in a report.
pub const MAX_LISTED: usize = 256;
/// The subjects of all reports, requests and applications, for the operator.
pub const FROM_NODES: [&str; 3] = ["flame.from.*", "flame.ask.*", "flame.enrol.*"];
/// The most bytes of a part of a module.
pub const PART: usize = 512 << 10;
/// The most bytes of a report or a request.
pub const MAX_TALK: usize = 1 << 20;

/// The subjects of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    /// Statements for this node.
    pub to: String,
    pub report: String,
    pub ask: String,
    /// The beginning of the subjects of replies to it.
    pub inbox: String,
}

impl Subjects {
    /// Returns the subjects of a node, whose name has no characters of subjects
    /// ([`crate::enrolment::Enrolment::apply`]).
    pub fn of(node: &str) -> Self {
        let [to, report, ask] = ["to.node", "from", "ask"].map(|part| format!("flame.{part}.{node}"));
        Self { to, report, ask, inbox: format!("flame.inbox.node.{node}") }
    }
}

/// Returns the subject of an application with the token of this id, and the beginning of its subjects of
/// replies.
pub fn enrolment(token: &str) -> (String, String) {
    (format!("flame.enrol.{token}"), format!("flame.inbox.token.{token}"))
}

/// The report of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The number with which it asks for contact.
    pub asks: Option<u64>,
    /// The node's labels. They decide which waves it is in; it follows by its own.
    pub labels: BTreeMap<String, String>,
    /// The age of the revocations that it has, and whether they are in force on the node.
    pub revoked: Age,
    pub has_revoked: bool,
    /// The ages of the intents that it has, by target.
    pub have: BTreeMap<String, Age>,
    pub outcomes: BTreeMap<String, Followed>,
    /// The statements that it has refused since its start, and the last reason.
    pub refused: u64,
    pub reason: Option<String>,
    /// Its modules, once after each message on [`LOOK`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<Listed>,
}

/// The modules of the fleet on a node at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// The milliseconds since the start of the agent.
    pub ms: u64,
    pub modules: BTreeMap<String, Counters>,
    /// The reason why the node did not list them.
    pub fault: Option<String>,
}

/// A module of the fleet on a node, with its counters since it was installed or the node was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    pub state: String,
    /// The reason for the state.
    pub reason: Option<String>,
    pub packets: u64,
    /// Packets that did not reach the module.
    pub packets_lost: u64,
    pub records: u64,
    /// Records that the module lost, and rows that the node dropped to make room.
    pub records_lost: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
}

/// The outcome of the latest intent of a target on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Followed {
    pub rollout: u64,
    pub outcome: Outcome,
}

/// A request of a node. The reply begins with a byte: 0 before the content, 1 before the reason why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// At most [`PART`] bytes of a module from an offset. After its end there are none.
    Module { hash: String, offset: u64 },
    /// The file of a module's signatures, which may be empty.
    Signatures { hash: String },
    /// The credential under which the node runs modules of the fleet.
    Credential,
    /// The stream of a principal, with a bound in bytes.
    Stream { principal: String, bytes: u64 },
    /// Ends the membership.
    Leave,
}

impl Ask {
    /// Returns the request's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The application of a node ([`crate::enrolment`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Hexadecimal digits.
    pub token: String,
    pub name: String,
    pub key: String,
    pub signature: String,
}

/// Returns a reply with its content, or with the reason for its absence.
pub fn reply(content: Result<Vec<u8>, String>) -> Vec<u8> {
    match content {
        Ok(mut bytes) => {
            bytes.insert(0, 0);
            bytes
        }
        Err(reason) => [&[1], reason.as_bytes()].concat(),
    }
}

/// Reads a reply.
///
/// # Errors
///
/// Returns the stated reason, or one about the form.
pub fn read_reply(bytes: &[u8]) -> Result<&[u8], String> {
    match bytes.split_first() {
        Some((0, content)) => Ok(content),
        Some((1, reason)) => Err(String::from_utf8_lossy(reason).into_owned()),
        _ => {
            Err("the reply begins with neither 0 nor 1: is the fleet's control of another release?"
                .to_owned())
        }
    }
}
