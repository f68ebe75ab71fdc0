//! The agent of a node as a follower of its fleet: takes statements, applies revocations, and has the node
//! run what the fleet wishes.
//!
//! One thread takes statements and applies revocations, which must not wait for an install; another makes the
//! node follow, one change after the other, and looks at the latest wish before each.

use crate::look::Look;
use crate::member::{Kept, Member, Settings};
use crate::node::{self, Fault, Installed, Session};
use crate::service::ask;
use crate::{Error, note, now, random};
use flame_fleet_nats::Bus;
use flame_fleet_protocol::rollout::Outcome;
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::talk::{Ask, Followed, LOOK as LIST, PART, Report, Subjects, TO_ALL};
use flame_fleet_protocol::{Action, Age, Agent, Alone, Clock, Ed25519, Intent, Key, agent};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for a statement.
const EACH: Duration = Duration::from_millis(50);
/// The time between two reports without news, and between two while contact is asked for.
const REPORT: Duration = Duration::from_secs(5);
const ASK: Duration = Duration::from_millis(500);
/// The time after which the node is looked at again, and after which it is if it did not answer.
const LOOK: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(3);
/// The longest wait for a part of a module.
const ANSWER: Duration = Duration::from_secs(20);
/// The most bytes of a module.
const MAX_MODULE: usize = crate::folder::MAX_MODULE as usize;

/// What the node is to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// The intents to run, each with the time in seconds since 1970 at which its lease ends, if it does.
    run: BTreeMap<String, (Intent, Option<u64>)>,
    /// The targets of intents by which nothing runs, with the numbers of their rollouts.
    settled: BTreeMap<String, u64>,
}

/// What the two threads share.
#[derive(Default)]
struct Shared {
    /// With the number of the wish: it grows with each that differs in more than leases.
    wanted: Mutex<(u64, Wanted)>,
    /// The number of the last wish after which nothing runs that it does not have.
    ended: AtomicU64,
    changed: Condvar,
    outcomes: Mutex<BTreeMap<String, Followed>>,
}

/// Follows until the process is ended.
///
/// # Errors
///
/// Returns an error if the node has not enrolled, or if its folder cannot be read.
pub fn follow(settings: &Settings) -> Result<Infallible, Error> {
    let member = Arc::new(Member::open(&settings.member)?);
    let kept = member.kept()?;
    let shared = Arc::new(Shared::default());
    let mut bus = Bus::connect(&member.access())?;
    let subjects = Subjects::of(&member.known.name);
    bus.subscribe(&[TO_ALL, LIST, &subjects.to])?;
    let steady = Instant::now();
    let identity = agent::Member {
        node: member.known.name.clone(),
        fleet: member.known.fleet.clone(),
        root: member.known.root,
        labels: crate::commands::labels(&settings.labels),
        alone: if settings.keeps { Alone::Keep } else { Alone::Stop },
    };
    let clock = || Clock { wall: now(), steady: steady.elapsed().as_secs() };
    let agent = Agent::new(identity, kept.stored.clone(), number()?, clock());
    let mut follower = Follower {
        settings: settings.clone(),
        member,
        shared,
        bus,
        subjects,
        agent,
        kept,
        said: String::new(),
    };
    // Nothing below fails: a second one of these threads would have another wish.
    let acting = Acting {
        member: follower.member.clone(),
        settings: settings.clone(),
        shared: follower.shared.clone(),
    };
    std::thread::spawn(move || acting.serve());
    let look = Look::begin(&settings.node, &settings.member);
    let (mut connects, mut sent, mut last) = (0, Instant::now(), Report::default());
    let (mut refused, mut reason) = (0, None);
    loop {
        if let Err(e) = follower.bus.tend() {
            note(&mut follower.said, format!("agent: {e}; it is tried again"));
        }
        if std::mem::replace(&mut connects, follower.bus.connects()) != follower.bus.connects()
            || follower.agent.should_ask(clock())
        {
            // Without a number the one before stays, which is as unknown to all others.
            if let Ok(number) = number() {
                follower.agent.ask(number, clock());
            }
            last = Report::default();
        }
        let mut within = EACH;
        while let Some(note) = follower.bus.next(within) {
            within = Duration::ZERO;
            if note.subject == LIST {
                look.ask();
                continue;
            }
            if let Err(e) = follower.agent.receive(&note.bytes, clock(), &Ed25519) {
                // A beacon before the answer, and what is sent twice, is usual.
                if !matches!(e, agent::Refusal::Silent { .. } | agent::Refusal::Old { .. }) {
                    reason = Some(e.to_string());
                    refused += 1;
                }
            }
        }
        follower.act(clock());
        let mut report = follower.report();
        (report.refused, report.reason) = (refused, reason.clone());
        report.listed = look.take();
        let due = if report.asks.is_some() { ASK } else { REPORT };
        if follower.bus.is_connected() && (report != last || sent.elapsed() >= due) {
            follower.bus.publish(&follower.subjects.report, serde_json::to_vec(&report).unwrap_or_default());
            report.listed = None;
            (last, sent) = (report, Instant::now());
        }
    }
}

fn number() -> Result<u64, Error> {
    Ok(u64::from_le_bytes(random()?))
}

struct Follower {
    settings: Settings,
    member: Arc<Member>,
    shared: Arc<Shared>,
    bus: Bus,
    subjects: Subjects,
    agent: Agent,
    kept: Kept,
    said: String,
}

impl Follower {
    /// Keeps what was decided, applies revocations, and states what is wanted.
    fn act(&mut self, clock: Clock) {
        let mut kept = self.kept.clone();
        kept.stored = self.agent.stored().clone();
        if kept.stored != self.kept.stored {
            if let Err(e) = self.member.keep(&kept) {
                // Nothing is done that a restart would not know of.
                return note(&mut self.said, format!("agent: {e}"));
            }
            self.kept = kept;
        }
        let is_in_force = self.revoke();
        let left = |intent: &Intent| self.agent.left(intent.lease, clock).map(|left| now() + left);
        let run = self.agent.wanted(clock).into_iter().filter(|_| is_in_force);
        let run = run.map(|(target, intent)| (target.to_owned(), (intent.clone(), left(intent)))).collect();
        let settled = self.agent.settled(clock).into_iter();
        let settled = settled.map(|(target, intent)| (target.to_owned(), intent.rollout)).collect();
        let wanted = Wanted { run, settled };
        let mut shared = lock(&self.shared.wanted);
        if !is_same(&shared.1, &wanted) {
            shared.0 += 1;
            self.shared.changed.notify_one();
        }
        shared.1 = wanted;
    }

    /// Has the node revoke what it has not. Returns whether all is in force there: before that it runs
    /// nothing of the fleet's.
    fn revoke(&mut self) -> bool {
        let revoked = &self.agent.stored().revocations.revoked;
        let is_missing = |what: &&String| is_for_node(what) && !self.kept.revoked.contains(*what);
        let missing: Vec<_> = revoked.iter().filter(is_missing).cloned().collect();
        for what in &missing {
            match node::revoke(&self.settings.node, what) {
                Ok(()) => drop(self.kept.revoked.insert(what.clone())),
                Err(Fault::Denied(e) | Fault::Failed(e)) => {
                    note(&mut self.said, format!("agent: the revocation of {what} is not in force: {e}"));
                    return false;
                }
            }
        }
        if !missing.is_empty()
            && let Err(e) = self.member.keep(&self.kept)
        {
            note(&mut self.said, format!("agent: {e}"));
        }
        true
    }

    fn report(&self) -> Report {
        let stored = self.agent.stored();
        let age = |(target, of): (&String, &agent::Target)| (target.clone(), of.age());
        Report {
            asks: self.agent.asks(),
            labels: self.settings.labels.clone(),
            revoked: stored.revoked(),
            has_revoked: stored.demanded <= stored.revoked() && self.in_force(),
            have: stored.targets.iter().map(age).collect::<BTreeMap<String, Age>>(),
            outcomes: lock(&self.shared.outcomes).clone(),
            ..Report::default()
        }
    }

    fn in_force(&self) -> bool {
        let mut revoked = self.agent.stored().revocations.revoked.iter();
        let number = lock(&self.shared.wanted).0;
        revoked.all(|what| !is_for_node(what) || self.kept.revoked.contains(what))
            && self.shared.ended.load(Ordering::SeqCst) == number
    }
}

/// Returns whether the node itself revokes this: a key, or the id of a block. The agent stops modules by
/// their hashes. Nothing else becomes an argument of a command.
fn is_for_node(what: &str) -> bool {
    let is_id = what.len() != 64 && !what.is_empty() && what.bytes().all(|byte| byte.is_ascii_hexdigit());
    Key::parse(what).is_some() || is_id
}

/// Returns whether a name is one of a module on a node. Nothing else becomes an argument or a file.
pub fn is_target(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    name.len() <= 32 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(is_plain)
}

/// Returns whether two wishes differ in their leases only.
fn is_same(a: &Wanted, b: &Wanted) -> bool {
    let run = |of: &Wanted| {
        of.run.iter().map(|(target, (intent, _))| (target.clone(), intent.clone())).collect::<Vec<_>>()
    };
    a.settled == b.settled && run(a) == run(b)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was tried on the node since the start.
#[derive(Default)]
struct Tried {
    /// The intents that the node refused, by rollout and counter: only another one is tried.
    refused: BTreeMap<String, (u64, u64)>,
    made: BTreeMap<String, Action>,
}

/// Makes the node follow.
struct Acting {
    member: Arc<Member>,
    settings: Settings,
    shared: Arc<Shared>,
}

impl Acting {
    fn serve(self) {
        let (mut done, mut said) = (0, String::new());
        let mut bus = None;
        let mut tried = Tried::default();
        let mut within = LOOK;
        loop {
            {
                let wanted = lock(&self.shared.wanted);
                let is_old = |wanted: &mut (u64, Wanted)| wanted.0 == done;
                let wait = self.shared.changed.wait_timeout_while(wanted, within, is_old);
                done = wait.unwrap_or_else(PoisonError::into_inner).0.0;
            }
            // A lease is renewed in time.
            let shortest = lock(&self.shared.wanted).1.run.values().map(|(intent, _)| intent.lease).min();
            within = shortest.map_or(LOOK, |lease| LOOK.min(Duration::from_secs((lease / 4).max(1))));
            if let Err(e) = self.pass(&mut bus, &mut tried) {
                within = RETRY;
                note(&mut said, format!("agent: the node does not follow: {e}; it is tried again"));
            }
        }
    }

    /// Makes the changes that are missing.
    fn pass(&self, bus: &mut Option<Bus>, tried: &mut Tried) -> Result<(), Error> {
        let (number, wanted) = lock(&self.shared.wanted).clone();
        if wanted == Wanted::default() && !self.path("credential").exists() {
            self.shared.ended.store(number, Ordering::SeqCst);
            return Ok(());
        }
        if !self.path("credential").exists() {
            let credential = self.ask(bus, &Ask::Credential);
            match credential {
                Ok(credential) => self.member.put("credential", &credential)?,
                Err(e) => {
                    for (target, (intent, _)) in &wanted.run {
                        self.outcome(target, intent.rollout, Outcome::Failed(e.to_string()));
                    }
                    return Err(e);
                }
            }
        }
        let (credential, identity) = (self.path("credential"), self.path("node.key"));
        let session = Session { node: &self.settings.node, credential: &credential, identity: &identity };
        let installed = match session.list() {
            Ok(installed) => installed,
            Err(e) => {
                for (target, (intent, _)) in &wanted.run {
                    self.outcome(target, intent.rollout, outcome(Err(e.clone())));
                }
                // Nothing runs under a credential that the node refuses.
                if matches!(e, Fault::Denied(_)) {
                    self.shared.ended.store(number, Ordering::SeqCst);
                    return Ok(());
                }
                return Err(e.into());
            }
        };
        for (name, module) in &installed {
            if !wanted.run.contains_key(name) {
                match wanted.settled.contains_key(name) {
                    true => session.remove(name)?,
                    false if module.state == "running" => session.stop(name)?,
                    false => {}
                }
            }
        }
        self.shared.ended.store(number, Ordering::SeqCst);
        for (target, rollout) in &wanted.settled {
            self.outcome(target, *rollout, Outcome::Running);
        }
        for (target, (intent, until)) in &wanted.run {
            // Another intent, or a revocation, may have come meanwhile.
            if lock(&self.shared.wanted).1.run.get(target).is_none_or(|(latest, _)| latest != intent) {
                return Ok(());
            }
            let number = (intent.rollout, intent.counter);
            if tried.refused.get(target) == Some(&number) {
                continue;
            }
            let was_made = tried.made.get(target) == Some(&intent.action);
            let result = self.make(&session, (target, intent, *until), installed.get(target), was_made, bus);
            match &result {
                Ok(()) => drop(tried.made.insert(target.clone(), intent.action.clone())),
                Err(Fault::Denied(_)) => drop(tried.refused.insert(target.clone(), number)),
                Err(Fault::Failed(_)) => drop(tried.made.remove(target)),
            }
            self.outcome(target, intent.rollout, outcome(result));
        }
        Ok(())
    }

    /// Makes one module run as wanted.
    fn make(
        &self,
        session: &Session<'_>,
        (target, intent, until): (&str, &Intent, Option<u64>),
        installed: Option<&Installed>,
        was_made: bool,
        bus: &mut Option<Bus>,
    ) -> Result<(), Fault> {
        let Action::Run { module, parameters, .. } = &intent.action else { return Ok(()) };
        if !is_target(target) {
            let expected = "expected a letter and at most 31 more of a to z, 0 to 9, _ and -";
            return Err(Fault::Denied(format!("the target {target:?}: {expected}")));
        }
        let settings: BTreeMap<_, _> = parameters.iter().cloned().collect();
        let runs = installed.is_some_and(|installed| {
            // The node shows the beginning of a long value only.
            let is_set = was_made || installed.settings == settings;
            installed.state == "running" && installed.hash == *module && is_set
        });
        let left = until.map(|until| until.saturating_sub(now()));
        let ends = installed.and_then(|installed| installed.expires).unwrap_or(u64::MAX);
        // Renewed when half of it is over.
        let is_short = left
            .is_some_and(|left| ends.saturating_sub(now()) <= intent.lease / 2 && left > intent.lease / 2);
        if runs && !is_short {
            return Ok(());
        }
        // The node itself ends the module with its lease, also if the agent has ended by then.
        let leased = self.path("leased");
        let credential = match left {
            Some(seconds) => {
                node::narrow(session.credential, seconds.max(1), &leased)?;
                leased.as_path()
            }
            None => session.credential,
        };
        let session = Session { credential, ..*session };
        if runs {
            return session.renew(target);
        }
        let file = self.code(target, module, bus).map_err(|e| Fault::Failed(e.to_string()))?;
        let parameters = self.values(parameters).map_err(|e| Fault::Failed(e.to_string()))?;
        session.run(target, &file, &parameters, installed.is_some())
    }

    /// Returns parameters as `flame` reads them: there, a value that begins with @ names a file, and a fleet
    /// must not read files of the node.
    fn values(&self, parameters: &[(String, String)]) -> Result<Vec<(String, String)>, Error> {
        let mut all = parameters.to_vec();
        for (n, (_, value)) in all.iter_mut().enumerate().filter(|(_, (_, value))| value.starts_with('@')) {
            let name = format!("parameter-{n}");
            self.member.put(&name, value.as_bytes())?;
            *value = format!("@{}", self.path(&name).display());
        }
        Ok(all)
    }

    /// Returns the file of a module, which is fetched if it is not there.
    fn code(&self, target: &str, module: &str, bus: &mut Option<Bus>) -> Result<PathBuf, Error> {
        let name = format!("{target}.wasm");
        let path = self.path(&name);
        let is_it = |bytes: &[u8]| hex(&Sha256::digest(bytes)) == module;
        if std::fs::read(&path).is_ok_and(|bytes| is_it(&bytes)) {
            return Ok(path);
        }
        let mut bytes = Vec::new();
        loop {
            let part = self.ask(bus, &Ask::Module { hash: module.to_owned(), offset: bytes.len() as u64 })?;
            bytes.extend_from_slice(&part);
            if part.len() < PART || bytes.len() > MAX_MODULE {
                break;
            }
        }
        // The intent is signed, and the way of the code is not.
        if !is_it(&bytes) {
            return Err(format!("{} bytes came that are not the module {module}", bytes.len()).into());
        }
        let signatures = self.ask(bus, &Ask::Signatures { hash: module.to_owned() })?;
        self.member.put(&name, &bytes)?;
        match signatures.is_empty() {
            true => self.member.forget(&format!("{name}.sig")),
            false => self.member.put(&format!("{name}.sig"), &signatures)?,
        }
        Ok(path)
    }

    fn ask(&self, bus: &mut Option<Bus>, request: &Ask) -> Result<Vec<u8>, Error> {
        let subject = Subjects::of(&self.member.known.name).ask;
        let connected = match bus.take() {
            Some(bus) => bus,
            None => Bus::connect(&self.member.access())?,
        };
        let connected = bus.insert(connected);
        connected.tend()?;
        ask(connected, &subject, request.to_bytes(), ANSWER)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.member.path.join(name)
    }

    fn outcome(&self, target: &str, rollout: u64, outcome: Outcome) {
        lock(&self.shared.outcomes).insert(target.to_owned(), Followed { rollout, outcome });
    }
}

fn outcome(result: Result<(), Fault>) -> Outcome {
    match result {
        Ok(()) => Outcome::Running,
        Err(Fault::Denied(reason)) => Outcome::Refused(reason),
        Err(Fault::Failed(reason)) => Outcome::Failed(reason),
    }
}
