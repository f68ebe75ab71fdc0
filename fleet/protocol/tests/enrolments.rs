//! Members of a fleet.

use crate::{NOW, secret};
use flame_fleet_protocol::enrolment::{Enrolment, EnrolmentError, Standing, TokenHash, apply_with};
use flame_fleet_protocol::{Ed25519, Secret};

const TOKEN: [u8; 32] = [9; 32];

fn invited() -> Enrolment {
    let mut enrolment = Enrolment::default();
    enrolment.invite(TokenHash::of(&TOKEN), None, NOW + 60);
    enrolment
}

fn apply(to: &mut Enrolment, name: &str, key: &Secret, now: u64) -> Result<Standing, EnrolmentError> {
    let signature = apply_with(key, &TOKEN, "f", name);
    to.apply(&TOKEN, "f", name, &key.public(), &signature, now, &Ed25519)
}

#[test]
fn a_token_is_used_once_and_the_operator_decides() {
    let (mut enrolment, key, other) = (invited(), secret(2), secret(3));
    assert_eq!(apply(&mut enrolment, "a", &key, NOW), Ok(Standing::Applied(key.public())));
    // The answer was lost. This changes nothing, also after the token has expired.
    assert_eq!(apply(&mut enrolment, "a", &key, NOW + 99), Ok(Standing::Applied(key.public())));
    assert!(matches!(apply(&mut enrolment, "b", &other, NOW), Err(EnrolmentError::Used { by }) if by == "a"));
    assert!(matches!(apply(&mut enrolment, "a", &other, NOW), Err(EnrolmentError::Used { .. })));
    assert_eq!(enrolment.member("a"), None);
    assert!(matches!(enrolment.approve("a", &other.public()), Err(EnrolmentError::Other { .. })));
    enrolment.approve("a", &key.public()).unwrap();
    assert_eq!(enrolment.member("a"), Some(key.public()));
}

#[test]
fn bad_applications_are_refused() {
    let key = secret(2);
    let mut enrolment = Enrolment::default();
    assert_eq!(apply(&mut enrolment, "a", &key, NOW), Err(EnrolmentError::Unknown));
    let mut enrolment = invited();
    assert!(matches!(apply(&mut enrolment, "a", &key, NOW + 60), Err(EnrolmentError::Expired { .. })));
    for name in ["", "a.b", "a b", &"a".repeat(65)] {
        assert!(matches!(apply(&mut enrolment, name, &key, NOW), Err(EnrolmentError::Form { .. })), "{name}");
    }
    // A signature for another name, another fleet, or by another key.
    for (name, fleet, by) in [("b", "f", 2), ("a", "g", 2), ("a", "f", 3)] {
        let signature = apply_with(&secret(by), &TOKEN, fleet, name);
        let outcome = enrolment.apply(&TOKEN, "f", "a", &key.public(), &signature, NOW, &Ed25519);
        assert!(matches!(outcome, Err(EnrolmentError::Signature { .. })), "{name} {fleet} {by}");
    }
    enrolment.invite(TokenHash::of(&TOKEN), Some("b".to_owned()), NOW + 60);
    assert!(matches!(apply(&mut enrolment, "a", &key, NOW), Err(EnrolmentError::Name { .. })));
}

/// A node that left, or whose key was lost, comes back with another key and another token only.
#[test]
fn a_key_that_was_given_up_does_not_come_back() {
    let (mut enrolment, key) = (invited(), secret(2));
    apply(&mut enrolment, "a", &key, NOW).unwrap();
    enrolment.approve("a", &key.public()).unwrap();
    enrolment.end("a", &key.public()).unwrap();
    assert_eq!(enrolment.member("a"), None);
    assert!(matches!(enrolment.approve("a", &key.public()), Err(EnrolmentError::Other { .. })));
    enrolment.invite(TokenHash::of(&TOKEN), None, NOW + 60);
    assert!(matches!(apply(&mut enrolment, "a", &key, NOW), Err(EnrolmentError::Gone { .. })));
    assert!(apply(&mut enrolment, "a", &secret(3), NOW).is_ok());
    enrolment.invite(TokenHash::of(&TOKEN), None, NOW + 60);
    assert!(matches!(apply(&mut enrolment, "a", &secret(4), NOW), Err(EnrolmentError::Taken { .. })));
    enrolment.tidy(NOW + 60);
    assert!(matches!(apply(&mut enrolment, "a", &secret(3), NOW), Err(EnrolmentError::Unknown)));
}
