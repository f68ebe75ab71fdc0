//! The operator's service: signs what the state states, sends it to nodes, and takes their reports.

use crate::folder::{MAX_MODULE, MAX_TEXT, Place};
use crate::state::State;
use crate::users::IMPORTED;
use crate::{Error, note, now};
use flame_fleet_nats::{Bus, Log as _, Nats, Note};
use flame_fleet_protocol::enrolment::Standing;
use flame_fleet_protocol::rollout::{Outcome, order};
use flame_fleet_protocol::signed::unhex;
use flame_fleet_protocol::talk::{
    Application, Ask, Counters, FROM_NODES, LOOK, Listed, MAX_LISTED, MAX_TALK, PART, Report, Subjects,
    TO_ALL, enrolment, read_reply, reply,
};
use flame_fleet_protocol::{
    Age, Beacon, Delegated, Delegation, Ed25519, Key, Revocations, Secret, Statement, Subject,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait for a message, after which changes of the state are looked for.
const EACH: Duration = Duration::from_millis(50);
/// The time between two beacons without a request, and between two lines of the status.
const BEACON: Duration = Duration::from_secs(1);
/// The most numbers that a beacon answers.
const ANSWERS: usize = 1000;
/// The most labels of a node, and the most characters of a text of it.
const MAX_LABELS: usize = 64;
const MAX_WORDS: usize = 1000;
/// The seconds for which modules are listed each second after a command has asked for it ([`watch`]).
const WATCHED: i64 = 10;
/// The longest wait for the server to read its configuration.
const RELOAD: Duration = Duration::from_secs(2);

/// The nodes as the service has heard of them, the file `status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// When it was written, in seconds since 1970.
    pub time: u64,
    pub is_connected: bool,
    pub nodes: BTreeMap<String, Seen>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// The last report, in seconds since 1970.
    pub at: u64,
    /// The number of its list of revocations, and whether all of it is in force there.
    pub revoked: u64,
    pub has_revoked: bool,
    pub refused: u64,
    pub reason: Option<String>,
    /// Its modules as it listed them last, while a view is open.
    #[serde(default)]
    pub listed: Option<Listed>,
}

/// A signed intent of a target.
struct Signed {
    rollout: u64,
    reach: u64,
    expires: u64,
    age: Age,
    bytes: Vec<u8>,
}

struct Service {
    place: Place,
    secret: Secret,
    delegated: Delegated,
    delegation: Delegation,
    state: State,
    /// The file of the state that was read last.
    seen: Option<(u64, i64)>,
    intents: BTreeMap<String, Signed>,
    revocations: (Age, Vec<u8>),
    answers: Vec<u64>,
    /// The SHA-256 of the server's configuration, and the SHA-256 that a server has read, with the number of
    /// the connection to it.
    users: [u8; 32],
    served: Option<(u64, [u8; 32])>,
    status: Status,
    bus: Bus,
    system: Bus,
    streams: Option<Nats>,
    said: String,
}

/// Serves until the process is ended.
pub fn run(path: &Path) -> Result<(), Error> {
    let place = Place::open(path)?;
    let (delegated, delegation) = place.delegation()?;
    let (secret, state) = (place.secret("fleet.key")?, place.state()?);
    let mut bus = Bus::connect(&place.access("control")?)?;
    bus.subscribe(&FROM_NODES)?;
    let system = Bus::connect(&place.access("system")?)?;
    let mut service = Service {
        place,
        secret,
        delegated,
        delegation,
        state,
        seen: None,
        intents: BTreeMap::new(),
        revocations: (Age::default(), Vec::new()),
        answers: Vec::new(),
        users: [0; 32],
        served: None,
        status: Status::default(),
        bus,
        system,
        streams: None,
        said: String::new(),
    };
    let mut beaten: Option<Instant> = None;
    loop {
        if let Err(e) = service.pass(&mut beaten) {
            note(&mut service.said, format!("control: {e}; it is tried again"));
            std::thread::sleep(EACH);
        }
    }
}

impl Service {
    fn pass(&mut self, beaten: &mut Option<Instant>) -> Result<(), Error> {
        self.bus.tend()?;
        self.system.tend()?;
        self.look()?;
        self.reload();
        let mut reports = BTreeMap::new();
        let mut within = EACH;
        while let Some(note) = self.bus.next(within) {
            within = Duration::ZERO;
            self.take(note, &mut reports)?;
        }
        self.report(reports)?;
        let mut polled = self.state.clone();
        if polled.poll(now()) {
            self.change(|state| {
                state.poll(now());
                Ok(())
            })?;
        }
        let is_due = beaten.is_none_or(|at| at.elapsed() >= BEACON);
        if is_due || !self.answers.is_empty() {
            self.beat();
        }
        if is_due {
            *beaten = Some(Instant::now());
            match self.is_watched() {
                true => self.bus.publish(LOOK, Vec::new()),
                false => self.status.nodes.values_mut().for_each(|seen| seen.listed = None),
            }
            self.show()?;
        }
        Ok(())
    }

    fn is_watched(&self) -> bool {
        let of = std::fs::metadata(self.place.path.join("watched"));
        of.is_ok_and(|of| i64::try_from(now()).is_ok_and(|now| now - of.mtime() <= WATCHED))
    }

    /// Writes the status, for commands.
    fn show(&mut self) -> Result<(), Error> {
        self.status.time = now();
        self.status.is_connected = self.bus.is_connected();
        self.place.put("status", &serde_json::to_vec(&self.status)?)
    }

    /// Reads the state again if a command has changed it.
    fn look(&mut self) -> Result<(), Error> {
        let of = std::fs::metadata(self.place.path.join("state"))?;
        let seen = Some((of.ino(), of.mtime_nsec() ^ of.mtime()));
        if self.seen == seen {
            return Ok(());
        }
        let state = self.place.state()?;
        (self.delegated, self.delegation) = self.place.delegation()?;
        self.secret = self.place.secret("fleet.key")?;
        self.adopt(state)?;
        self.seen = seen;
        Ok(())
    }

    /// Changes the state.
    fn change<T>(&mut self, change: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let (state, result) = self.place.change(change)?;
        self.adopt(state)?;
        Ok(result)
    }

    /// Signs and sends what is new in a state, and lets the server know of its users.
    fn adopt(&mut self, state: State) -> Result<(), Error> {
        self.state = state;
        let number = self.delegation.number;
        let age = Age { delegation: number, rollout: 0, counter: self.state.revocations.number };
        if self.revocations.0 != age {
            let list: Revocations = self.state.revocations.clone();
            self.revocations = (age, self.secret.state(&self.delegated, &Statement::Revocations(list)));
            // A node acts on a list at once.
            self.bus.publish(TO_ALL, self.revocations.1.clone());
            self.beat();
        }
        for (target, wish) in &self.state.targets {
            let intent = self.state.intent(target, wish);
            let age = Age { delegation: number, rollout: intent.rollout, counter: intent.counter };
            if self.intents.get(target).is_some_and(|signed| signed.age == age) {
                continue;
            }
            let (rollout, reach, expires) = (intent.rollout, intent.reach, intent.expires);
            let bytes = self.secret.state(&self.delegated, &Statement::Intent(intent));
            self.bus.publish(TO_ALL, bytes.clone());
            self.intents.insert(target.clone(), Signed { rollout, reach, expires, age, bytes });
        }
        self.users = self.place.configure(&self.state)?;
        Ok(())
    }

    /// Has the server read its configuration, unless the server of this connection has read it.
    fn reload(&mut self) {
        let wanted = Some((self.system.connects(), self.users));
        if !self.system.is_connected() || self.served == wanted {
            return;
        }
        let subject = format!("$SYS.REQ.SERVER.{}.RELOAD", self.system.server());
        let read = || {
            let reply = self.system.request(&subject, Vec::new(), RELOAD)?;
            let text = String::from_utf8_lossy(&reply).into_owned();
            if text.contains("\"error\"") { Err(Error::from(text)) } else { Ok(()) }
        };
        // nats-server (2.15.1) adds a new account with the first one, and its imports with the second one.
        let read = read().and_then(|()| read());
        if read.is_ok() {
            self.served = wanted;
        }
        if let Err(e) = read {
            let remedy = "have it read its configuration (nats-server --signal reload)";
            note(&mut self.said, format!("control: the server did not take its users, {e}: {remedy}"));
        }
    }

    fn beat(&mut self) {
        let rest = self.answers.split_off(self.answers.len().min(ANSWERS));
        let answers = std::mem::replace(&mut self.answers, rest);
        let beacon = Beacon { time: now(), revocations: self.state.revocations.number, answers };
        self.bus.publish(TO_ALL, self.secret.state(&self.delegated, &Statement::Beacon(beacon)));
    }

    fn take(&mut self, note: Note, reports: &mut BTreeMap<String, Report>) -> Result<(), Error> {
        if note.bytes.len() > MAX_TALK {
            return Ok(());
        }
        let [_, kind, from] = note.subject.split('.').collect::<Vec<_>>()[..] else { return Ok(()) };
        let (content, inbox) = match kind {
            "from" => {
                // The server lets only this node use the subject. What is no report is of another release.
                if let Ok(report) = serde_json::from_slice(&note.bytes) {
                    let mut report = bounded(report);
                    let before = reports.remove(from);
                    report.listed = report.listed.or_else(|| before?.listed);
                    reports.insert(from.to_owned(), report);
                }
                return Ok(());
            }
            "ask" => (self.answer(from, &note.bytes), IMPORTED.to_owned()),
            "enrol" => (self.enrol(from, &note.bytes), enrolment(from).1),
            _ => return Ok(()),
        };
        // Or somebody would have us publish on a subject of ours.
        if let Some(to) =
            note.reply.filter(|to| to.strip_prefix(&inbox).is_some_and(|rest| rest.starts_with('.')))
        {
            self.bus.publish(&to, reply(content.map_err(|e| e.to_string())));
        }
        Ok(())
    }

    fn enrol(&mut self, id: &str, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let Application { token, name, key, signature } = serde_json::from_slice(bytes)?;
        let token =
            unhex(&token).filter(|token| crate::token::id(token) == id).ok_or("the token is another one")?;
        let key = Key::parse(&key).ok_or("the key: expected ed25519/ and 64 digits")?;
        let half = |at: usize| unhex(signature.get(at..at + 64)?);
        let (Some(first), Some(second), 128) = (half(0), half(64), signature.len()) else {
            return Err("the signature: expected 128 hexadecimal digits".into());
        };
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&first);
        signature[32..].copy_from_slice(&second);
        let fleet = self.place.fleet.name.clone();
        let standing = self.change(|state| {
            let members = &mut state.members;
            let standing = members.apply(&token, &fleet, &name, &key, &signature, now(), &Ed25519)?;
            Ok(standing)
        })?;
        Ok(match standing {
            Standing::Applied(_) => b"applied".to_vec(),
            Standing::Member(_) => b"member".to_vec(),
            Standing::Gone(_) => b"gone".to_vec(),
        })
    }

    /// Answers a request of a member.
    fn answer(&mut self, node: &str, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let member = self.state.members.member(node).ok_or("the node is no member")?;
        let file = |hash: &str| unhex(hash).map(|_| hash.to_owned()).ok_or("the hash: expected 64 digits");
        match serde_json::from_slice(bytes)? {
            Ask::Module { hash, offset } => {
                let name = format!("module.{}", file(&hash)?);
                let module = self.place.read(&name, MAX_MODULE)?.ok_or("the fleet has no such module")?;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(module.len());
                Ok(module[from..module.len().min(from.saturating_add(PART))].to_vec())
            }
            Ask::Signatures { hash } => {
                Ok(self.place.read(&format!("signatures.{}", file(&hash)?), MAX_TEXT)?.unwrap_or_default())
            }
            Ask::Credential => {
                let credential = self.place.read(&format!("credential.{node}"), MAX_TEXT)?;
                credential.ok_or_else(|| {
                    let remedy = format!("flame fleet approve {node} {member} --root FILE");
                    format!("the node has no credential of the fleet: the operator gives it one ({remedy})")
                        .into()
                })
            }
            Ask::Stream { principal, bytes } => {
                let subject = Subject::new(node, &principal, "", "")?;
                if self.streams.is_none() {
                    self.streams = Some(Nats::connect_as(&self.place.access("control")?)?);
                }
                let opened = self.streams.as_mut().map_or(Ok(()), |streams| streams.open(&subject, bytes));
                if opened.is_err() {
                    self.streams = None;
                }
                opened?;
                Ok(Vec::new())
            }
            Ask::Leave => {
                self.change(|state| Ok(state.members.end(node, &member)?))?;
                Ok(Vec::new())
            }
        }
    }

    /// Takes reports, and sends each node the statements that are missing there.
    fn report(&mut self, reports: BTreeMap<String, Report>) -> Result<(), Error> {
        let (mut news, mut is_new) = (false, false);
        for (node, report) in &reports {
            self.answers.extend(report.asks);
            let Report { revoked, has_revoked, refused, reason, listed, .. } = report.clone();
            let before = self.status.nodes.remove(node);
            let listed = listed.or_else(|| before.as_ref()?.listed.clone());
            let seen = Seen { at: now(), revoked: revoked.counter, has_revoked, refused, reason, listed };
            self.status.nodes.insert(node.clone(), seen.clone());
            is_new |= before.is_none_or(|before| {
                (before.revoked, before.has_revoked) != (seen.revoked, seen.has_revoked)
            });
            let to = Subjects::of(node).to;
            if report.revoked < self.revocations.0 {
                self.bus.publish(&to, self.revocations.1.clone());
            }
            for (target, signed) in &self.intents {
                let has = report.have.get(target).is_some_and(|age| *age >= signed.age);
                if !has && order(signed.rollout, node) <= signed.reach && now() < signed.expires {
                    self.bus.publish(&to, signed.bytes.clone());
                }
            }
            news |= self.is_news(node, report);
        }
        if is_new {
            self.show()?;
        }
        if news {
            self.change(|state| {
                for (node, report) in reports {
                    state.labels.insert(node.clone(), report.labels);
                    for (target, followed) in report.outcomes {
                        if let Some(wish) = state.targets.get_mut(&target) {
                            wish.rollout.reported(followed.rollout, &node, followed.outcome);
                        }
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns whether a report changes the state.
    fn is_news(&self, node: &str, report: &Report) -> bool {
        self.state.labels.get(node) != Some(&report.labels)
            || report.outcomes.iter().any(|(target, followed)| {
                self.state.targets.get(target).is_some_and(|wish| {
                    let rollout = &wish.rollout;
                    rollout.id() == followed.rollout
                        && rollout.outcomes().get(node) != Some(&followed.outcome)
                })
            })
    }
}

/// Returns a report with what is kept and printed of it: texts of a node may be long, and a terminal would
/// obey some.
fn bounded(mut report: Report) -> Report {
    let plain = |text: &str| -> String {
        text.chars().take(MAX_WORDS).map(|c| if c.is_control() { ' ' } else { c }).collect()
    };
    let labels = report.labels.iter().take(MAX_LABELS);
    report.labels = labels.map(|(name, value)| (plain(name), plain(value))).collect();
    report.reason = report.reason.as_deref().map(plain);
    if let Some(listed) = &mut report.listed {
        listed.fault = listed.fault.as_deref().map(plain);
        let modules = std::mem::take(&mut listed.modules).into_iter().take(MAX_LISTED);
        listed.modules = modules
            .map(|(name, of)| {
                let (state, reason) = (plain(&of.state), of.reason.as_deref().map(plain));
                (plain(&name), Counters { state, reason, ..of })
            })
            .collect();
    }
    for followed in report.outcomes.values_mut() {
        if let Outcome::Refused(reason) | Outcome::Failed(reason) = &mut followed.outcome {
            *reason = plain(reason);
        }
    }
    report
}

/// Reads the service's status, and returns it if it was written within the last seconds.
pub fn status(place: &Place) -> Option<Status> {
    let bytes = place.read("status", 64 << 20).ok()??;
    let status: Status = serde_json::from_slice(&bytes).ok()?;
    (now() <= status.time.saturating_add(5)).then_some(status)
}

/// Has the service ask nodes for their modules, for the next seconds.
pub fn watch(place: &Place) -> Result<(), Error> {
    place.put("watched", b"")
}

/// Sends a request to the service and returns the content of its reply.
pub fn ask(bus: &Bus, subject: &str, ask: Vec<u8>, within: Duration) -> Result<Vec<u8>, Error> {
    let bytes = bus.request(subject, ask, within)?;
    Ok(read_reply(&bytes)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_fleet_protocol::talk::Followed;

    #[test]
    fn texts_of_nodes_are_bounded_and_plain() {
        let bad = format!("\x1b[2J{}", "x".repeat(5000));
        let labels = (0..100).map(|n| (format!("l{n}"), bad.clone())).collect();
        let followed = Followed { rollout: 1, outcome: Outcome::Failed(bad.clone()) };
        let outcomes = [("t".to_owned(), followed)].into();
        let counters = Counters { state: bad.clone(), reason: Some(bad.clone()), ..Counters::default() };
        let modules = (0..1000).map(|n| (format!("{n}{bad}"), counters.clone())).collect();
        let listed = Some(Listed { fault: Some(bad.clone()), modules, ms: 1 });
        let report = bounded(Report { labels, outcomes, reason: Some(bad), listed, ..Report::default() });
        let is_good = |text: &String| text.len() == MAX_WORDS && text.starts_with(" [2Jx");
        assert!(report.labels.len() == MAX_LABELS && report.labels.values().all(is_good));
        let listed = report.listed.unwrap();
        assert_eq!(listed.modules.len(), MAX_LISTED);
        assert!(listed.fault.as_ref().is_some_and(is_good));
        for (name, of) in &listed.modules {
            assert!(name.len() == MAX_WORDS && name.contains(" [2Jx"), "{name}");
            assert!(is_good(&of.state) && of.reason.as_ref().is_some_and(is_good));
        }
        assert!(report.reason.is_some_and(|reason| is_good(&reason)));
        let Outcome::Failed(reason) = &report.outcomes["t"].outcome else { panic!("{:?}", report.outcomes) };
        assert!(is_good(reason));
    }
}
