//! The API of a node, version 1: requests, replies and errors as plain data.
//!
//! All bodies are JSON, except the rows of `records`. Server and clients share these types, and the OpenAPI
//! description is derived from them. Unknown fields of requests are errors, so that a misspelt limit is
//! noticed; unknown fields of replies are to be ignored.
#![forbid(unsafe_code)]

mod error;
mod module;
pub mod most;
mod records;
mod reserve;
mod security;
mod session;
mod status;

pub use error::{Code, Problem};
pub use module::{
    Account, Answer, Change, InstallRequest, LogKind, LogLine, Module, Modules, Narrowing, Question,
    QueueAccount, RenewRequest, Served, Spool, State, UpdateRequest, Usage, Whose,
};
pub use records::{AccountingQuery, CURSOR, Cursor, Encoding, Frame, LOST, MAX_FRAME, RecordsQuery};
pub use reserve::{Capacity, Reservation};
pub use security::{Process, Runs, Security, Threads};
pub use session::{Challenge, ChallengeRequest, Session, SessionRequest};
pub use status::{CredentialInUse, Credentials, Health, RevokeRequest, Source, Sources, Status};

/// The prefix of all paths of this version.
pub const PREFIX: &str = "/v1";

/// The label under which both ends of a TLS connection export the keying material of a session's challenge.
pub const EXPORTER: &[u8] = b"EXPORTER-flame-session-v1";

/// Returns the material that takes the place of exported keys on a Unix socket: the node's public key, and
/// the users of both ends as the kernel names them. Between two other ends, an answer is not valid.
pub fn unix_channel(node_key: &str, node_user: u32, client_user: u32) -> Vec<u8> {
    format!("flame unix socket 2 {node_user} {client_user} {node_key}").into_bytes()
}

/// Bytes as base64 in JSON.
pub mod bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes bytes as base64.
    ///
    /// # Errors
    ///
    /// Returns the errors of the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads bytes from base64.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no text, or if it is not base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map_err(|e| serde::de::Error::custom(format!("base64: {e}")))
    }

    /// Bytes that may be missing.
    pub mod optional {
        use serde::{Deserialize, Deserializer, Serializer};

        /// Writes bytes as base64, or nothing.
        ///
        /// # Errors
        ///
        /// Returns the errors of the serializer.
        pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
            match bytes {
                Some(bytes) => super::serialize(bytes, serializer),
                None => serializer.serialize_none(),
            }
        }

        /// Reads bytes from base64, or nothing.
        ///
        /// # Errors
        ///
        /// Returns an error if there is a value that is no text in base64.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
            #[derive(Deserialize)]
            struct Held(#[serde(with = "super")] Vec<u8>);
            Ok(Option::<Held>::deserialize(deserializer)?.map(|held| held.0))
        }
    }
}
