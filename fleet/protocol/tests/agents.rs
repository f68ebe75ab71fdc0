//! Signed statements, and the node that follows them.

use crate::{DAY, Fleet, NOW, agent, clock, intent, member, secret};
use flame_fleet_protocol::rollout::order;
use flame_fleet_protocol::signed::{Demands, MAX_SIGNED};
use flame_fleet_protocol::{Action, Agent, Alone, Clock, Delegation, Ed25519, Intent, Refusal, SignedError};
use sha2::{Digest, Sha256};

fn tell(agent: &mut Agent, bytes: &[u8], seconds: u64) -> Result<(), Refusal> {
    agent.receive(bytes, clock(seconds), &Ed25519)
}

fn runs(agent: &Agent, seconds: u64) -> Vec<u64> {
    agent.wanted(clock(seconds)).values().map(|intent| intent.counter).collect()
}

/// A node with contact at 0 s that follows the intent 1.
fn running() -> (Agent, Fleet) {
    let (mut agent, fleet) = (agent(), Fleet::new(2, 1));
    tell(&mut agent, &fleet.intent(&intent(1)), 0).unwrap();
    assert_eq!(runs(&agent, 0), [0; 0], "nothing runs without contact");
    tell(&mut agent, &fleet.beacon(NOW, 0, &[7]), 0).unwrap();
    assert_eq!(runs(&agent, 0), [0; 0], "nothing runs without a list of revocations");
    tell(&mut agent, &fleet.revoke(0, &[], 0), 0).unwrap();
    assert_eq!(runs(&agent, 0), [1]);
    (agent, fleet)
}

/// Each changed bit is noticed, and so is each missing byte.
#[test]
fn forged_statements_are_refused() {
    let (fleet, root) = (Fleet::new(2, 1), secret(1).public());
    let bytes = fleet.intent(&intent(1));
    let demands = Demands { root: &root, fleet: "f", floor: 1, now: NOW };
    assert!(demands.read(&bytes, &Ed25519).is_ok());
    for at in (0..bytes.len() * 8).step_by(5) {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(demands.read(&changed, &Ed25519).is_err(), "bit {at}");
    }
    for length in 0..bytes.len() {
        assert!(
            matches!(demands.read(&bytes[..length], &Ed25519), Err(SignedError::Form { .. })),
            "{length}"
        );
    }
    assert!(matches!(demands.read(&vec![0; MAX_SIGNED + 1], &Ed25519), Err(SignedError::Form { at: 0, .. })));
    let error = |demands: Demands<'_>| demands.read(&bytes, &Ed25519).unwrap_err();
    let other = secret(3).public();
    assert!(matches!(error(Demands { root: &other, ..demands }), SignedError::Signature { .. }));
    assert!(matches!(error(Demands { fleet: "g", ..demands }), SignedError::Fleet { .. }));
    assert!(matches!(error(Demands { floor: 2, ..demands }), SignedError::Rotated { found: 1, floor: 2 }));
    assert!(matches!(error(Demands { now: NOW + 30 * DAY, ..demands }), SignedError::Expired { .. }));
}

/// Without the binding, an old list could be put under a renewed delegation of the same key, and count as the
/// newest.
#[test]
fn a_statement_does_not_move_to_another_delegation() {
    let (old, new) = (Fleet::new(2, 1), Fleet::new(2, 2));
    let (mut bytes, other) = (old.revoke(1, &[], 0), new.revoke(1, &[], 0));
    let split = |bytes: &[u8]| 8 + u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize + 64;
    let body = bytes.split_off(split(&bytes));
    let moved = [&other[..split(&other)], &body[..]].concat();
    assert!(tell(&mut agent(), &other, 0).is_ok());
    let refused = tell(&mut agent(), &moved, 0);
    assert!(matches!(refused, Err(Refusal::Signed(SignedError::Signature { what: "statement", .. }))));
}

#[test]
fn replayed_and_reordered_intents_change_nothing() {
    let (mut agent, fleet) = running();
    let stop = Intent { action: Action::Stop, ..intent(3) };
    tell(&mut agent, &fleet.intent(&stop), 1).unwrap();
    for counter in [1, 2, 3] {
        let refused = tell(&mut agent, &fleet.intent(&intent(counter)), 2);
        assert!(matches!(refused, Err(Refusal::Old { what: "intent", .. })), "{counter}");
    }
    assert_eq!(runs(&agent, 2), [0; 0]);
    // It is forgotten only when no intent of its time can be valid.
    let late = Intent { target: "u".to_owned(), expires: NOW + 2 * DAY, ..intent(1) };
    tell(&mut agent, &fleet.intent(&late), DAY + 1).unwrap();
    assert_eq!(agent.stored().targets.len(), 2);
}

#[test]
fn intents_expire_and_a_clock_that_is_set_back_changes_nothing() {
    let (mut agent, fleet) = running();
    let short = Intent { expires: NOW + 40, ..intent(2) };
    tell(&mut agent, &fleet.intent(&short), 1).unwrap();
    let back = |steady| Clock { wall: NOW - 30 * DAY, steady };
    assert_eq!((agent.wanted(back(39)).len(), agent.wanted(back(40)).len()), (1, 0));
    // A restart in between.
    tell(&mut agent, &fleet.beacon(NOW + 41, 0, &[]), 41).unwrap();
    let mut agent = Agent::new(member(Alone::Keep), agent.stored().clone(), 8, back(0));
    assert_eq!(agent.wanted(back(0)).len(), 0);
    let expired = Intent { target: "u".to_owned(), expires: NOW + 41, ..intent(3) };
    let refused = agent.receive(&fleet.intent(&expired), back(1), &Ed25519);
    assert!(matches!(refused, Err(Refusal::Expired { .. })));
    let endless = Intent { expires: u64::MAX, ..intent(3) };
    let refused = agent.receive(&fleet.intent(&endless), back(1), &Ed25519);
    assert!(matches!(refused, Err(Refusal::Endless { .. })));
}

/// A node that was away for the whole life of an intent does not keep the one before it.
#[test]
fn an_expired_intent_ends_the_one_before() {
    let (mut agent, fleet) = running();
    tell(&mut agent, &fleet.intent(&Intent { expires: NOW + 1, action: Action::Stop, ..intent(2) }), 9)
        .unwrap();
    assert_eq!(runs(&agent, 9), [0; 0]);
}

/// A lease is as long as its intent states from the time at which a beacon was signed, not from its arrival.
#[test]
fn leases_end_without_contact() {
    let (mut agent, fleet) = running();
    assert_eq!((runs(&agent, 59), runs(&agent, 60)), (vec![1], vec![]));
    assert_eq!((agent.settled(clock(60)).len(), agent.settled(clock(DAY)).len()), (0, 1));
    // Signed at 20 s, and held back until 100 s.
    tell(&mut agent, &fleet.beacon(NOW + 20, 0, &[]), 100).unwrap();
    assert_eq!((runs(&agent, 79), runs(&agent, 100)), (vec![1], vec![]));
    assert!(matches!(tell(&mut agent, &fleet.beacon(NOW + 20, 0, &[]), 101), Err(Refusal::Silent { .. })));
    tell(&mut agent, &fleet.beacon(NOW + 101, 0, &[]), 101).unwrap();
    assert_eq!(runs(&agent, 101), [1]);
    // A start without contact runs nothing, and an old beacon is no contact.
    let stored = agent.stored().clone();
    let mut agent = Agent::new(member(Alone::Stop), stored.clone(), 8, clock(102));
    for beacon in [fleet.beacon(NOW + 101, 0, &[7]), fleet.beacon(NOW + 103, 0, &[])] {
        assert!(matches!(tell(&mut agent, &beacon, 103), Err(Refusal::Silent { .. })));
    }
    assert_eq!(runs(&agent, 103), [0; 0]);
    // Unless the node's own policy vouches for them.
    assert_eq!(runs(&Agent::new(member(Alone::Keep), stored, 8, clock(102)), 5000), [1]);
}

/// The fleet's clock is slower than the node's by a thousandth. After a day without asking, no lease would
/// last.
#[test]
fn clocks_that_run_apart_are_brought_together_by_asking() {
    let (mut agent, fleet) = running();
    let (mut asked, mut number) = (0, 100);
    for seconds in (10..DAY).step_by(10) {
        if agent.should_ask(clock(seconds)) {
            (asked, number) = (asked + 1, number + 1);
            agent.ask(number, clock(seconds));
        }
        let answers: Vec<_> = agent.asks().into_iter().collect();
        tell(&mut agent, &fleet.beacon(NOW + seconds * 999 / 1000, 0, &answers), seconds).unwrap();
        assert_eq!(runs(&agent, seconds + 9), if seconds + 9 < DAY { vec![1] } else { vec![] });
    }
    // A clock that is behind by 20 s of a lease of 60 s is found after 20,000 s.
    assert!((1..9).contains(&asked), "{asked}");
}

/// An answer that came late says little; the next one says more.
#[test]
fn a_late_answer_is_asked_for_again() {
    let (mut agent, fleet) = running();
    let stored = agent.stored().clone();
    agent = Agent::new(member(Alone::Stop), stored, 8, clock(100));
    tell(&mut agent, &fleet.beacon(NOW + 155, 0, &[8]), 155).unwrap();
    assert_eq!((runs(&agent, 159), runs(&agent, 160)), (vec![1], vec![]));
    assert!(agent.should_ask(clock(155)));
    agent.ask(9, clock(155));
    assert!(!agent.should_ask(clock(155)));
    tell(&mut agent, &fleet.beacon(NOW + 156, 0, &[9]), 156).unwrap();
    assert_eq!(runs(&agent, 160), [1]);
}

#[test]
fn what_is_revoked_does_not_run() {
    for id in ["m", "c"] {
        let (mut agent, fleet) = running();
        tell(&mut agent, &fleet.revoke(4, &[id], 0), 1).unwrap();
        assert_eq!(runs(&agent, 1), [0; 0], "{id}");
        let refused = tell(&mut agent, &fleet.revoke(3, &[], 0), 2);
        assert!(matches!(refused, Err(Refusal::Old { .. })));
    }
}

/// A node that was away runs nothing before it has the current list, whatever the server holds back.
#[test]
fn a_node_that_was_away_has_the_revocations_first() {
    let (agent, fleet) = running();
    for alone in [Alone::Stop, Alone::Keep] {
        let mut agent = Agent::new(member(alone), agent.stored().clone(), 8, clock(30));
        tell(&mut agent, &fleet.beacon(NOW + 30, 1, &[8]), 30).unwrap();
        assert_eq!(runs(&agent, 30), [0; 0]);
        // Not after a restart either.
        assert_eq!(runs(&Agent::new(member(alone), agent.stored().clone(), 9, clock(30)), 30), [0; 0]);
        tell(&mut agent, &fleet.revoke(1, &["x"], 0), 31).unwrap();
        assert_eq!(runs(&agent, 31), [1]);
        // A beacon that was signed before does not take it back.
        tell(&mut agent, &fleet.revoke(2, &["m"], 0), 32).unwrap();
        tell(&mut agent, &fleet.beacon(NOW + 32, 1, &[]), 33).unwrap();
        assert_eq!(runs(&agent, 33), [0; 0]);
    }
    // And an intent can demand a list by itself.
    let (mut agent, fleet) = running();
    tell(&mut agent, &fleet.intent(&Intent { revocations: 5, ..intent(2) }), 1).unwrap();
    assert_eq!(runs(&agent, 1), [0; 0]);
}

/// A node that was away while the key was rotated, twice, follows the new key, and the old one no more.
#[test]
fn keys_rotate_while_nodes_are_away() {
    let (mut agent, old) = running();
    let new = Fleet::new(3, 3);
    agent.ask(8, clock(10));
    tell(&mut agent, &new.beacon(NOW + 10, 1, &[8]), 10).unwrap();
    assert_eq!(runs(&agent, 10), [0; 0], "the list is not signed by the new key yet");
    tell(&mut agent, &new.revoke(1, &[], 0), 11).unwrap();
    assert_eq!(runs(&agent, 11), [1], "the old key ended in peace");
    for bytes in [old.intent(&intent(9)), old.revoke(9, &[], 0), old.beacon(NOW + 12, 0, &[])] {
        let refused = tell(&mut agent, &bytes, 12);
        assert!(matches!(refused, Err(Refusal::Signed(SignedError::Rotated { .. }))));
    }
    // The old key was lost: nothing of it runs.
    tell(&mut agent, &new.revoke(2, &[], 3), 12).unwrap();
    assert_eq!((runs(&agent, 12), agent.stored().targets.len()), (vec![], 0));
    tell(&mut agent, &new.intent(&intent(1)), 13).unwrap();
    assert_eq!(runs(&agent, 13), [1]);
}

/// Whatever a stolen key signs, the next delegation of the root ends it.
#[test]
fn a_stolen_key_leaves_nothing_behind() {
    let (mut agent, stolen) = running();
    let (most, far) = (u64::MAX, NOW + 30 * DAY);
    tell(&mut agent, &stolen.intent(&Intent { counter: most, rollout: most, ..intent(1) }), 1).unwrap();
    tell(&mut agent, &stolen.revoke(most, &[], 1), 1).unwrap();
    tell(&mut agent, &stolen.beacon(NOW + 2, most, &[]), 2).unwrap();
    assert!(matches!(tell(&mut agent, &stolen.revoke(most, &[], 2), 1), Err(Refusal::Old { .. })));
    let mut fresh = crate::agent();
    assert!(matches!(tell(&mut fresh, &stolen.revoke(1, &[], 2), 1), Err(Refusal::Beyond { .. })));
    let refused = tell(&mut agent, &stolen.beacon(far + 1, 0, &[]), 3);
    assert!(matches!(refused, Err(Refusal::Beyond { found, .. }) if found == far + 1));
    let new = Fleet::new(3, 2);
    tell(&mut agent, &new.revoke(1, &[], 2), 4).unwrap();
    tell(&mut agent, &new.intent(&intent(1)), 4).unwrap();
    tell(&mut agent, &new.beacon(NOW + 4, 1, &[]), 4).unwrap();
    assert_eq!(runs(&agent, 4), [1]);
}

/// During an update in waves, the nodes that it has not reached keep the version before.
#[test]
fn an_update_leaves_the_others_as_they_are() {
    let (mut agent, fleet) = running();
    let place = order(2, "n");
    let update = |counter, reach, condition: &str| Intent {
        counter,
        rollout: 2,
        reach,
        r#where: condition.to_owned(),
        ..intent(0)
    };
    tell(&mut agent, &fleet.intent(&update(10, place - 1, "")), 1).unwrap();
    assert_eq!(runs(&agent, 1), [1]);
    // The version before can be renewed in the meantime.
    tell(&mut agent, &fleet.intent(&intent(2)), 1).unwrap();
    assert_eq!(runs(&agent, 1), [2]);
    tell(&mut agent, &fleet.intent(&update(11, place, "site = \"penn\"")), 2).unwrap();
    assert_eq!(runs(&agent, 2), [11]);
    assert!(matches!(tell(&mut agent, &fleet.intent(&intent(12)), 3), Err(Refusal::Old { .. })));
    // A condition that the node does not meet stops it.
    tell(&mut agent, &fleet.intent(&update(12, u64::MAX, "site = \"mit\"")), 3).unwrap();
    assert_eq!(runs(&agent, 3), [0; 0]);
    let refused = tell(&mut agent, &fleet.intent(&update(13, u64::MAX, "site =")), 3);
    assert!(matches!(refused, Err(Refusal::Condition(_))));
}

/// A delegation that never expires is in the hands of the root; times near the end of 64 bits are no fault.
#[test]
fn the_largest_numbers_are_numbers() {
    let key = secret(2);
    let hex = flame_fleet_protocol::signed::hex(&key.public().0);
    let delegation = Delegation { fleet: "f".to_owned(), key: hex, number: u64::MAX, expires: u64::MAX };
    let fleet = Fleet { delegated: secret(1).delegate(&delegation), key };
    let mut agent = agent();
    tell(&mut agent, &fleet.beacon(u64::MAX - 1, u64::MAX, &[7]), 0).unwrap();
    let last = Intent { expires: u64::MAX, lease: u64::MAX, ..intent(u64::MAX) };
    tell(&mut agent, &fleet.intent(&last), 0).unwrap();
    tell(&mut agent, &fleet.revoke(u64::MAX, &[], u64::MAX), 0).unwrap();
    assert_eq!(agent.wanted(Clock { wall: 0, steady: 0 }).len(), 1);
    assert_eq!(agent.wanted(Clock { wall: 0, steady: u64::MAX }).len(), 0);
}

/// Content that a later release adds is refused as a whole, so that no limit in it is passed over.
#[test]
fn unknown_content_asks_for_an_update() {
    let fleet = Fleet::new(2, 1);
    let bytes = fleet.beacon(NOW, 0, &[7]);
    let delegation = &bytes[8..8 + u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize];
    for body in [r#"{"kind":"beacon","time":1,"revocations":0,"answers":[7],"limit":3}"#, r#"{"kind":"tea"}"#]
    {
        let signed = [&Sha256::digest(delegation)[..], body.as_bytes()].concat();
        let length = u32::try_from(body.len()).unwrap().to_le_bytes();
        let signature = fleet.key.sign("fleet statement", &signed);
        let head = &bytes[..8 + delegation.len() + 64];
        let refused = tell(&mut agent(), &[head, &length, body.as_bytes(), &signature].concat(), 0);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("update this node") && error.contains("unknown"), "{error}");
    }
}
