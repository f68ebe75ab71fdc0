use crate::Reservation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// The proof that the credential's holder asks for this module: a signature over the session's challenge, the
/// module's SHA-256 and the credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The holder's public key: `ed25519/` and 64 hexadecimal digits.
    #[serde(deserialize_with = "crate::most::text::<_, { crate::most::KEY }>")]
    #[schema(max_length = 128)]
    pub key: String,
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub signature: Vec<u8>,
}

/// A field by which a grant is narrowed further, as in `flame grant narrow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Narrowing {
    #[serde(deserialize_with = "crate::most::text::<_, { crate::most::NAME }>")]
    #[schema(max_length = 64)]
    pub field: String,
    #[serde(deserialize_with = "crate::most::text::<_, { crate::most::VALUE }>")]
    #[schema(max_length = 4096)]
    pub value: String,
}

/// A module to install.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallRequest {
    /// The name, which is unique for its principal. By default the manifest's.
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::NAME }>")]
    #[schema(pattern = "^[a-z][a-z0-9_-]{0,31}$", max_length = 32)]
    pub name: Option<String>,
    /// The source of packets. It may be left out if the node has only one.
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::NAME }>")]
    #[schema(max_length = 64)]
    pub source: Option<String>,
    /// The `.wasm` file.
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub wasm: Vec<u8>,
    /// The text of the file of signatures, if the module is signed.
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::SIGNATURES }>")]
    #[schema(max_length = 65536)]
    pub signatures: Option<String>,
    /// Values of parameters.
    #[serde(default, deserialize_with = "crate::most::settings")]
    #[schema(schema_with = crate::most::settings_schema)]
    pub settings: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "crate::most::list::<_, _, { crate::most::NARROWINGS }>")]
    #[schema(max_items = 32)]
    pub narrow: Vec<Narrowing>,
    /// The module's reservation. Without one, the module gets the resources that others leave.
    #[serde(default)]
    pub reserve: Option<Reservation>,
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
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::SIGNATURES }>")]
    #[schema(max_length = 65536)]
    pub signatures: Option<String>,
    #[serde(default, deserialize_with = "crate::most::optional_settings")]
    #[schema(schema_with = crate::most::optional_settings_schema)]
    pub settings: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "crate::most::optional_list::<_, _, { crate::most::NARROWINGS }>")]
    #[schema(max_items = 32)]
    pub narrow: Option<Vec<Narrowing>>,
    /// Another reservation. All zeros give up what the module has.
    #[serde(default)]
    pub reserve: Option<Reservation>,
    /// Whether the new instances begin empty, although they could go on with the state of the old ones.
    #[serde(default)]
    pub empty: bool,
    pub answer: Option<Answer>,
    /// The revision that the change is meant for. If another change came first, it is refused.
    pub revision: Option<u64>,
}

/// A new credential for an installed module: the one of this session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    pub answer: Answer,
    /// Another reservation, with the same number of blocks.
    #[serde(default)]
    pub reserve: Option<Reservation>,
    pub revision: Option<u64>,
}

/// A question to a service of an installed module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The service, as the module's manifest names it.
    #[serde(deserialize_with = "crate::most::text::<_, { crate::most::NAME }>")]
    #[schema(max_length = 64)]
    pub service: String,
    /// At most 4,096 bytes.
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub request: Vec<u8>,
}

/// The reply of a service, at most 4,096 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Served {
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub reply: Vec<u8>,
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
    /// It lost its grant, and is called no more. Its account is the last one once that adds up.
    Evicted,
    /// It could not be started again after a restart of the node, its process ended too often, or its
    /// instances ended in faults and none is started again.
    Failed,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Running, Self::Stopped, Self::Evicted, Self::Failed];

    /// Returns the name of the state in replies and files.
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
    /// The public key of the root that named the principal: another root may use the name for somebody else.
    #[serde(default)]
    pub root: Option<String>,
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
    /// `inline` in the node's own process, or `process` in one of its principal, while it runs.
    #[serde(default)]
    pub place: Option<String>,
    /// The number of that process, for the operator only.
    #[serde(default)]
    pub process: Option<u32>,
    /// The number of changes, including its install.
    pub revision: u64,
    /// The time of the install in seconds since 1970.
    pub installed: u64,
    /// The end of its credential in seconds since 1970.
    pub expires: Option<u64>,
    /// Values of parameters. Of a value of more than 1,024 bytes, the beginning and the number of bytes.
    pub settings: BTreeMap<String, String>,
    pub narrow: Vec<Narrowing>,
    pub account: Account,
    /// Its use of resources. A principal sees numbers up to the last interval of the accounting.
    #[serde(default)]
    pub usage: Usage,
    /// Its reservation while it runs.
    #[serde(default)]
    pub reserved: Reservation,
    pub spool: Spool,
    /// Notes for its principal, for example that its view is narrower than its needs.
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
    /// Packets of which no payload was shown because it contains a packet. They are counted as others
    /// besides.
    #[serde(default)]
    pub cut: u64,
    pub records: u64,
    pub records_lost: u64,
    pub messages_lost: u64,
    pub withheld: u64,
    /// Frames that it sent on its channels.
    #[serde(default)]
    pub sent: u64,
    /// Frames of its channels that were not sent, by cause.
    #[serde(default)]
    pub unsent: BTreeMap<String, u64>,
    /// Calls of services that it made, and those that were not let out.
    #[serde(default)]
    pub calls: u64,
    #[serde(default)]
    pub calls_lost: u64,
    /// Replies of its services, and those that came too late or to no call.
    #[serde(default)]
    pub replies: u64,
    #[serde(default)]
    pub replies_lost: u64,
    pub faults: u64,
    /// Whether all offered packets are accounted for. Those of blocks that wait are not yet.
    pub adds_up: bool,
    /// The event queues of the module, in the order of its manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueAccount>,
}

/// The packets of one event queue of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueAccount {
    pub name: String,
    /// The packets that came into the queue.
    pub packets: u64,
    /// Those that the module processed.
    pub processed: u64,
    /// Those that were lost because all blocks of the queue were in use.
    pub overrun: u64,
}

/// The use of a module since it was installed or the node was started. For a principal, numbers that a module
/// can choose are rounded, once per interval of the accounting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Usage {
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
    /// Blocks of packets that waited for it, multiplied by nanoseconds.
    pub block_ns: u64,
    /// Blocks that wait for it now. For the operator only.
    pub blocks: Option<u64>,
    /// Bytes of memory of its instances now. For the operator only.
    pub memory: Option<u64>,
    pub memory_byte_seconds: u64,
    /// Bytes of records that were let out.
    pub record_bytes: u64,
    /// Bytes that were sent to clients.
    pub sent_bytes: u64,
    /// Bytes of frames that left by a link.
    pub transmitted_bytes: u64,
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
    /// The time of the entry in seconds since 1970.
    pub time: u64,
    #[serde(default)]
    pub kind: LogKind,
    pub text: String,
}

/// The kind of an entry of a module's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    /// A change by a request, an eviction, or a restart of the node or the source.
    #[default]
    Change,
    /// The end of an instance by a fault: its cause and place, and whether another instance was started.
    Fault,
    /// A text of the module for the operator.
    Text,
}
