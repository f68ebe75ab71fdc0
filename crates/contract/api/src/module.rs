use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// The proof that the credential's holder asks for this module: a signature over the session's challenge, the
/// module's SHA-256 and the credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The holder's public key: `ed25519/` and 64 hexadecimal digits.
    pub key: String,
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub signature: Vec<u8>,
}

/// A field by which a grant is narrowed further, as in `flame grant narrow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Narrowing {
    pub field: String,
    pub value: String,
}

/// A module to install.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallRequest {
    /// The name, which is unique for its principal. By default the manifest's.
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,31}$")]
    pub name: Option<String>,
    /// The source of packets. It may be left out if the node has only one.
    pub source: Option<String>,
    /// The `.wasm` file.
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub wasm: Vec<u8>,
    /// The text of the file of signatures, if the module is signed.
    pub signatures: Option<String>,
    /// Values of parameters.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    #[serde(default)]
    pub narrow: Vec<Narrowing>,
    /// Required under a credential.
    pub answer: Option<Answer>,
}

/// A change of an installed module. Fields that are missing keep their value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest {
    /// New code. Under a credential it requires an answer.
    #[serde(default, with = "crate::bytes::optional")]
    #[schema(value_type = Option<String>, content_encoding = "base64")]
    pub wasm: Option<Vec<u8>>,
    pub signatures: Option<String>,
    pub settings: Option<BTreeMap<String, String>>,
    pub narrow: Option<Vec<Narrowing>>,
    pub answer: Option<Answer>,
    /// The revision that the change is meant for. If another change came first, it is refused.
    pub revision: Option<u64>,
}

/// A new credential for an installed module: the one of this session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    pub answer: Answer,
    pub revision: Option<u64>,
}

/// The module that is meant, beside its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Whose {
    /// The principal, for the operator. By default the operator's own modules are meant.
    pub principal: Option<String>,
}

/// Options of changes without a body.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Change {
    /// The principal, for the operator. By default the operator's own modules are meant.
    pub principal: Option<String>,
    /// The revision that the change is meant for.
    pub revision: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Running,
    /// Its principal or the operator stopped it.
    Stopped,
    /// It lost its grant.
    Evicted,
    /// It could not be started again after a restart of the node.
    Failed,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Running, Self::Stopped, Self::Evicted, Self::Failed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Evicted => "evicted",
            Self::Failed => "failed",
        }
    }
}

/// An installed module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Module {
    pub name: String,
    /// The principal, or nothing for the operator.
    pub principal: Option<String>,
    pub source: String,
    pub state: State,
    /// The reason for the state.
    pub reason: Option<String>,
    /// The manifest's version.
    pub version: String,
    /// The SHA-256 of the `.wasm` file in hexadecimal digits.
    pub hash: String,
    /// `bounded` or `metered`, while it runs.
    pub class: Option<String>,
    /// The number of changes, including its install.
    pub revision: u64,
    /// The time of the install in seconds since 1970.
    pub installed: u64,
    /// The end of its credential in seconds since 1970.
    pub expires: Option<u64>,
    pub settings: BTreeMap<String, String>,
    pub narrow: Vec<Narrowing>,
    pub account: Account,
    pub spool: Spool,
    /// What its principal should know, for example that its view is narrower than its needs.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Modules {
    pub modules: Vec<Module>,
}

/// The packets of a module by outcome, since it was installed or the node was started:
/// `offered = processed + filtered + sum(shed)`. Under a grant, counts that the module chooses are rounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    pub offered: u64,
    pub processed: u64,
    pub filtered: u64,
    /// Packets that did not reach the module, by cause.
    pub shed: BTreeMap<String, u64>,
    pub records: u64,
    pub records_lost: u64,
    pub messages_lost: u64,
    pub withheld: u64,
    pub faults: u64,
    /// Whether all offered packets are accounted for. Those of blocks that wait are not yet.
    pub adds_up: bool,
}

/// The records of a module that the node keeps for its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spool {
    /// The cursor of the oldest row.
    pub first: String,
    /// The cursor after the latest row.
    pub next: String,
    pub rows: u64,
    pub bytes: u64,
    /// Rows that were dropped to make room.
    pub dropped: u64,
}

/// An entry of a module's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// In seconds since 1970.
    pub time: u64,
    pub text: String,
}
