//! Trust: keys, credentials, policy and audit, which together determine grants.
//!
//! A [`Policy`] belongs to the node. It lists the root keys that the node trusts, and the most that each role
//! may have. A [`Credential`] is signed by a root and carried by its holder, who can narrow it and hand it on
//! without asking anyone. A module states its needs in its manifest. The [`Grant`] is the meet of all three
//! ([`Rights::meet`]), computed when a module is installed; nothing here is on the path of a packet.
//!
//! Credentials are [Biscuit](https://www.biscuitsec.org) tokens, version 3. Each block states fields as
//! facts, `expose("headers")`, in the same words as policies do ([`Field`]). Every block narrows, no matter
//! who wrote it. All other conditions are Datalog checks over facts that somebody vouches for
//! ([`GrantRequest`]).
#![forbid(unsafe_code)]

mod audit;
mod credential;
mod datalog;
mod denied;
mod facts;
mod field;
mod grant;
mod hex;
mod identity;
mod key;
mod layer;
mod machine;
mod payer;
mod place;
mod policy;
mod quota;
mod raw;
mod revoked;
mod rights;
mod shown;
mod signature;
mod stage;
pub mod time;

pub use audit::{Audit, AuditError, Event, counter_of, verify as verify_audit};
pub use credential::{Block, Credential, CredentialError, MAX_BLOCKS, MAX_BYTES, Mint, Narrow, Signer};
pub use datalog::Failed;
pub use denied::Denied;
pub use field::{Field, hash_text};
pub use grant::{Answer, Challenge, Grant, GrantRequest, Link, ModuleRequest};
pub use hex::hex;
pub use identity::{Identity, Operation, SESSION, Verified, fleet_name};
pub use key::{KeyError, PublicKey, Secret};
pub use layer::{Layer, Origin, meet};
pub use machine::MachineOption;
pub use payer::{Payer, PayerRequest};
pub use place::Place;
pub use policy::{Policy, PolicyError, Role};
pub use quota::{QuotaError, Quotas};
pub use revoked::{Revoked, RevokedError};
pub use rights::{Call, CapsuleCall, Code, Rights, Sampled, Staged};
pub use shown::{ROWS, ShownTable};
pub use signature::{SignatureError, file_of, read_signers, sign_module, signers};
