use crate::error::NodeError;
use flame_trust::{Answer, Challenge, Credential, GrantRequest, ModuleRequest, Place, Secret, time};

/// The client's half of authentication: answers challenges with the key of a credential's holder.
pub trait Holder {
    /// Signs the challenge for this credential and the module with the SHA-256 `hash`.
    fn answer(&self, challenge: &Challenge, credential: &Credential, hash: &[u8; 32]) -> Answer;
}

impl Holder for Secret {
    fn answer(&self, challenge: &Challenge, credential: &Credential, hash: &[u8; 32]) -> Answer {
        challenge.answer(self, credential, hash)
    }
}

/// The proof that a credential is presented by its holder.
pub enum Possession {
    /// No proof: the credential names no holder, or the node refuses it.
    Unproved,
    /// An answer that was made before, for one module.
    Answered(Challenge, Answer),
    /// The holder answers a new challenge for each decision.
    Asked(Box<dyn Holder + Send + Sync>),
}

/// The circumstances under which modules are to run, which a node compares with its policy.
pub struct Presented {
    /// The credential, or `None` for a module that has none.
    pub credential: Option<Credential>,
    pub possession: Possession,
    /// The place from which packets come.
    pub place: Place,
    /// The text appended to the audit log's entry of an install: the command's arguments and its caller.
    pub options: String,
}

impl Presented {
    /// Returns the proof that the holder of the credential wants to run the module with this hash.
    pub(crate) fn prove(&self, hash: &[u8; 32]) -> Result<Option<(Challenge, Answer)>, NodeError> {
        Ok(match (&self.possession, &self.credential) {
            (Possession::Asked(holder), Some(credential)) => {
                let challenge = Challenge::new().map_err(NodeError::Challenge)?;
                let answer = holder.answer(&challenge, credential, hash);
                Some((challenge, answer))
            }
            (Possession::Answered(challenge, answer), _) => Some((challenge.clone(), answer.clone())),
            (Possession::Asked(_), None) | (Possession::Unproved, _) => None,
        })
    }

    pub(crate) fn request<'a>(
        &'a self,
        module: &'a ModuleRequest,
        possession: Option<&'a (Challenge, Answer)>,
    ) -> GrantRequest<'a> {
        GrantRequest {
            credential: self.credential.as_ref(),
            module,
            place: &self.place,
            now: time::now(),
            possession: possession.map(|(challenge, answer)| (challenge, answer)),
        }
    }

    /// Returns the principal that the credential names, without verification.
    pub(crate) fn claimed(&self) -> String {
        let blocks = self.credential.as_ref().and_then(|c| c.blocks().ok()).unwrap_or_default();
        blocks.into_iter().find_map(|b| b.principal).map_or("anyone".to_owned(), |p| format!("{p} (claimed)"))
    }
}
