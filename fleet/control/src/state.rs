//! What the operator wishes and knows of the fleet. It is one file, which each change replaces.

use flame_fleet_protocol::enrolment::Enrolment;
use flame_fleet_protocol::rollout::Rollout;
use flame_fleet_protocol::{Action, Intent, Key, Revocations};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of the file's form.
pub const FORM: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub form: u32,
    /// The number of the last change.
    pub change: u64,
    /// The last counter of an intent, and the last number of a rollout.
    pub counter: u64,
    pub rollout: u64,
    pub revocations: Revocations,
    pub targets: BTreeMap<String, Wish>,
    pub members: Enrolment,
    /// The keys of tokens that may be used on the server.
    pub applicants: Vec<Applicant>,
    /// The labels that nodes reported.
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
}

/// A token that was printed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applicant {
    pub id: String,
    pub key: Key,
    pub expires: u64,
}

/// The latest intent of a target, and how far it has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    pub counter: u64,
    pub expires: u64,
    pub lease: u64,
    pub r#where: String,
    pub action: Action,
    pub rollout: Rollout,
}

impl State {
    pub fn new() -> Self {
        let revocations = Revocations { number: 1, revoked: Vec::new(), delegations: 1 };
        Self {
            form: FORM,
            change: 0,
            counter: 0,
            rollout: 0,
            revocations,
            targets: BTreeMap::new(),
            members: Enrolment::default(),
            applicants: Vec::new(),
            labels: BTreeMap::new(),
        }
    }

    /// Returns the intent of a target as it is to be signed.
    pub fn intent(&self, target: &str, wish: &Wish) -> Intent {
        Intent {
            target: target.to_owned(),
            counter: wish.counter,
            expires: wish.expires,
            lease: wish.lease,
            revocations: self.revocations.number,
            r#where: wish.r#where.clone(),
            rollout: wish.rollout.id(),
            reach: wish.rollout.reach(),
            action: wish.action.clone(),
        }
    }

    /// Advances the rollouts. Returns whether anything changed.
    pub fn poll(&mut self, now: u64) -> bool {
        let mut changed = false;
        for wish in self.targets.values_mut() {
            let before = (wish.rollout.progress(), wish.rollout.reach());
            wish.rollout.poll(now);
            if (wish.rollout.progress(), wish.rollout.reach()) != before {
                self.counter += 1;
                wish.counter = self.counter;
                changed = true;
            }
        }
        changed
    }
}
