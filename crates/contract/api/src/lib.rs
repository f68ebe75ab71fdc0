//! The API of a node, version 1: requests, replies and errors as plain data.
//!
//! All bodies are JSON, except the rows of `records`. Server and clients share these types, and the OpenAPI
//! description is derived from them. Unknown fields of requests are errors, so that a misspelt limit is
//! noticed; unknown fields of replies are to be ignored.
#![forbid(unsafe_code)]

mod error;
mod module;
mod records;
mod session;
mod status;

pub use error::{Code, Problem};
pub use module::{
    Account, Answer, Change, InstallRequest, LogLine, Module, Modules, Narrowing, RenewRequest, Spool, State,
    UpdateRequest, Whose,
};
pub use records::{CURSOR, Cursor, Encoding, Frame, LOST, MAX_FRAME, RecordsQuery};
pub use session::{Challenge, ChallengeRequest, Session, SessionRequest};
pub use status::{Health, RevokeRequest, Source, Sources, Status};

/// The prefix of all paths of this version.
pub const PREFIX: &str = "/v1";

/// The label under which both ends of a TLS connection export the keying material of a session's challenge.
pub const EXPORTER: &[u8] = b"EXPORTER-flame-session-v1";

/// The material that takes the place of exported keys on a Unix socket, where the kernel is the channel.
pub const UNIX_CHANNEL: &[u8] = b"flame unix socket";

/// Bytes as base64 in JSON.
pub mod bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map_err(|e| serde::de::Error::custom(format!("base64: {e}")))
    }

    /// Bytes that may be missing.
    pub mod optional {
        use serde::{Deserialize, Deserializer, Serializer};

        pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
            match bytes {
                Some(bytes) => super::serialize(bytes, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
            #[derive(Deserialize)]
            struct Held(#[serde(with = "super")] Vec<u8>);
            Ok(Option::<Held>::deserialize(deserializer)?.map(|held| held.0))
        }
    }
}
