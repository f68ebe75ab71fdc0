use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The reply of a node that works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub ok: bool,
    /// The reasons why something does not work, for the operator only: they name what belongs to others.
    pub reasons: Vec<String>,
}

/// A source of packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Source {
    pub name: String,
    /// `interface` or `file`.
    pub kind: String,
    /// The interface. Paths of files are shown to the operator only.
    pub from: Option<String>,
    /// The method of capture: `AF_PACKET (TPACKET_V3)`, as in `AF_XDP (native, copy, 1 queue)`, or
    /// `file, paced`.
    pub method: String,
    pub workers: u16,
    pub running: bool,
    /// The reason why it does not run, or why no packets come while it runs, for the operator only.
    pub reason: Option<String>,
    /// Packets, captured bytes and kernel drops, for the operator only: they include what grants hide.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    pub kernel_drops: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sources {
    pub sources: Vec<Source>,
}

/// The state of the node, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The name in the policy, if there is one.
    pub name: Option<String>,
    pub version: String,
    /// The start in seconds since 1970.
    pub started: u64,
    pub modules: u64,
    pub running: u64,
    pub sources: Vec<Source>,
    /// Notes for the operator, for example modules that could not be restored.
    pub notes: Vec<String>,
}

/// The credentials under which modules are installed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Credentials {
    pub credentials: Vec<CredentialInUse>,
}

/// A credential under which modules are installed. A node knows none that was never presented to it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CredentialInUse {
    pub principal: String,
    pub role: Option<String>,
    /// The id of its last block, by which it is revoked (`flame node revoke`).
    pub id: String,
    /// The key that its holder proves to own.
    pub holder: Option<String>,
    /// The first end of the modules' grants in seconds since 1970.
    pub expires: Option<u64>,
    /// The names of the modules, and of the ones that run.
    pub modules: Vec<String>,
    pub running: Vec<String>,
}

/// A revocation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// A credential, whose last block is revoked, with all that were narrowed from it.
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::CREDENTIAL }>")]
    #[schema(max_length = 65536)]
    pub credential: Option<String>,
    /// A public key: of a holder, a root or a signer of modules.
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::KEY }>")]
    #[schema(max_length = 128)]
    pub key: Option<String>,
    /// The id of a block of credentials (`flame grant inspect`): with it all are revoked that have the block.
    #[serde(default, deserialize_with = "crate::most::optional_text::<_, { crate::most::KEY }>")]
    #[schema(max_length = 128)]
    pub id: Option<String>,
}
