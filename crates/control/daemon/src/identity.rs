//! Who asks: the peer of a connection, and the principal that it proved to be.

use crate::engine::{Engine, held};
use crate::store::{Owner, Proof};
use flame_api::{Answer as ApiAnswer, ChallengeRequest, Code, Problem, Session, SessionRequest};
use flame_trust::{Answer, Challenge, Credential, PublicKey, time};
use std::net::IpAddr;
use std::sync::Mutex;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine, with the rights that its user has here.
    Unix { uid: u32, access: Access },
    /// A client over TLS. The keying material is known to the two ends only.
    Tls { address: IpAddr, exported: [u8; 32] },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Operator,
    /// It may present a credential.
    User,
    None,
}

/// A connection with its session.
pub struct Connection {
    pub peer: Peer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A credential that was presented, and the challenge for its holder.
    asked: Option<(String, Challenge)>,
    session: Option<(String, Challenge, Answer)>,
}

/// The principal of a request.
#[derive(Clone, Debug)]
pub enum Caller {
    Operator,
    Principal { owner: Owner, session: Session },
}

impl Caller {
    /// Returns the owner of the modules that the caller changes.
    pub fn owner(&self) -> Owner {
        match self {
            Self::Operator => Owner::default(),
            Self::Principal { owner, .. } => owner.clone(),
        }
    }

    pub fn is_operator(&self) -> bool {
        matches!(self, Self::Operator)
    }

    /// Returns the owner whose modules a request means: the caller, or the principal that an operator names.
    pub fn of(&self, engine: &Engine, principal: Option<&str>) -> Result<Owner, Problem> {
        match (self, principal) {
            (_, None) => Ok(self.owner()),
            (Self::Operator, Some(name)) => engine.owner_of(name),
            (Self::Principal { owner, .. }, Some(name)) if owner.principal == name => Ok(owner.clone()),
            // A principal does not learn whether the other one exists.
            (Self::Principal { .. }, Some(name)) => Err(Problem::new(
                Code::Forbidden,
                format!("the modules of {name:?} are not yours"),
                "leave out the principal: your own modules are meant",
            )),
        }
    }
}

impl Connection {
    pub fn new(peer: Peer) -> Self {
        Self { peer, state: Mutex::default() }
    }

    /// Returns a name for the peer, by which its requests are counted before it has a principal.
    pub fn label(&self) -> String {
        match &self.peer {
            Peer::Unix { uid, .. } => format!("uid {uid}"),
            Peer::Tls { address, .. } => format!("address {address}"),
        }
    }

    /// Begins a session: returns the bytes that the credential's holder has to sign.
    ///
    /// # Errors
    ///
    /// Returns an error if the credential would not be accepted.
    pub fn challenge(&self, engine: &Engine, request: &ChallengeRequest) -> Result<[u8; 32], Problem> {
        let credential = Credential::parse(&request.credential).map_err(|e| {
            Problem::new(Code::Invalid, e.to_string(), "send the whole text of the credential's file")
        })?;
        with_policy(engine, |policy| policy.claim(&credential, time::now()).map_err(denied))?;
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce)
            .map_err(|e| Problem::new(Code::Internal, format!("random numbers: {e}"), "try again"))?;
        let channel = match &self.peer {
            Peer::Unix { .. } => flame_api::UNIX_CHANNEL,
            Peer::Tls { exported, .. } => exported,
        };
        let challenge = Challenge::on_channel(&nonce, channel);
        held(&self.state).asked = Some((request.credential.clone(), challenge));
        Ok(nonce)
    }

    /// Completes a session.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is not the one of the credential's holder to this connection's
    /// challenge.
    pub fn answer(&self, engine: &Engine, request: &SessionRequest) -> Result<Session, Problem> {
        // A challenge is for one answer.
        let Some((text, challenge)) = held(&self.state).asked.take() else {
            return Err(Problem::new(
                Code::Unauthenticated,
                "no challenge was asked for on this connection",
                "first POST /v1/session/challenge",
            ));
        };
        let answer = parsed(&request.key, &request.signature)?;
        held(&self.state).session = Some((text, challenge, answer));
        match self.caller(engine) {
            Ok(Caller::Principal { session, .. }) => Ok(session),
            Ok(Caller::Operator) => Ok(operator()),
            Err(problem) => {
                held(&self.state).session = None;
                Err(problem)
            }
        }
    }

    /// Returns who asks. A session is verified again, because its credential may have ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection has no session, or its credential is not valid any longer.
    pub fn caller(&self, engine: &Engine) -> Result<Caller, Problem> {
        let session = held(&self.state).session.clone();
        match (&self.peer, session) {
            (_, Some((text, challenge, answer))) => {
                let credential = Credential::parse(&text).map_err(|e| {
                    Problem::new(Code::Unauthenticated, e.to_string(), "begin another session")
                })?;
                let shown = (&challenge, &answer);
                let identity = with_policy(engine, |policy| {
                    policy.identify(&credential, shown, time::now()).map_err(denied)
                })?;
                let owner = Owner { root: identity.root.to_string(), principal: identity.principal.clone() };
                let expires = Some(identity.expires).filter(|end| *end != u64::MAX);
                let session = Session { principal: Some(identity.principal), role: identity.role, expires };
                Ok(Caller::Principal { owner, session })
            }
            (Peer::Unix { access: Access::Operator, .. }, None) => Ok(Caller::Operator),
            _ => Err(Problem::new(
                Code::Unauthenticated,
                "this connection has no principal",
                "present a credential: POST /v1/session/challenge, then /v1/session (flame does it with --credential \
                 and --identity)",
            )),
        }
    }

    /// Returns the credential of this session with the holder's answer for one module.
    ///
    /// # Errors
    ///
    /// Returns an error if the caller is no principal or the answer is missing.
    pub fn proof(&self, answer: Option<&ApiAnswer>) -> Result<Option<Proof>, Problem> {
        let session = held(&self.state).session.clone();
        match (session, answer) {
            (None, None) => Ok(None),
            (Some((credential, challenge, _)), Some(answer)) => {
                let answer = parsed(&answer.key, &answer.signature)?;
                let (key, signature) = (answer.key.to_string(), answer.signature);
                Ok(Some(Proof { credential, challenge: challenge.to_bytes(), key, signature }))
            }
            (Some(_), None) => Err(Problem::new(
                Code::Invalid,
                "the request has no answer for this module",
                "sign the session's challenge with the module's SHA-256 (see answer in the API)",
            )),
            (None, Some(_)) => Err(Problem::new(
                Code::Invalid,
                "an answer is for a session under a credential",
                "leave out answer: the operator's modules have no credential",
            )),
        }
    }
}

/// The session of the operator.
pub fn operator() -> Session {
    Session { principal: None, role: "operator".to_owned(), expires: None }
}

fn parsed(key: &str, signature: &[u8]) -> Result<Answer, Problem> {
    let invalid =
        |reason: String| Problem::new(Code::Invalid, reason, "sign with the credential's key (flame key)");
    let key = PublicKey::parse(key).map_err(|e| invalid(e.to_string()))?;
    let found = signature.len();
    let signature =
        signature.try_into().map_err(|_| invalid(format!("signature: {found} bytes, expected 64")))?;
    Ok(Answer { key, signature })
}

fn denied(denied: flame_trust::Denied) -> Problem {
    Problem::new(Code::Forbidden, denied.to_string(), "present a credential that is valid on this node")
}

fn with_policy<T>(
    engine: &Engine,
    of: impl FnOnce(&flame_trust::Policy) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let node = held(&engine.node);
    let node = node.as_ref().ok_or_else(|| {
        Problem::new(
            Code::Forbidden,
            "this node has no policy, so it accepts no credential",
            "the operator has to give it one (policy in [node])",
        )
    })?;
    of(node.policy())
}
