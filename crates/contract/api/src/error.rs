use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request cannot be understood.
    Invalid,
    /// The connection has no principal yet.
    Unauthenticated,
    /// The principal may not do this.
    Forbidden,
    NotFound,
    /// The path exists, but not with this method.
    Method,
    /// Another change came first.
    Conflict,
    /// The request, or what it asks for, exceeds a limit of the node.
    TooLarge,
    /// The body is not JSON by its content type.
    MediaType,
    /// The module was examined and is not run.
    Refused,
    /// Too many requests in too short a time.
    TooMany,
    /// The request did not arrive in time.
    Timeout,
    /// The node cannot do this now.
    Unavailable,
    /// The node cannot store the change.
    Storage,
    Internal,
}

impl Code {
    /// Returns the HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::Timeout => 408,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::MediaType => 415,
            Self::Refused => 422,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
            Self::Storage => 507,
        }
    }
}

/// The body of every reply that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    pub code: Code,
    /// The place, what was found, and what was expected.
    pub cause: String,
    /// A way to proceed.
    pub remedy: String,
    /// The part of the cause for the operator only. It is never part of a reply by itself.
    #[serde(skip)]
    pub detail: Option<Detail>,
}

/// A cause for the operator: it may name files of the node and modules of others. It has a type of its own,
/// so that nothing of it gets into replies to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail(pub String);

impl Problem {
    /// Returns a problem without a part for the operator.
    pub fn new(code: Code, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, cause: cause.into(), remedy: remedy.into(), detail: None }
    }

    /// Returns the problem with a part of the cause that only the operator receives.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(Detail(detail.into())), ..self }
    }

    /// Returns the problem as the operator receives it.
    #[must_use]
    pub fn for_operator(self) -> Self {
        match self.detail {
            Some(Detail(detail)) => Self { cause: format!("{}: {detail}", self.cause), detail: None, ..self },
            None => self,
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.remedy.as_str() {
            "" => f.write_str(&self.cause),
            remedy => write!(f, "{}: {remedy}", self.cause),
        }
    }
}

impl std::error::Error for Problem {}
