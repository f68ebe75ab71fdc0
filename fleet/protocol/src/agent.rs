//! The node's side of the fleet's control: which modules of the fleet may run now.

use crate::condition::{Condition, Labels};
use crate::rollout::order;
use crate::signed::{
    Action, Beacon, Delegation, Demands, Intent, Key, Revocations, SignedError, Statement, Verify,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most targets that a node follows, and the most revocations.
pub const MAX_TARGETS: usize = 4096;
pub const MAX_REVOKED: usize = 65_536;
/// The longest time in seconds for which an intent may be valid. After it, a target that was stopped is
/// forgotten.
pub const MAX_VALID: u64 = 400 * 86_400;

/// The clocks of a node in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Since 1970, as the machine states it. It may be wrong, and go back.
    pub wall: u64,
    /// Since the start of the machine, or any other moment. It never goes back, and counts while the machine
    /// sleeps.
    pub steady: u64,
}

/// What a node does with the fleet's modules while it has no contact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alone {
    /// Stops each after its lease, and starts none.
    #[default]
    Stop,
    /// Runs them until they expire or are revoked: the node's own policy vouches for them.
    Keep,
}

/// The identity of a node in its fleet.
#[derive(Clone, Debug)]
pub struct Member {
    pub node: String,
    pub fleet: String,
    pub root: Key,
    pub labels: Labels,
    pub alone: Alone,
}

/// What a node keeps over restarts. It is stored before [`Agent::wanted`] is acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// The latest time that the fleet has signed.
    pub time: u64,
    /// The highest number of a delegation.
    pub delegation: u64,
    pub revocations: Revocations,
    /// The number of the delegation under which they were signed.
    pub revocations_by: u64,
    /// The latest list that a beacon stated. Before the node has it, it runs nothing of the fleet's.
    pub demanded: Age,
    pub targets: BTreeMap<String, Target>,
}

/// The latest intent of a target that reaches the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub intent: Intent,
    pub delegation: u64,
}

/// The age of a statement. No number of a key that was lost keeps out the statements of the next delegation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Age {
    pub delegation: u64,
    /// The number of the rollout, of an intent.
    pub rollout: u64,
    pub counter: u64,
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.delegation, self.rollout, self.counter)
    }
}

/// The reason why a statement changes nothing. It is data: it goes to the fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Signed(#[from] SignedError),
    #[error(
        "the {what} has number {found} (delegation.rollout.counter), expected above {known}: it was replayed, \
         or came late"
    )]
    Old { what: &'static str, found: Age, known: Age },
    #[error("the beacon of {found} (seconds since 1970) answers nothing, expected one later than {known}")]
    Silent { found: u64, known: u64 },
    #[error("the {what} states {found}, expected at most {most}, which is in its delegation: it is forged")]
    Beyond { what: &'static str, found: u64, most: u64 },
    #[error(
        "the intent expired at {expires}, and it is {now} (seconds since 1970): have the fleet sign again"
    )]
    Expired { expires: u64, now: u64 },
    #[error("the intent is valid until {expires}, more than 400 days: state an earlier time")]
    Endless { expires: u64 },
    #[error("the condition: {0}")]
    Condition(#[from] crate::ConditionError),
    #[error("{found} {what}, expected at most {most}: remove some")]
    Many { what: &'static str, found: usize, most: usize },
}

/// Contact with the fleet since the start of the process.
#[derive(Clone, Copy, Debug)]
struct Contact {
    /// The time of the latest beacon.
    time: u64,
    /// The node's steady clock at that time, at the earliest.
    steady: u64,
}

/// Decides which modules of the fleet run on a node.
///
/// A node has *contact* once a beacon answers a random number that it made after its start, which no old
/// beacon does. Later beacons renew it. The time that counts is the latest of the machine's clock and the
/// signed times, so a clock that is set back makes nothing valid again; a clock that is ahead ends things
/// early. Leases are measured by the steady clock.
#[derive(Clone, Debug)]
pub struct Agent {
    member: Member,
    stored: Stored,
    /// The random number that no beacon has answered, and the steady clock when it was made.
    asked: Option<(u64, u64)>,
    contact: Option<Contact>,
}

impl Agent {
    /// Begins with what is stored. `random` is made now, and is asked for contact with.
    pub fn new(member: Member, stored: Stored, random: u64, clock: Clock) -> Self {
        Self { member, stored, asked: Some((random, clock.steady)), contact: None }
    }

    /// Continues with another memory, as a simulation of faults does.
    pub fn restored(of: &Self, stored: Stored) -> Self {
        Self { stored, ..of.clone() }
    }

    /// Asks for contact with a random number that is made now: at each connection, and when
    /// [`Agent::should_ask`] says so.
    pub fn ask(&mut self, random: u64, clock: Clock) {
        self.asked = Some((random, clock.steady));
    }

    /// Returns whether half of the shortest lease is over since the latest beacon was signed, as far as the
    /// node can tell. It knows more after it has asked: the one before may have been answered late, and the
    /// clocks of fleet and node run apart.
    pub fn should_ask(&self, clock: Clock) -> bool {
        let shortest = self.stored.targets.values().map(|target| target.intent.lease).min();
        let is_old = |contact: Contact| {
            shortest.is_some_and(|lease| clock.steady.saturating_sub(contact.steady) >= lease / 2)
        };
        self.asked.is_none() && self.contact.is_some_and(is_old)
    }

    /// Returns the number to ask for contact with, until a beacon answers it.
    pub fn asks(&self) -> Option<u64> {
        self.asked.map(|(random, _)| random)
    }

    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Returns the time that counts, in seconds since 1970.
    pub fn now(&self, clock: Clock) -> u64 {
        let since =
            |contact: Contact| contact.time.saturating_add(clock.steady.saturating_sub(contact.steady));
        clock.wall.max(self.stored.time).max(self.contact.map_or(0, since))
    }

    /// Takes a signed statement. Its changes must be stored before they are acted on.
    ///
    /// # Errors
    ///
    /// Returns the reason why it changes nothing.
    pub fn receive(&mut self, bytes: &[u8], clock: Clock, verify: &impl Verify) -> Result<(), Refusal> {
        let demands = Demands {
            root: &self.member.root,
            fleet: &self.member.fleet,
            floor: self.stored.delegation.max(self.stored.revocations.delegations),
            now: self.now(clock),
        };
        let verified = demands.read(bytes, verify)?;
        let delegation = verified.delegation;
        match verified.statement {
            Statement::Intent(intent) => self.intend(intent, &delegation, clock)?,
            Statement::Revocations(revocations) => self.revoke(revocations, &delegation)?,
            Statement::Beacon(beacon) => self.hear(&beacon, &delegation, clock)?,
        }
        self.stored.delegation = self.stored.delegation.max(delegation.number);
        Ok(())
    }

    fn intend(&mut self, intent: Intent, by: &Delegation, clock: Clock) -> Result<(), Refusal> {
        let now = self.now(clock);
        let known = self.stored.targets.get(&intent.target).map(Target::age);
        let target = Target { intent, delegation: by.number };
        let (intent, found) = (&target.intent, target.age());
        if let Some(known) = known.filter(|known| found <= *known) {
            return Err(Refusal::Old { what: "intent", found, known });
        }
        let expires = intent.expires;
        // An expired intent ends the one before, as if the node had followed it in time.
        if expires <= now && known.is_none() {
            return Err(Refusal::Expired { expires, now });
        }
        if expires > now.saturating_add(MAX_VALID) {
            return Err(Refusal::Endless { expires });
        }
        Condition::parse(&intent.r#where)?;
        if order(intent.rollout, &self.member.node) > intent.reach {
            return Ok(());
        }
        // No intent that was valid together with an expired one can be replayed once this one has expired as
        // long ago as the longest can be valid.
        self.stored.targets.retain(|_, target| target.intent.expires.saturating_add(MAX_VALID) > now);
        let found = self.stored.targets.len() + 1;
        if known.is_none() && found > MAX_TARGETS {
            return Err(Refusal::Many { what: "targets", found, most: MAX_TARGETS });
        }
        self.stored.targets.insert(intent.target.clone(), target);
        Ok(())
    }

    fn revoke(&mut self, new: Revocations, by: &Delegation) -> Result<(), Refusal> {
        let known = self.stored.revoked();
        let found = Age { delegation: by.number, rollout: 0, counter: new.number };
        if found <= known {
            return Err(Refusal::Old { what: "list of revocations", found, known });
        }
        if new.delegations > by.number {
            let (found, most) = (new.delegations, by.number);
            return Err(Refusal::Beyond { what: "lowest delegation of a list of revocations", found, most });
        }
        if new.revoked.len() > MAX_REVOKED {
            let found = new.revoked.len();
            return Err(Refusal::Many { what: "revocations", found, most: MAX_REVOKED });
        }
        // Intents of delegations that ended are refused by their numbers.
        self.stored.targets.retain(|_, target| target.delegation >= new.delegations);
        (self.stored.revocations, self.stored.revocations_by) = (new, by.number);
        Ok(())
    }

    fn hear(&mut self, beacon: &Beacon, by: &Delegation, clock: Clock) -> Result<(), Refusal> {
        let found = beacon.time;
        // Or a key that was lost would move the time of all nodes for ever.
        if found > by.expires {
            return Err(Refusal::Beyond { what: "time of the beacon", found, most: by.expires });
        }
        // It was signed after the number was made.
        let answered = self.asked.filter(|(random, _)| beacon.answers.contains(random));
        let later = self.contact.filter(|contact| found > contact.time);
        let since = |contact: Contact| contact.steady.saturating_add(found - contact.time).min(clock.steady);
        let Some(steady) = answered.map(|(_, steady)| steady).max(later.map(since)) else {
            return Err(Refusal::Silent { found, known: self.contact.map_or(found, |c| c.time) });
        };
        if answered.is_some() {
            self.asked = None;
        }
        let demanded = Age { delegation: by.number, rollout: 0, counter: beacon.revocations };
        self.stored.demanded = self.stored.demanded.max(demanded);
        self.contact = Some(Contact { time: found, steady });
        self.stored.time = self.stored.time.max(found);
        Ok(())
    }

    /// Returns the intents to run now, by target. All else that the fleet installed must not run.
    pub fn wanted(&self, clock: Clock) -> BTreeMap<&str, &Intent> {
        self.targets(clock, Wish::Run)
    }

    /// Returns the seconds for which a lease of this length has not ended, or nothing while the node runs
    /// modules without contact, too.
    pub fn left(&self, lease: u64, clock: Clock) -> Option<u64> {
        let left = |contact: Contact| contact.steady.saturating_add(lease).saturating_sub(clock.steady);
        (self.member.alone == Alone::Stop).then(|| self.contact.map_or(0, left))
    }

    /// Returns the intents by which this node runs nothing, whatever it hears of contact: those that stop,
    /// have expired, are revoked, or whose condition it does not meet. It reports that it follows them. An
    /// intent that waits for contact or for a list is in neither map, and nothing is reported about it.
    pub fn settled(&self, clock: Clock) -> BTreeMap<&str, &Intent> {
        self.targets(clock, Wish::Nothing)
    }

    fn targets(&self, clock: Clock, wish: Wish) -> BTreeMap<&str, &Intent> {
        let revoked = self.stored.revocations.revoked.iter().map(String::as_str).collect();
        let targets = self.stored.targets.iter();
        let meant = targets.filter(|(_, target)| self.wish(target, &revoked, clock) == wish);
        meant.map(|(name, target)| (name.as_str(), &target.intent)).collect()
    }

    fn wish(&self, target: &Target, revoked: &BTreeSet<&str>, clock: Clock) -> Wish {
        let intent = &target.intent;
        let Action::Run { module, credential, .. } = &intent.action else { return Wish::Nothing };
        let is_revoked = |id: &String| revoked.contains(id.as_str());
        let is_leased = |contact: Contact| clock.steady < contact.steady.saturating_add(intent.lease);
        let has_list = target.revocations().max(self.stored.demanded) <= self.stored.revoked();
        let is_meant = self.now(clock) < intent.expires
            && !is_revoked(module)
            && !credential.iter().any(is_revoked)
            && Condition::parse(&intent.r#where).is_ok_and(|c| c.holds(&self.member.labels));
        match is_meant {
            false => Wish::Nothing,
            true if !has_list => Wish::Wait,
            true if self.member.alone == Alone::Keep || self.contact.is_some_and(is_leased) => Wish::Run,
            true => Wish::Wait,
        }
    }
}

/// What an intent means for a node at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Run,
    Wait,
    Nothing,
}

impl Stored {
    /// Returns the age of the revocations.
    pub fn revoked(&self) -> Age {
        Age { delegation: self.revocations_by, rollout: 0, counter: self.revocations.number }
    }
}

impl Target {
    /// Returns the age of the intent.
    pub fn age(&self) -> Age {
        let Intent { rollout, counter, .. } = self.intent;
        Age { delegation: self.delegation, rollout, counter }
    }

    /// Returns the age of the revocations that it demands.
    fn revocations(&self) -> Age {
        Age { delegation: self.delegation, rollout: 0, counter: self.intent.revocations }
    }
}
