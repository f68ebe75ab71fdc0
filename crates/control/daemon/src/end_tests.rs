//! Tests of ends that come while a change is in progress, or while the storage takes no rows.

use crate::engine::By;
use crate::life::{Entry, Key, Phase};
use crate::route::ToLogs;
use crate::source::Accounts;
use crate::standing::{CHECKS, REVIEW, STORAGE};
use crate::test_world::{NAME, PATIENCE, World, revocation, within, write_policy};
use flame_api::State;
use flame_node::Node;
use flame_plan::{Account, FaultReport, ModuleId, Reason};
use flame_trust::{Field, Narrow};
use flame_worker::Observer;
use std::time::{Duration, Instant};

/// Reports the eviction of an instance on a source, as a worker does.
fn evict_by_worker(world: &World, id: ModuleId) {
    let mut report = FaultReport::new(id, NAME.to_owned(), "a bound".to_owned());
    report.evicted = Some(Reason::CutOff(flame_plan::CutOff::Bound));
    ToLogs(world.engine.sources["tap"].routes.clone()).fault(&report);
}

/// Takes a module out, as if its change had not entered it yet.
fn take_out(world: &World) -> (Key, Entry) {
    world.engine.modules().remove_entry(&world.key()).unwrap()
}

/// Returns state and reason as the owner sees them.
fn shown(world: &World) -> (State, String) {
    let shown = world.engine.show(&world.owner(), NAME).unwrap();
    (shown.state, shown.reason.unwrap_or_default())
}

/// A row that the storage does not take is written later. Until then, changes are for the row that it has.
#[test]
fn an_eviction_that_cannot_be_stored_hinders_no_later_change() {
    for then in ["write", "stop", "remove"] {
        let world = World::new();
        let credential = world.credential(&[]);
        world.install(&credential);
        world.refuse_rows(true);
        world.engine.revoke(&revocation(&credential)).unwrap();
        assert!(!world.engine.write_rows(), "{then}");
        assert_eq!(shown(&world).0, State::Evicted, "{then}");
        let row = world.row().unwrap();
        assert_eq!((row.state, row.revision), (State::Running, 1), "{then}");
        let revision = world.engine.show(&world.owner(), NAME).unwrap().revision;
        assert_eq!(revision, 2, "the revision that a client has seen does not come back");
        world.refuse_rows(false);
        let (owner, engine) = (world.owner(), &world.engine);
        let expected = match then {
            "write" => {
                assert!(engine.write_rows());
                Some((State::Evicted, 2))
            }
            "stop" => {
                engine.stop(&owner, NAME, Some(revision)).unwrap();
                Some((State::Evicted, 2))
            }
            _ => {
                engine.remove(&owner, NAME, Some(revision)).unwrap();
                None
            }
        };
        assert_eq!(world.row().map(|row| (row.state, row.revision)), expected, "{then}");
        assert!(engine.write_rows());
        assert_eq!(world.row().map(|row| (row.state, row.revision)), expected, "{then}");
    }
}

/// Nothing runs on because a disk is full, read-only or locked.
#[test]
fn a_module_stops_although_that_cannot_be_stored() {
    for runs in [true, false] {
        let world = World::new();
        world.install(&world.credential(&[]));
        if !runs {
            world.fail(ModuleId(1), "a reason");
            assert!(world.engine.write_rows());
        }
        let before = world.row().unwrap().revision;
        world.refuse_rows(true);
        let problem = world.engine.stop(&world.owner(), NAME, Some(before)).unwrap_err();
        assert!(problem.cause.contains("the module has ended, but a restart finds it"), "{problem:?}");
        assert!(!world.is_live());
        let (state, reason) = shown(&world);
        assert!(state == State::Stopped && reason.contains("by request"), "{state:?} {reason}");
        assert_eq!(world.row().unwrap().revision, before);
        assert!(!world.engine.write_rows());
        world.refuse_rows(false);
        assert!(world.engine.write_rows());
        assert_eq!(world.row().map(|row| (row.state, row.revision)), Some((State::Stopped, before + 1)));
    }
}

/// Here the storage is held by a change that takes its time.
#[test]
fn no_end_waits_for_the_storage() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let storage = world.engine.store.database();
    std::thread::scope(|scope| {
        let changing = world.engine.begin_by(By::Node, &world.key()).unwrap_or_else(|_| panic!());
        let ending = scope.spawn(|| {
            world.fail(ModuleId(1), "a reason");
        });
        let has_ended = within(PATIENCE / 4, || ending.is_finished());
        drop(storage);
        ending.join().unwrap();
        drop(changing);
        assert!(has_ended, "it waits");
    });
    assert!(world.engine.write_rows());
    assert_eq!(world.row().unwrap().state, State::Failed);
}

#[test]
fn a_workers_eviction_waits_for_the_change_that_enters_its_module() {
    let world = World::new().with_source();
    world.install(&world.credential(&[]));
    let changing = world.engine.begin(&world.owner(), NAME).unwrap();
    let (key, entry) = take_out(&world);
    evict_by_worker(&world, ModuleId(1));
    evict_by_worker(&world, ModuleId(1));
    world.take_down();
    evict_by_worker(&world, ModuleId(1));
    assert_eq!(world.engine.sources["tap"].routes.take_evicted().len(), 1, "it is kept once");
    evict_by_worker(&world, ModuleId(1));
    world.enter(key, entry);
    drop(changing);
    world.take_down();
    let (state, reason) = shown(&world);
    assert!(state == State::Evicted && reason.contains("bound"), "{state:?} {reason}");
    // Nothing is kept of instances that no change enters.
    evict_by_worker(&world, ModuleId(9));
    world.take_down();
    assert!(world.engine.sources["tap"].routes.take_evicted().is_empty());
}

/// The grant was lost for a moment, while the module was on its way: its instance is dropped for good.
#[test]
fn a_module_whose_instance_was_evicted_meanwhile_leaves_as_it_is_entered() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let changing = world.engine.begin(&world.owner(), NAME).unwrap();
    let (key, entry) = take_out(&world);
    world.engine.revoke(&revocation(&credential)).unwrap();
    std::fs::write(world.folder.path().join("revoked"), "").unwrap();
    world.engine.withdraw(&revocation(&credential)).unwrap();
    world.enter(key, entry);
    let (state, reason) = shown(&world);
    assert!(state == State::Evicted && reason.contains("revoked"), "{state:?} {reason}");
    drop(changing);
    world.take_down();
    assert!(!world.is_live());
    assert_eq!(world.log().matches("\"evict\"").count(), 1, "{}", world.log());
}

/// A source that has just ended knows nothing more of an instance.
#[test]
fn a_module_that_is_stopped_as_its_source_ends_keeps_its_last_account() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let account = |offered| {
        let mut account = Account::default();
        account.offered = offered;
        account
    };
    let known = account(36);
    let accounts = Accounts { live: known.clone(), released: account(30) };
    world.engine.modules().get_mut(&world.key()).unwrap().replace(accounts);
    let shown = || world.engine.show(&world.owner(), NAME).unwrap().account.offered;
    assert_eq!(shown(), 30, "its holder waits for the end");
    assert_eq!(world.engine.show_ended(&world.key(), Account::default()), known);
    let later = account(40);
    assert_eq!(world.engine.show_ended(&world.key(), later.clone()), later);
    assert_eq!(shown(), 40);
    // What a holder may not learn is in none.
    let falls = |entry: &mut Entry| match &mut entry.life.live_mut().unwrap().phase {
        Phase::Replacing(ending) => ending.may_fall = true,
        _ => panic!("it is not replaced"),
    };
    world.engine.modules().get_mut(&world.key()).into_iter().for_each(falls);
    assert_eq!(world.engine.show_ended(&world.key(), known.clone()), known);
}

/// Its owner has seen the reason already.
#[test]
fn a_module_that_leaves_ends_as_evicted_by_any_end() {
    for by in ["stop", "failure", "eviction"] {
        let world = World::new().with_source();
        let credential = world.credential(&[(Field::Memory, "64MiB")]);
        world.install(&credential);
        let changing = world.engine.begin(&world.owner(), NAME).unwrap();
        world.engine.revoke(&revocation(&credential)).unwrap();
        let before = shown(&world);
        assert!(before.0 == State::Evicted && before.1.contains("revoked"), "{before:?}");
        evict_by_worker(&world, ModuleId(1));
        world.take_down();
        assert_eq!(shown(&world), before, "{by}");
        match by {
            "failure" => world.fail(ModuleId(1), by),
            "stop" => {
                drop(changing);
                let stopped = world.engine.stop(&world.owner(), NAME, None).unwrap();
                assert_eq!((stopped.state, stopped.reason.unwrap()), before);
                let row = world.row().unwrap();
                assert_eq!((row.state, row.reason.unwrap(), row.revision), (before.0, before.1.clone(), 2));
            }
            _ => {
                drop(changing);
                world.take_down();
            }
        }
        assert_eq!(shown(&world), before, "{by}");
        assert!(!world.is_live(), "{by}");
        assert!(world.engine.write_rows() || by == "failure");
    }
}

/// One module's row that the storage does not take delays no other row, and is a fault until it is written,
/// whatever else is written.
#[test]
fn a_row_that_cannot_be_written_hinders_no_other_and_stays_a_fault() {
    let world = World::new();
    let credential = world.credential(&[]);
    // In the order in which rows are written.
    let names = ["first", NAME];
    names.iter().for_each(|name| world.install_as(name, &credential));
    world.refuse_rows_of("first", true);
    world.engine.revoke(&revocation(&credential)).unwrap();
    let rows = || names.map(|name| world.row_of(name).map(|row| (row.state, row.revision)));
    assert_eq!(rows(), [Some((State::Running, 1)), Some((State::Evicted, 2))]);
    for _ in 0..2 {
        assert!(!world.engine.write_rows());
        // Another write succeeds.
        world.engine.stored(world.engine.store.revoked("another", 1)).unwrap();
        let reasons = world.engine.health().reasons;
        assert!(reasons.len() == 1 && reasons[0].contains("1 not stored yet"), "{reasons:?}");
        assert!(reasons[0].contains("first of alice: "), "{reasons:?}");
    }
    world.refuse_rows_of("first", false);
    assert!(world.engine.write_rows());
    assert_eq!(rows(), [Some((State::Evicted, 2)); 2]);
    assert!(world.engine.health().ok, "{:?}", world.engine.health().reasons);
}

/// Here the storage is held by a change that takes its time.
#[test]
fn a_revocation_evicts_before_it_is_written() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let storage = world.engine.store.database();
    std::thread::scope(|scope| {
        let revoking = scope.spawn(|| world.engine.revoke(&revocation(&credential)));
        let has_left = within(PATIENCE / 4, || shown(&world).0 == State::Evicted);
        let is_written = revoking.is_finished();
        drop(storage);
        revoking.join().unwrap().unwrap();
        assert!(has_left && !is_written, "it runs until the revocation is written");
    });
}

/// Nor does another one wait for that, nor a change of the list.
#[test]
fn a_revocation_that_waits_for_the_disk_delays_no_other() {
    let world = World::new();
    let all = ["64MiB", "65MiB", "66MiB"].map(|memory| world.credential(&[(Field::Memory, memory)]));
    let names = ["first", "second", "third"];
    for (name, credential) in names.into_iter().zip(&all) {
        world.install_as(name, credential);
    }
    let (engine, owner) = (&world.engine, world.owner());
    let has_left = |name| engine.show(&owner, name).unwrap().state == State::Evicted;
    let leaves = |name| within(PATIENCE / 4, || has_left(name));
    let storage = engine.store.database();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| engine.revoke(&revocation(&all[0])));
        let has_first = leaves("first");
        let second = scope.spawn(|| engine.revoke(&revocation(&all[1])));
        let id = all[2].blocks().unwrap().pop().unwrap().id;
        std::fs::write(world.folder.path().join("revoked"), format!("id {id}\n")).unwrap();
        let third = scope.spawn(|| {
            engine.reload_policy(None);
            engine.evict_lost();
        });
        let all = [has_first, leaves("second"), leaves("third")];
        let is_written = first.is_finished() || second.is_finished();
        drop(storage);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        third.join().unwrap();
        assert_eq!((all, is_written), ([true; 3], false));
    });
    let kept = engine.store.revocations().unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
}

/// An instance that was evicted is not started again, by an update that fails, say.
#[test]
fn an_evicted_module_does_not_run_again() {
    let world = World::new().with_source();
    world.install(&world.credential(&[]));
    let source = &world.engine.sources["tap"];
    let again = || world.engine.copy(&world.key(), source, ModuleId(1)).is_some();
    assert!(again());
    let watched = world.engine.watched().remove(0);
    watched.evict("revoked");
    assert!(!again(), "its instance was evicted");
    let world = World::new().with_source();
    world.install(&world.credential(&[]));
    let why = "its bound was violated".to_owned();
    world.engine.modules().get_mut(&world.key()).unwrap().life.live_mut().unwrap().leave(why);
    let source = &world.engine.sources["tap"];
    assert!(world.engine.copy(&world.key(), source, ModuleId(1)).is_none(), "it leaves");
}

/// Checks may take their time, so that the end of others does not wait for them.
#[test]
fn what_is_clear_at_once_ends_without_an_evaluation_of_checks() {
    let world = World::new();
    let credentials = [world.credential(&[]), world.credential(&[(Field::Memory, "64MiB")])];
    for (name, credential) in ["checked", NAME].into_iter().zip(&credentials) {
        world.install_as(name, credential);
    }
    write_policy(world.folder.path(), &world.root, "[checks]\ndatalog = 'check if interface(\"eth1\")'\n");
    let id = credentials[1].blocks().unwrap().pop().unwrap().id;
    std::fs::write(world.folder.path().join("revoked"), format!("id {id}\n")).unwrap();
    world.engine.reload_policy(None);
    world.engine.evict_lost();
    let evictions = || -> Vec<String> {
        world.log().lines().filter(|line| line.contains("\"evict\"")).map(str::to_owned).collect()
    };
    assert!(evictions().len() == 1 && evictions()[0].contains("revoked"), "{:?}", evictions());
    world.engine.evict_lost_by(Node::lost_by_checks, world.engine.watched());
    assert!(evictions().len() == 2 && evictions()[1].contains("a check fails"), "{:?}", evictions());
}

#[test]
fn checks_delay_no_change_of_the_list() {
    delay_by_checks("list");
}

#[test]
fn checks_delay_no_revocation() {
    delay_by_checks("request");
}

/// Revokes one of two modules while a pass over all checks takes seconds.
fn delay_by_checks(by: &str) {
    const PASS: Duration = Duration::from_secs(4);
    let world = World::new();
    // It considers all pairs.
    let facts: String = (0..100).map(|n| format!("x_n({n}); ")).collect();
    let datalog = facts + "check if x_n($one), x_n($other), false or true";
    let checked = world.credential(&[]).narrow(&Narrow { datalog, ..Narrow::default() }, None).unwrap();
    let plain = world.credential(&[(Field::Memory, "64MiB")]);
    for (name, credential) in [("checked", &checked), (NAME, &plain)] {
        world.install_as(name, credential);
    }
    let engine = &world.engine;
    let begun = Instant::now();
    engine.evict_lost_by(Node::lost_by_checks, engine.watched());
    let each = begun.elapsed();
    {
        let watched = &mut engine.modules().watched;
        let checked = watched[0].clone();
        watched.extend(std::iter::repeat_n(checked, PASS.div_duration_f64(each) as usize));
    }
    [CHECKS, REVIEW].into_iter().for_each(|standing| drop(engine.stand(standing).unwrap()));
    std::thread::sleep(PASS / 20);
    let begun = Instant::now();
    match by {
        "request" => engine.revoke(&revocation(&plain)).unwrap(),
        _ => {
            let id = plain.blocks().unwrap().pop().unwrap().id;
            std::fs::write(world.folder.path().join("revoked"), format!("id {id}\n")).unwrap();
        }
    }
    while shown(&world).0 != State::Evicted {
        assert!(begun.elapsed() < PASS / 2, "it waits for the checks of others");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(begun.elapsed() < PASS / 2, "the reply waits for the checks of others");
}

/// No quotas are known without it.
#[test]
fn a_horizon_of_quotas_that_is_damaged_meanwhile_is_a_fault_until_it_is_mended() {
    let world = World::new();
    let engine = &world.engine;
    engine.stand(STORAGE).unwrap();
    assert!(engine.health().ok, "{:?}", engine.health().reasons);
    let horizon = engine.present_node().unwrap().policy().quotas().join("horizon");
    std::fs::create_dir_all(&horizon).unwrap();
    let become_ok =
        |ok| assert!(within(PATIENCE, || engine.health().ok == ok), "{:?}", engine.health().reasons);
    become_ok(false);
    let reasons = engine.health().reasons;
    assert!(reasons[0].starts_with("quotas: ") && reasons[0].contains("horizon"), "{reasons:?}");
    std::fs::remove_dir(&horizon).unwrap();
    become_ok(true);
}

/// The node's own changes of a module are short, so that a request waits for them.
#[test]
fn a_request_waits_for_a_change_by_the_node() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let (engine, key) = (&world.engine, world.key());
    let changing = engine.begin_by(By::Node, &key).unwrap_or_else(|_| panic!());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(changing);
        });
        engine.stop(&world.owner(), NAME, None).unwrap();
    });
}

/// A module that was evicted keeps its reason, whether or not it is taken down by then.
#[test]
fn a_stop_of_an_evicted_module_changes_nothing() {
    for is_down in [false, true] {
        let world = World::new();
        let credential = world.credential(&[]);
        world.install(&credential);
        world.engine.revoke(&revocation(&credential)).unwrap();
        if is_down {
            world.take_down();
        }
        let before = shown(&world);
        assert!(before.0 == State::Evicted && before.1.contains("revoked"), "{before:?}");
        world.engine.stop(&world.owner(), NAME, None).unwrap();
        assert_eq!(shown(&world), before, "{is_down}");
    }
}

#[test]
fn a_second_stop_changes_nothing() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let first = world.engine.stop(&world.owner(), NAME, None).unwrap();
    let second = world.engine.stop(&world.owner(), NAME, Some(first.revision)).unwrap();
    assert_eq!((second.revision, second.state, second.reason), (first.revision, first.state, first.reason));
}
