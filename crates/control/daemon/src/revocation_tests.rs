//! Tests of revocations and their withdrawal, without workers.

use crate::test_world::{PATIENCE, World, revocation, within};
use flame_api::{Code, RevokeRequest, State};
use flame_base::lock;
use flame_trust::{Credential, Field};
use std::time::Instant;

#[test]
fn a_revocation_is_in_force_when_it_is_acknowledged() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let before = world.engine.version();
    // Somebody edits the policy meanwhile.
    let path = world.folder.path().join("policy.toml");
    let policy = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "[node\n").unwrap();
    world.engine.revoke(&revocation(&credential)).unwrap();
    assert_eq!(world.state(), State::Evicted);
    assert!(world.engine.version() > before, "sessions are decided again");
    let claimed = world.engine.policy().unwrap().claim(&credential, flame_trust::time::now());
    assert!(claimed.unwrap_err().to_string().contains("revoked"));
    assert!(world.log().contains("\"revoke\""), "{}", world.log());
    // It stays in force when the policy can be read again.
    std::fs::write(&path, policy).unwrap();
    world.engine.reload_policy(None);
    let claimed = world.engine.policy().unwrap().claim(&credential, flame_trust::time::now());
    assert!(claimed.is_err());
}

/// The fleet names credentials by the ids of their blocks.
#[test]
fn the_id_of_a_block_is_revoked() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let id = credential.blocks().unwrap().last().unwrap().id.clone();
    let of = |id: &str| RevokeRequest { id: Some(id.to_owned()), ..RevokeRequest::default() };
    for wrong in ["", "id", "0g", "00 key", "00\nid 00"] {
        let refused = world.engine.revoke(&of(wrong)).unwrap_err();
        assert_eq!(refused.code, Code::Invalid, "{refused}");
    }
    let both = RevokeRequest { credential: Some(credential.text()), ..of(&id) };
    assert_eq!(world.engine.revoke(&both).unwrap_err().code, Code::Invalid);
    assert_eq!(world.state(), State::Running);
    world.engine.revoke(&of(&id.to_uppercase())).unwrap();
    assert_eq!(world.state(), State::Evicted);
    assert!(is_revoked(&world, &credential));
}

#[test]
fn a_revocation_that_cannot_be_written_is_in_force_and_says_so() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    // A list that cannot be appended to, also by root.
    let list = world.folder.path().join("revoked");
    std::fs::remove_file(&list).unwrap();
    std::fs::create_dir(&list).unwrap();
    let refused = world.engine.revoke(&revocation(&credential)).unwrap_err();
    assert!(refused.cause.contains("the revocation is in force: "), "{refused}");
    assert_eq!(world.state(), State::Evicted);
    // Reading the list again does not end it.
    std::fs::remove_dir(&list).unwrap();
    std::fs::write(&list, "").unwrap();
    world.engine.reload_policy(None);
    let claimed = world.engine.policy().unwrap().claim(&credential, flame_trust::time::now());
    assert!(claimed.unwrap_err().to_string().contains("revoked"));
}

#[test]
fn a_revocation_is_withdrawn_by_a_command_and_not_by_another_list() {
    let world = World::new();
    let credential = world.credential(&[]);
    let list = world.folder.path().join("revoked");
    let is_revoked = || is_revoked(&world, &credential);
    let absent = world.engine.withdraw(&revocation(&credential)).unwrap_err();
    assert_eq!(absent.code, Code::NotFound, "{absent}");
    world.engine.revoke(&revocation(&credential)).unwrap();
    world.engine.revoke(&revocation(&credential)).unwrap();
    let in_list = world.engine.withdraw(&revocation(&credential)).unwrap_err();
    assert!(in_list.code == Code::Conflict && in_list.cause.contains("revoked"), "{in_list}");
    // An earlier list comes back, and may be read or not.
    std::fs::write(&list, "").unwrap();
    world.engine.reload_policy(None);
    assert!(is_revoked());
    assert_eq!(world.engine.store.revocations().unwrap().len(), 1);
    std::fs::write(&list, "?").unwrap();
    assert_eq!(world.engine.withdraw(&revocation(&credential)).unwrap_err().code, Code::Storage);
    std::fs::write(&list, "").unwrap();
    assert!(is_revoked());
    // The policy that is in force has it, so it ends only when the policy is read again.
    let (policy, aside) = (world.folder.path().join("policy.toml"), world.folder.path().join("aside"));
    std::fs::rename(&policy, &aside).unwrap();
    let unread = world.engine.withdraw(&revocation(&credential)).unwrap_err();
    assert!(unread.code == Code::Storage && unread.cause.contains("stays in force"), "{unread}");
    assert!(is_revoked() && world.engine.store.revocations().unwrap().len() == 1);
    assert!(!world.log().contains("\"withdraw\""), "{}", world.log());
    std::fs::rename(&aside, &policy).unwrap();
    world.engine.withdraw(&revocation(&credential)).unwrap();
    assert!(!is_revoked());
    assert_eq!(world.engine.store.revocations().unwrap(), [""; 0]);
    assert!(world.log().contains("\"withdraw\""), "{}", world.log());
    world.install(&credential);
}

/// Returns a world with a credential that was revoked by a request, and is in no list.
fn revoked_by_request() -> (World, Credential) {
    let world = World::new();
    let credential = world.credential(&[]);
    world.engine.revoke(&revocation(&credential)).unwrap();
    std::fs::write(world.folder.path().join("revoked"), "").unwrap();
    world.engine.reload_policy(None);
    (world, credential)
}

/// Returns whether a credential is revoked under the policy in force.
fn is_revoked(world: &World, credential: &Credential) -> bool {
    world.engine.policy().unwrap().claim(credential, flame_trust::time::now()).is_err()
}

#[test]
fn a_withdrawal_that_fails_leaves_the_revocation() {
    let (world, credential) = revoked_by_request();
    let engine = &world.engine;
    let before = engine.store.revocations().unwrap();
    let database = rusqlite::Connection::open(world.folder.path().join("state/node.sqlite")).unwrap();
    let refuse = "CREATE TRIGGER keep BEFORE DELETE ON revocations BEGIN SELECT RAISE(ABORT, 'no'); END;";
    database.execute_batch(refuse).unwrap();
    assert!(engine.withdraw(&revocation(&credential)).is_err());
    assert_eq!((before.len(), engine.store.revocations().unwrap()), (1, before));
    assert!(is_revoked(&world, &credential));
    // The log ends with what is in force.
    let log = world.log();
    let last = log.lines().rfind(|line| line.contains("revoke") || line.contains("withdraw"));
    assert!(last.is_some_and(|line| line.contains("\"revoke\"")), "{log}");
}

/// A policy that came into force while the withdrawal waited for the disk stays in force.
#[test]
fn a_withdrawal_undoes_no_other_change() {
    let (world, credential) = revoked_by_request();
    let other = world.credential(&[(Field::Memory, "64MiB")]);
    let engine = &world.engine;
    let storage = engine.store.database();
    std::thread::scope(|scope| {
        let withdrawing = scope.spawn(|| engine.withdraw(&revocation(&credential)));
        within(PATIENCE, || world.log().contains("withdraw"));
        let id = other.blocks().unwrap().pop().unwrap().id;
        std::fs::write(world.folder.path().join("revoked"), format!("id {id}\n")).unwrap();
        engine.reload_policy(None);
        assert!(is_revoked(&world, &other));
        drop(storage);
        withdrawing.join().unwrap().unwrap();
    });
    assert!(is_revoked(&world, &other) && !is_revoked(&world, &credential));
}

/// Once it is stored, nothing keeps it from being in force: a policy that is damaged meanwhile is read later.
#[test]
fn a_withdrawal_that_is_stored_is_in_force() {
    let (world, credential) = revoked_by_request();
    let engine = &world.engine;
    let storage = engine.store.database();
    std::thread::scope(|scope| {
        let withdrawing = scope.spawn(|| engine.withdraw(&revocation(&credential)));
        within(PATIENCE, || world.log().contains("withdraw"));
        std::fs::write(world.folder.path().join("policy.toml"), "damaged").unwrap();
        drop(storage);
        withdrawing.join().unwrap().unwrap();
    });
    assert!(engine.store.revocations().unwrap().is_empty() && !is_revoked(&world, &credential));
}

/// The list has room for 200,000.
#[test]
fn many_revocations_are_in_force_at_once() {
    let world = World::new();
    let credential = world.credential(&[]);
    let others = (0..100_000).map(|n| format!("id {n:0128x}"));
    *lock(&world.engine.revocations) = others.collect();
    let begun = Instant::now();
    world.engine.revoke(&revocation(&credential)).unwrap();
    world.engine.reload_policy(None);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(world.engine.policy().unwrap().claim(&credential, flame_trust::time::now()).is_err());
}
