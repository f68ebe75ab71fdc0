//! The caller of a request: the peer of a connection, and the principal that it proved to be.

use crate::config::Socket;
use crate::engine::Engine;
use crate::server::Part;
use crate::store::{Owner, Proof};
use flame_api::{Answer as ApiAnswer, ChallengeRequest, Code, Problem, Session, SessionRequest};
use flame_base::lock;
use flame_plan::Audience;
use flame_trust::{Answer, Challenge, Credential, Denied, Policy, PublicKey, Verified, time};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine. `node` is the user as which the node listens.
    Unix { uid: u32, node: u32 },
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
    /// The rights of the user of a Unix socket, with the version of the authorities that gave them.
    access: Option<(u64, Access)>,
    /// A credential that was presented, and the challenge for its holder.
    challenged: Option<(Arc<Credential>, Challenge)>,
    session: Option<Opened>,
}

/// A session whose holder answered.
#[derive(Clone)]
struct Opened {
    credential: Arc<Credential>,
    challenge: Challenge,
    answer: Answer,
    /// The principal to which requests are charged.
    tenant: String,
    /// The place of the principal's connection.
    _place: Arc<Part>,
    decided: Decided,
}

/// The last decision on a session: under which version of the authorities, and in which second.
#[derive(Clone)]
struct Decided {
    version: u64,
    second: u64,
    verified: Arc<Verified>,
}

/// The principal of a request.
#[derive(Clone, Debug)]
pub enum Caller {
    Operator,
    Principal { owner: Owner, session: Session, verified: Arc<Verified> },
}

impl Caller {
    /// Returns the owner of the modules that the caller changes.
    pub fn owner(&self) -> Owner {
        match self {
            Self::Operator => Owner::default(),
            Self::Principal { owner, .. } => owner.clone(),
        }
    }

    /// Returns the audience of replies: the one decision for the requests of a session.
    pub fn audience(&self) -> Audience {
        self.owner().audience()
    }

    /// Returns the principal to which work is charged, or nothing for the operator.
    pub fn tenant(&self) -> Option<String> {
        match self {
            Self::Operator => None,
            Self::Principal { owner, .. } => Some(owner.tenant()),
        }
    }

    /// Returns the credential of the session, or nothing for the operator.
    pub fn session(&self) -> Option<&Verified> {
        match self {
            Self::Operator => None,
            Self::Principal { verified, .. } => Some(verified),
        }
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

    /// Returns the name of the peer.
    pub fn label(&self) -> String {
        match &self.peer {
            Peer::Unix { uid, .. } => format!("uid {uid}"),
            Peer::Tls { address, .. } => format!("address {address}"),
        }
    }

    /// Returns who pays for a request, without any verification: the principal of the session, or the peer.
    /// The operator pays nothing.
    pub fn payer(&self, engine: &Engine) -> Option<String> {
        let tenant = lock(&self.state).session.as_ref().map(|s| s.tenant.clone());
        match (tenant, self.access(engine)) {
            (Some(tenant), _) => Some(tenant),
            (None, Access::Operator) => None,
            (None, _) => Some(self.label()),
        }
    }

    /// Returns the rights of the peer without a session, as the configuration gives them now.
    pub fn access(&self, engine: &Engine) -> Access {
        let Peer::Unix { uid, .. } = &self.peer else { return Access::User };
        let version = engine.version();
        let mut state = lock(&self.state);
        match state.access {
            Some((of, access)) if of == version => access,
            _ => {
                let access = engine.config().socket.map_or(Access::None, |socket| access(&socket, *uid));
                state.access = Some((version, access));
                access
            }
        }
    }

    /// Returns what takes the place of the connection in a challenge.
    fn channel(&self, policy: &Policy) -> Vec<u8> {
        match &self.peer {
            Peer::Unix { uid, node } => flame_api::unix_channel(&public(policy), *node, *uid),
            Peer::Tls { exported, .. } => exported.to_vec(),
        }
    }

    /// Begins a session: returns the bytes that the credential's holder has to sign, and the node's key.
    ///
    /// # Errors
    ///
    /// Returns an error if the credential would not be accepted.
    pub fn challenge(
        &self,
        engine: &Engine,
        request: &ChallengeRequest,
    ) -> Result<flame_api::Challenge, Problem> {
        let credential = Credential::parse(&request.credential).map_err(|e| {
            Problem::new(Code::Invalid, e.to_string(), "send the whole text of the credential's file")
        })?;
        let policy = policy(engine)?;
        // The rest is decided for the holder alone, who answers.
        policy.recognize(&credential).map_err(|e| self.denied(engine, &e))?;
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|e| {
            Problem::new(Code::Internal, "no random numbers", "try again").with_detail(e.to_string())
        })?;
        let challenge = Challenge::on_channel(&nonce, &self.channel(&policy));
        lock(&self.state).challenged = Some((Arc::new(credential), challenge));
        Ok(flame_api::Challenge { nonce: nonce.to_vec(), node: public(&policy) })
    }

    /// Completes a session. `place` gives the principal a place for one more connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is not the one of the credential's holder to this connection's
    /// challenge, or the principal has too many connections.
    pub fn answer(
        &self,
        engine: &Engine,
        request: &SessionRequest,
        place: impl FnOnce(&str) -> Result<Part, Problem>,
    ) -> Result<Session, Problem> {
        // A challenge is for one answer.
        let Some((credential, challenge)) = lock(&self.state).challenged.take() else {
            return Err(Problem::new(
                Code::Unauthenticated,
                "no challenge was asked for on this connection",
                "first POST /v1/session/challenge",
            ));
        };
        // The session before ends, whatever the answer is.
        lock(&self.state).session = None;
        let answer = parsed(&request.key, &request.signature)?;
        let decided = self.decide(engine, &credential, (&challenge, &answer), None)?;
        let (owner, session) = named(&decided.verified);
        let tenant = owner.tenant();
        let place = Arc::new(place(&tenant)?);
        let opened = Opened { credential, challenge, answer, tenant, _place: place, decided };
        lock(&self.state).session = Some(opened);
        Ok(session)
    }

    /// Returns who asks, if that was decided in this second and nothing has changed since.
    pub fn known_caller(&self, engine: &Engine) -> Option<Caller> {
        let decided = lock(&self.state).session.as_ref().map(|opened| opened.decided.clone());
        match decided {
            Some(Decided { version, second, verified }) => {
                let is_now = version == engine.version() && second == time::now();
                is_now.then(|| Caller::of_session(verified))
            }
            None => (self.access(engine) == Access::Operator).then_some(Caller::Operator),
        }
    }

    /// Returns who asks. A session is verified again under another version of policy and configuration, and
    /// decided again each second, because time is part of it.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection has no session, or its credential is not valid any longer.
    pub fn caller(&self, engine: &Engine) -> Result<Caller, Problem> {
        if let Some(caller) = self.known_caller(engine) {
            return Ok(caller);
        }
        let opened = lock(&self.state).session.clone();
        let Some(Opened { credential, challenge, answer, decided, .. }) = opened else {
            return Err(Problem::new(
                Code::Unauthenticated,
                "this connection has no principal",
                "present a credential: POST /v1/session/challenge, then /v1/session (flame does it with --credential \
                 and --identity)",
            ));
        };
        let decided = self.decide(engine, &credential, (&challenge, &answer), Some(decided))?;
        let caller = Caller::of_session(decided.verified.clone());
        if let Some(opened) = lock(&self.state).session.as_mut().filter(|o| o.challenge == challenge) {
            opened.decided = decided;
        }
        Ok(caller)
    }

    /// Returns the reply to a session that is denied. The log has the text for the operator.
    fn denied(&self, engine: &Engine, denied: &Denied) -> Problem {
        lock(&engine.reports).refusals.add(&self.label(), &denied.operator());
        Problem::new(Code::Forbidden, denied.to_string(), "present a credential that is valid on this node")
    }

    /// Decides on a session now. Of an earlier decision under the same version, the verification is kept.
    fn decide(
        &self,
        engine: &Engine,
        credential: &Credential,
        shown: (&Challenge, &Answer),
        before: Option<Decided>,
    ) -> Result<Decided, Problem> {
        // Before the policy is read: if it changes meanwhile, this decision is an old one.
        let (version, second) = (engine.version(), time::now());
        let policy = policy(engine)?;
        let verified = match before.filter(|before| before.version == version) {
            Some(before) => before.verified,
            None => Arc::new(policy.present(credential, shown).map_err(|e| self.denied(engine, &e))?),
        };
        policy.admit_session(&verified, second).map_err(|e| self.denied(engine, &e))?;
        Ok(Decided { version, second, verified })
    }

    /// Returns the credential of this session with the holder's answer for one module.
    ///
    /// # Errors
    ///
    /// Returns an error if the caller is no principal or the answer is missing.
    pub fn proof(&self, answer: Option<&ApiAnswer>) -> Result<Option<Proof>, Problem> {
        let session = lock(&self.state).session.clone();
        match (session, answer) {
            (None, None) => Ok(None),
            (Some(Opened { credential, challenge, .. }), Some(answer)) => {
                let credential = credential.text();
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

/// Returns the session of the operator.
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

fn policy(engine: &Engine) -> Result<Arc<Policy>, Problem> {
    engine.policy().ok_or_else(|| {
        Problem::new(
            Code::Forbidden,
            "this node has no policy, so it accepts no credential",
            "the operator has to give it one (policy in [node])",
        )
    })
}

fn public(policy: &Policy) -> String {
    policy.secret().map_or_else(String::new, |secret| secret.public().to_string())
}

/// Returns the owner of a session's modules, and the session as clients see it.
fn named(verified: &Verified) -> (Owner, Session) {
    let identity = &verified.identity;
    let owner = Owner { root: identity.root.to_string(), principal: identity.principal.clone() };
    let expires = Some(identity.expires).filter(|end| *end != u64::MAX);
    let principal = Some(identity.principal.clone());
    (owner, Session { principal, role: identity.role.clone(), expires })
}

impl Caller {
    fn of_session(verified: Arc<Verified>) -> Self {
        let (owner, session) = named(&verified);
        Self::Principal { owner, session, verified }
    }
}

/// Returns the rights of a user of this machine.
fn access(socket: &Socket, uid: u32) -> Access {
    let names = |list: &[String]| list.iter().any(|name| uid_of(name) == Some(uid));
    match () {
        () if uid == 0 || uid == flame_files::effective_user() || names(&socket.operators) => {
            Access::Operator
        }
        () if names(&socket.users) => Access::User,
        () => Access::None,
    }
}

/// Returns the number of a user, given by number or name.
fn uid_of(name: &str) -> Option<u32> {
    let named = || nix::unistd::User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_rights_that_the_configuration_gives_them() {
        let socket = Socket {
            path: "s".into(),
            mode: 0o600,
            operators: vec!["4001".into()],
            users: vec!["4002".into(), "no-such-user".into(), "nobody".into()],
        };
        let nobody = uid_of("nobody").expect("every system has this user");
        let me = flame_files::effective_user();
        for (uid, expected) in [
            (0, Access::Operator),
            (me, Access::Operator),
            (4001, Access::Operator),
            (4002, Access::User),
            (nobody, Access::User),
            (4003, Access::None),
        ] {
            assert_eq!(access(&socket, uid), expected, "{uid}");
        }
    }
}
