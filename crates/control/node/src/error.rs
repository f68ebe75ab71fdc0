use flame_compile::{CompileError, InstallError};
use flame_trust::{AuditError, CredentialError, Denied, Field, Origin, PolicyError, QuotaError};
use flame_view::ViewError;

/// The reason why a run cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Quota(#[from] QuotaError),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Install(#[from] InstallError),
    /// No view can be made of a field of a grant.
    #[error("{origin}, {}: {source}", field.name())]
    View { origin: Origin, field: Field, source: ViewError },
    /// A filter of the grant lets no packet of a link type of the source pass.
    #[error("{0}: leave this word out, or choose packets of another link type")]
    Misfit(ViewError),
    /// The module's manifest requests rights that no grant can give.
    #[error("{0}")]
    Manifest(String),
    #[error("the node has no key")]
    NoKey,
    #[error("a challenge for the holder's key: {0}")]
    Challenge(std::io::Error),
    #[error("random numbers of the system: {0}")]
    Random(String),
    #[error("no module is called {0:?} in this run")]
    UnusedSettings(String),
    /// An error about one module.
    #[error("{name}: {source}")]
    Module { name: String, source: Box<NodeError> },
}

impl NodeError {
    /// Returns the text for the node's operator. The other one is for everybody.
    pub fn operator(&self) -> String {
        match self {
            Self::Denied(denied) => denied.operator(),
            Self::Module { name, source } => format!("{name}: {}", source.operator()),
            other => other.to_string(),
        }
    }

    pub(crate) fn of(self, name: &str) -> Self {
        Self::Module { name: name.to_owned(), source: Box::new(self) }
    }
}
