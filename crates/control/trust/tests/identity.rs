//! Connections are accepted from holders of valid credentials, and an answer is valid on one connection.

mod common;

use common::{NOW, World};
use flame_trust::{Answer, Challenge, Credential, Identity, SESSION, Secret};

fn identify(
    world: &World,
    credential: &Credential,
    challenge: &Challenge,
    answer: &Answer,
) -> Result<Identity, String> {
    world.policy()?.identify(credential, (challenge, answer), world.now).map_err(|e| e.to_string())
}

#[test]
fn the_holder_is_identified_and_nobody_else() {
    let world = World::new();
    let holder = world.alice.public().to_string();
    let credential = world.mint_held(&[("expires", "2027-12-31T00:00:00Z")], &world.alice);
    let challenge = Challenge::on_channel(&[1; 32], b"one");
    let answer = challenge.answer(&world.alice, &credential, &SESSION);
    let identity = identify(&world, &credential, &challenge, &answer).unwrap();
    assert_eq!((identity.principal.as_str(), identity.root), ("alice", world.root.public()), "{holder}");
    // Another key, another connection, another nonce, an answer for a module.
    for (challenge, answer) in [
        (challenge.clone(), challenge.answer(&world.bob, &credential, &SESSION)),
        (Challenge::on_channel(&[1; 32], b"two"), answer.clone()),
        (Challenge::on_channel(&[2; 32], b"one"), answer.clone()),
        (challenge.clone(), challenge.answer(&world.alice, &credential, &[7; 32])),
    ] {
        let refused = identify(&world, &credential, &challenge, &answer).unwrap_err();
        assert!(refused.contains("only the holder"), "{refused}");
    }
}

#[test]
fn a_credential_that_is_not_valid_here_identifies_nobody() {
    let mut world = World::new();
    let challenge = Challenge::on_channel(&[1; 32], b"one");
    let mut refused = |credential: &Credential, now: u64| {
        world.now = now;
        let answer = challenge.answer(&world.alice, credential, &SESSION);
        identify(&world, credential, &challenge, &answer).unwrap_err()
    };
    let minting = World::new();
    let foreign = minting.mint_held(&[], &Secret::generate());
    assert!(refused(&foreign, NOW).contains("not signed by any of this node's roots"));
    let world = World::new();
    let bearer = world.mint(&[]);
    let refused = |credential: &Credential| {
        let answer = challenge.answer(&world.alice, credential, &SESSION);
        identify(&world, credential, &challenge, &answer).unwrap_err()
    };
    assert!(refused(&bearer).contains("holder"), "{}", refused(&bearer));
    for (field, value, said) in [
        ("expires", "2020-01-01T00:00:00Z", "expired"),
        ("not_before", "2035-01-01T00:00:00Z", "too early"),
        ("node", "elsewhere", "not for this node"),
    ] {
        let credential = world.mint_held(&[(field, value)], &world.alice);
        assert!(refused(&credential).contains(said), "{field}: {}", refused(&credential));
    }
}
