//! A server, or somebody with the keys of its users, that forges, replays, delays and reorders.

use crate::world::{World, stranger, wait_for};
use flame_fleet_control::follow;
use flame_fleet_nats::Bus;
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::{Action, Delegation, Intent, Secret, Statement};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn intent(target: &str, counter: u64) -> Intent {
    Intent {
        target: target.to_owned(),
        counter,
        expires: now() + 3600,
        lease: 60,
        revocations: 1,
        r#where: String::new(),
        rollout: 1,
        reach: u64::MAX,
        action: Action::Run { module: "00".repeat(32), credential: Vec::new(), parameters: Vec::new() },
    }
}

#[test]
fn what_the_server_forges_replays_or_delays_changes_nothing() {
    let Some(world) = World::start() else { return };
    let node = world.enrol("a");
    let settings = world.settings("a");
    std::thread::spawn(move || follow(&settings));
    // The control's user is all that a server has, and more: it may send to all nodes.
    let bus = Bus::connect(&world.access("control")).unwrap();
    wait_for("a connection", || bus.is_connected());
    let kept =
        || -> Value { serde_json::from_slice(&std::fs::read(node.path.join("state")).unwrap()).unwrap() };
    let counter = |target: &str| kept()["stored"]["targets"][target]["intent"]["counter"].as_u64();
    let status = || -> Value {
        let bytes = std::fs::read(world.path("fleet/status")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    };
    let refused = || status()["nodes"]["a"]["refused"].as_u64().unwrap_or(0);
    wait_for("contact", || kept()["stored"]["demanded"]["counter"] == 1);

    let (fleet, delegated) = (world.secret("fleet.key"), world.delegated());
    let send = |bytes: Vec<u8>| bus.publish("flame.to.all", bytes);
    let good = |intent: Intent| fleet.state(&delegated, &Statement::Intent(intent));
    // The good ones, out of order: the later counter stays.
    let (first, second) = (good(intent("good", 1)), good(intent("good", 2)));
    send(second.clone());
    wait_for("an intent", || counter("good") == Some(2));
    for _ in 0..3 {
        send(first.clone());
        send(second.clone());
    }

    // Forged: by another key, under another root, for another fleet, changed in flight, cut, no statement.
    let other = Secret::new(&[3; 32]);
    let delegate = |root: &Secret, fleet: &str, key: &Secret, number, expires| {
        let key = hex(&key.public().0);
        root.delegate(&Delegation { fleet: fleet.to_owned(), key, number, expires })
    };
    let forged = |by: &Secret, delegated: &_| by.state(delegated, &Statement::Intent(intent("forged", 9)));
    let mut changed = good(intent("forged", 9));
    let last = changed.len() - 80;
    changed[last] ^= 1;
    let mut expired = intent("expired", 9);
    expired.expires = now() - 1;
    let attacks = [
        forged(&other, &delegated),
        forged(&other, &delegate(&other, "f", &other, 9, now() + 3600)),
        forged(&other, &delegate(&world.root, "g", &other, 9, now() + 3600)),
        forged(&other, &delegate(&world.root, "f", &other, 9, now() - 1)),
        changed,
        good(intent("forged", 9))[..90].to_vec(),
        b"FLS1".to_vec(),
        vec![0xff; 4096],
        good(expired),
    ];
    let before = refused();
    for (n, attack) in attacks.into_iter().enumerate() {
        send(attack);
        let most = before + n as u64 + 1;
        wait_for("a statement that is refused and reported", || refused() >= most);
        assert_eq!(refused(), most, "attack {n}");
    }
    // A name that would leave the folder of the agent, or become an option, is followed nowhere.
    for target in ["../escaped", "--help", "a/b"] {
        send(good(intent(target, 3)));
        wait_for("an intent", || counter(target) == Some(3));
    }
    assert_eq!((counter("good"), counter("forged"), counter("expired")), (Some(2), None, None));
    assert!(!world.path("escaped.wasm").exists());
}

#[test]
fn a_token_is_used_once_and_by_its_node() {
    let Some(world) = World::start() else { return };
    let token = world.invite("a");
    let error = world.apply("b", &token).unwrap_err();
    assert!(error.contains("the token is for node \"a\", and \"b\" applied"), "{error}");
    world.apply("a", &token).unwrap();
    // Again after an answer that was lost.
    world.apply("a", &token).unwrap();
    std::fs::remove_dir_all(world.path("a")).unwrap();
    let error = world.apply("a", &token).unwrap_err();
    assert!(error.contains("was used by node \"a\""), "{error}");
    let error = world.run(&["approve", "a", &stranger().to_string()]).unwrap_err();
    assert!(error.contains("has not applied with key"), "{error}");
    let error = world.apply("c", "flame-token-1.00").unwrap_err();
    assert!(error.contains("flame fleet enrol"), "{error}");
}
