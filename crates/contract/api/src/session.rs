use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The first message of authentication: a credential.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChallengeRequest {
    /// The text that `flame grant mint` or `narrow` wrote. It must name a holder.
    #[serde(deserialize_with = "crate::most::text::<_, { crate::most::CREDENTIAL }>")]
    #[schema(max_length = 65536)]
    pub credential: String,
}

/// The second message: random bytes for the credential's holder to sign.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Challenge {
    /// 32 bytes. What is signed is a hash of them and of keying material exported from the TLS connection, so
    /// that the answer is valid on this connection only. On a Unix socket, the node's key and the users of
    /// both ends take the place of that material.
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub nonce: Vec<u8>,
    /// The node's public key.
    pub node: String,
}

/// The third message: the answer of the credential's holder.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The holder's public key: `ed25519/` and 64 hexadecimal digits.
    #[serde(deserialize_with = "crate::most::text::<_, { crate::most::KEY }>")]
    #[schema(max_length = 128)]
    pub key: String,
    #[serde(with = "crate::bytes")]
    #[schema(value_type = String, content_encoding = "base64")]
    pub signature: Vec<u8>,
}

/// The principal of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// The principal's name, or nothing for the operator. After `#`, it has a digest of the holders to whom
    /// the credential was handed on.
    pub principal: Option<String>,
    pub role: String,
    /// The end of the credential in seconds since 1970, if it has one.
    pub expires: Option<u64>,
}
