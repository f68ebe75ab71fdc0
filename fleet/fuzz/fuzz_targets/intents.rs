//! A statement of a fleet of any bytes: an agent follows none but those that the fleet signed, and of what a
//! server repeats, each changes what is stored once.
#![no_main]

use flame_fleet_protocol::{
    Action, Agent, Alone, Beacon, Clock, Delegation, Ed25519, Intent, Key, Label, Member, Revocations,
    Secret, Statement, Stored, Verify,
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

/// The statements that the fleet signed.
pub static SIGNED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let (root, key) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
    let hex = flame_fleet_protocol::signed::hex(&key.public().0);
    let delegation = Delegation { fleet: "f".to_owned(), key: hex, number: 1, expires: NOW + 30 * DAY };
    let delegated = root.delegate(&delegation);
    let run =
        Action::Run { module: "m".to_owned(), credential: vec!["c".to_owned()], parameters: Vec::new() };
    let intent = |counter, action: &Action, condition: &str| {
        Statement::Intent(Intent {
            target: "t".to_owned(),
            counter,
            expires: NOW + DAY,
            lease: 60,
            revocations: 0,
            r#where: condition.to_owned(),
            rollout: 1,
            reach: u64::MAX,
            action: action.clone(),
        })
    };
    let revoked = ["m".to_owned()].into();
    let statements = [
        intent(1, &run, ""),
        intent(2, &run, "site = \"penn\" and not speed >= 10G"),
        intent(3, &Action::Stop, ""),
        Statement::Revocations(Revocations { number: 1, revoked, delegations: 0 }),
        Statement::Beacon(Beacon { time: NOW, revocations: 0, answers: vec![7] }),
    ];
    statements.iter().map(|statement| key.state(&delegated, statement)).collect()
});

/// Content is reached as if each signature was valid.
struct Trusting;

impl Verify for Trusting {
    fn verifies(&self, _: &Key, _: &str, _: &[u8], _: &[u8; 64]) -> bool {
        true
    }
}

fn clock(seconds: u64) -> Clock {
    Clock { wall: NOW + seconds, steady: seconds }
}

fn agent() -> Agent {
    let labels = [("site".to_owned(), Label::Text("penn".to_owned()))].into();
    let root = Secret::new(&[1; 32]).public();
    let member = Member { node: "n".to_owned(), fleet: "f".to_owned(), root, labels, alone: Alone::Stop };
    Agent::new(member, Stored::default(), 7, clock(0))
}

fuzz_target!(|data: &[u8]| {
    let mut strict = agent();
    if strict.receive(data, clock(1), &Ed25519).is_ok() {
        assert!(SIGNED.iter().any(|signed| signed == data), "it was not signed");
    } else {
        assert_eq!(strict.stored(), &Stored::default());
        assert!(strict.wanted(clock(2)).is_empty());
    }
    let mut trusting = agent();
    if trusting.receive(data, clock(1), &Trusting).is_ok() {
        let stored = trusting.stored().clone();
        let _ = trusting.receive(data, clock(2), &Trusting);
        assert_eq!(trusting.stored(), &stored, "it changed something twice");
        trusting.wanted(clock(3));
        trusting.settled(clock(3));
    }
});
