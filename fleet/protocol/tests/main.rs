//! Tests of the protocols as types.

extern crate flame_replay as libfuzzer_sys;

mod agents;
mod conditions;
mod enrolments;
mod parsers;
mod rollouts;
mod subjects;

use flame_fleet_protocol::{
    Action, Agent, Alone, Beacon, Clock, Delegated, Delegation, Intent, Label, Member, Revocations, Secret,
    Statement, Stored,
};

/// The time at which tests begin, in seconds since 1970.
const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

fn secret(n: u8) -> Secret {
    Secret::new(&[n; 32])
}

/// A fleet with the key of a number, delegated for 30 days.
struct Fleet {
    key: Secret,
    delegated: Delegated,
}

impl Fleet {
    fn new(key: u8, number: u64) -> Self {
        let key = secret(key);
        let hex = flame_fleet_protocol::signed::hex(&key.public().0);
        let delegation = Delegation { fleet: "f".to_owned(), key: hex, number, expires: NOW + 30 * DAY };
        Self { delegated: secret(1).delegate(&delegation), key }
    }

    fn intent(&self, intent: &Intent) -> Vec<u8> {
        self.key.state(&self.delegated, &Statement::Intent(intent.clone()))
    }

    fn revoke(&self, number: u64, revoked: &[&str], delegations: u64) -> Vec<u8> {
        let revoked = revoked.iter().map(|&id| id.to_owned()).collect();
        let list = Revocations { number, revoked, delegations };
        self.key.state(&self.delegated, &Statement::Revocations(list))
    }

    fn beacon(&self, time: u64, revocations: u64, answers: &[u64]) -> Vec<u8> {
        let beacon = Beacon { time, revocations, answers: answers.to_vec() };
        self.key.state(&self.delegated, &Statement::Beacon(beacon))
    }
}

/// The intent to run module `m` on all nodes, with a lease of 60 s.
fn intent(counter: u64) -> Intent {
    Intent {
        target: "t".to_owned(),
        counter,
        expires: NOW + DAY,
        lease: 60,
        revocations: 0,
        r#where: String::new(),
        rollout: 1,
        reach: u64::MAX,
        action: Action::Run { module: "m".to_owned(), credential: vec!["c".to_owned()], parameters: vec![] },
    }
}

fn clock(seconds: u64) -> Clock {
    Clock { wall: NOW + seconds, steady: seconds }
}

fn member(alone: Alone) -> Member {
    let labels = [("site".to_owned(), Label::Text("penn".to_owned()))].into();
    Member { node: "n".to_owned(), fleet: "f".to_owned(), root: secret(1).public(), labels, alone }
}

/// A node that asked with the number 7 at its start.
fn agent() -> Agent {
    Agent::new(member(Alone::Stop), Stored::default(), 7, clock(0))
}
