//! Tests of a node's engine without workers: grants, revocations, evictions and rows.

use crate::engine::By;
use crate::log::Log;
use crate::reach::Reach;
use crate::spool::Spool;
use crate::store::states::StateTerms;
use crate::store::{Owner, StoreError, Stored, code_name};
use crate::test_world::{MANIFEST, NAME, PATIENCE, World, revocation, within, write_policy};
use flame_abi::manifest::Manifest;
use flame_api::{Answer, Code, RenewRequest, State};
use flame_compile::ModuleInfo;
use flame_node::Possession;
use flame_plan::{Account, Audience, ModuleId};
use flame_trust::{Challenge, Credential, Field, Narrow, SESSION};
use flame_worker::Place;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

#[test]
fn an_eviction_waits_for_the_change_that_is_in_progress() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let changing = world.engine.begin(&world.owner(), NAME).unwrap();
    world.engine.revoke(&revocation(&credential)).unwrap();
    // Its instances have ended, and its row is the change's alone.
    assert!(world.engine.modules()[&world.key()].life.live().unwrap().why_leaving().is_some());
    assert_eq!((world.state(), world.row().unwrap().revision), (State::Running, 1));
    // Clients see at once that it does not run.
    let shown = world.engine.show(&world.owner(), NAME).unwrap();
    assert_eq!((shown.state, world.engine.status().running), (State::Evicted, 0));
    let refused = world.engine.stop(&world.owner(), NAME, None).unwrap_err();
    assert!(refused.cause.contains("by another request"), "{refused}");
    // The change removes the module: nothing brings its row back.
    drop(changing);
    let removing = world.engine.begin_by(By::Node, &world.key()).unwrap_or_else(|_| panic!());
    let refused = world.engine.stop(&world.owner(), NAME, None).unwrap_err();
    assert!(refused.cause.contains("by the node"), "{refused}");
    world.engine.store.remove(&world.owner(), NAME, 1, None).unwrap();
    world.engine.modules().remove(&world.key());
    drop(removing);
    world.take_down();
    assert_eq!(world.row(), None);
    // Without a change in progress it is taken down at once.
    let other = world.credential(&[(Field::Memory, "64MiB")]);
    world.install(&other);
    world.engine.revoke(&revocation(&other)).unwrap();
    assert_eq!(world.state(), State::Evicted);
    let row = world.row().unwrap();
    assert_eq!((row.state, row.revision), (State::Evicted, 2));
    assert_eq!(world.log().matches("\"evict\"").count(), 2, "{}", world.log());
}

/// A holder could read what its module sees from such numbers, whatever its grant lets out.
#[test]
fn numbers_that_a_module_chooses_are_rounded() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let mut chosen = Account::default();
    (chosen.calls, chosen.messages_lost, chosen.records_lost, chosen.records) = (1000, 3, 7, 5);
    world.engine.modules().get_mut(&world.key()).unwrap().past.add(&chosen);
    let shown = world.engine.show(&world.owner(), NAME).unwrap().account;
    assert_eq!((shown.calls, shown.messages_lost, shown.records_lost, shown.records), (1024, 4, 0, 5));
}

/// Clients were told of it, also if the node ends before the module is taken down.
#[test]
fn an_eviction_is_written_at_the_end_of_the_node() {
    for is_in_progress in [false, true] {
        let world = World::new();
        let credential = world.credential(&[]);
        world.install(&credential);
        let changing = world.engine.begin(&world.owner(), NAME).unwrap();
        world.engine.revoke(&revocation(&credential)).unwrap();
        let changing = Some(changing).filter(|_| is_in_progress);
        world.engine.finish();
        drop(changing);
        world.engine.write_rows();
        let row = world.row().unwrap();
        assert_eq!((row.state, row.revision), (State::Evicted, 2));
    }
}

/// An instance is known to the review also while the change is made that begins or ends it.
#[test]
fn an_instance_that_no_module_has_yet_is_evicted_once() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let changing = world.engine.begin(&world.owner(), NAME).unwrap();
    let live = std::mem::take(&mut world.engine.modules().get_mut(&world.key()).unwrap().life);
    world.engine.revoke(&revocation(&credential)).unwrap();
    world.engine.review_all();
    assert_eq!(world.log().matches("\"evict\"").count(), 1, "{}", world.log());
    // It is the module's again, which leaves.
    world.engine.modules().get_mut(&world.key()).unwrap().life = live;
    drop(changing);
    world.engine.review_all();
    assert_eq!((world.state(), world.row().unwrap().state), (State::Evicted, State::Evicted));
    assert_eq!(world.log().matches("\"evict\"").count(), 1, "{}", world.log());
    assert!(world.engine.watched().is_empty());
}

/// A revocation while a module is compiled ends its install: the review does not know the instance yet.
#[test]
fn a_module_that_lost_its_grant_meanwhile_does_not_begin() {
    let world = World::new();
    let credential = world.credential(&[]);
    let (decided, _) = world.decide(&credential);
    let begun = Instant::now();
    world.engine.revoke(&revocation(&credential)).unwrap();
    assert!(begun.elapsed() < PATIENCE / 2, "nothing runs, so there is nothing to wait for");
    let refused = world.engine.watch(("tap", ModuleId(1)), decided).err().unwrap();
    assert_eq!(refused.code, Code::Forbidden, "{refused}");
    assert!(refused.cause.contains("lost its grant before the change was made: "), "{refused}");
    assert!(world.engine.watched().is_empty() && !world.log().contains("\"install\""), "{}", world.log());
}

/// The end of a module comes before every later entry, also if the log could not be written when it ended.
#[test]
fn ends_that_could_not_be_written_are_written_before_other_entries() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let (log, aside) = (world.folder.path().join("audit.log"), world.folder.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    std::fs::create_dir(&log).unwrap();
    let live = std::mem::take(&mut world.engine.modules().get_mut(&world.key()).unwrap().life);
    world.engine.record_end(
        live.live().unwrap().granted.as_ref(),
        &["a fault".to_owned()],
        &Account::default(),
    );
    assert!(world.engine.health().reasons[0].contains("audit log"), "{:?}", world.engine.health().reasons);
    drop(live);
    std::fs::remove_dir(&log).unwrap();
    std::fs::rename(&aside, &log).unwrap();
    let written = world.log();
    world.engine.revoke(&revocation(&credential)).unwrap();
    let later = world.log();
    let events: Vec<_> = later[written.len()..].lines().map(|line| line.to_owned()).collect();
    let expected = ["\"fault\"", "\"end\"", "\"revoke\""];
    assert_eq!(events.len(), 3, "{later}");
    assert!(events.iter().zip(expected).all(|(line, event)| line.contains(event)), "{events:?}");
    assert!(events[1].contains("0 packets offered") && events[1].contains("; at 20"), "{events:?}");
}

#[test]
fn a_module_that_is_leaving_is_not_renewed() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let proof = world.row().unwrap().proof.unwrap();
    let changing = world.engine.begin(&world.owner(), NAME).unwrap();
    world.engine.revoke(&revocation(&credential)).unwrap();
    drop(changing);
    let answer = Answer { key: proof.key.clone(), signature: proof.signature.to_vec() };
    let request = RenewRequest { answer, reserve: None, revision: None };
    let refused = world.engine.renew(&world.owner(), NAME, &request, proof).unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused}");
    assert!(refused.cause.contains("just lost its grant"), "{refused}");
}

#[test]
fn rows_are_written_for_the_revision_that_was_read() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let store = &world.engine.store;
    let row = world.row().unwrap();
    let next = Stored { revision: 2, ..row.clone() };
    store.put(&next, Some(1), None).unwrap();
    for raced in [
        store.put(&Stored { revision: 3, ..row.clone() }, Some(1), None),
        store.put(&row, None, None),
        store.remove(&row.owner, NAME, 1, None),
        store.put(&Stored { name: "other".to_owned(), ..row.clone() }, Some(1), None),
    ] {
        assert!(matches!(raced, Err(StoreError::Raced { .. })), "{raced:?}");
    }
    assert_eq!(world.row(), Some(next));
    store.remove(&row.owner, NAME, 2, None).unwrap();
    assert!(store.put(&Stored { revision: 3, ..row }, Some(2), None).is_err());
    assert_eq!(world.row(), None);
}

/// The audit log is locked by another process here, which delays the review while it writes there.
#[test]
fn modules_are_not_locked_while_grants_are_decided_and_logged() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let lock =
        std::fs::File::options().append(true).open(world.folder.path().join("node.key.audit.lock")).unwrap();
    lock.lock().unwrap();
    // A policy that knows the role no more.
    write_policy(
        world.folder.path(),
        &world.root,
        "[roles.other]\nselect = \"\"\nexpose = \"all\"\ncalls = \"\"\ncode = \"any\"\n",
    );
    let text = std::fs::read_to_string(world.folder.path().join("policy.toml")).unwrap();
    std::fs::write(world.folder.path().join("policy.toml"), text.replace("roles.all", "roles.none")).unwrap();
    world.engine.reload_policy(None);
    std::thread::scope(|scope| {
        let review = scope.spawn(|| world.engine.review_all());
        let is_leaving = || {
            let modules = world.engine.modules.try_lock().ok()?;
            modules[&world.key()].life.live().map(|live| live.why_leaving().is_some())
        };
        let has_left = within(PATIENCE, || is_leaving() == Some(true));
        assert!(has_left, "the modules are locked, or nothing is reviewed");
        assert!(!review.is_finished());
        drop(lock);
        review.join().unwrap();
    });
    assert_eq!(world.state(), State::Evicted);
}

#[test]
fn a_module_that_was_admitted_under_an_earlier_policy_is_reviewed_under_the_present_one() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.engine.revoke(&revocation(&world.credential(&[(Field::Memory, "1MiB")]))).unwrap();
    // An install that was decided before the revocation and is entered after it.
    world.install(&credential);
    let entry = world.engine.modules().remove(&world.key()).unwrap();
    world.engine.revoke(&revocation(&credential)).unwrap();
    world.engine.modules().insert(world.key(), entry);
    world.engine.review_all();
    assert_eq!(world.state(), State::Evicted);
}

#[test]
fn a_principal_has_its_number_of_modules_and_its_storage() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let (alice, other) = (world.owner(), Owner { principal: "bob".to_owned(), ..world.owner() });
    // Two of eight, which she shares with those to whom she handed her credential on.
    let delegate = Owner { principal: "alice/carol#00".to_owned(), ..world.owner() };
    let limits = world.engine.config().limits;
    assert_eq!((limits.modules, limits.modules_per_principal), (8, 2));
    world.engine.has_room(&alice, 1).unwrap();
    let coming = world.engine.begin(&delegate, "another").unwrap();
    for full in [&alice, &delegate] {
        let refused = world.engine.has_room(full, 1).unwrap_err();
        assert!(refused.cause.contains("this principal has 2 modules"), "{refused}");
    }
    world.engine.has_room(&other, 1).unwrap();
    drop(coming);
    world.engine.has_room(&delegate, 1).unwrap();
    // The node's total does not show how many modules others have.
    let all: Vec<_> =
        (0..7).map(|n| world.engine.begin(&Owner::default(), &format!("m{n}")).unwrap()).collect();
    let refused = world.engine.has_room(&other, 1).unwrap_err();
    assert_eq!(refused.cause, "the node has no place for another module");
    assert!(refused.for_operator().cause.contains("number 9 of 8"));
    drop(all);
}

#[test]
fn a_narrowed_session_reads_no_rows_of_wider_instances() {
    let world = World::new();
    let wide = world.credential(&[]);
    world.install(&wide);
    let reach = |credential: &Credential| {
        let manifest = Arc::new(Manifest::parse(MANIFEST.as_bytes()).unwrap());
        let info = ModuleInfo { hash: [7; 32], manifest, messages: false, size: Default::default() };
        let challenge = Challenge::new().unwrap();
        let answer = challenge.answer(&world.alice, credential, &info.hash);
        let applicant = world.applicant(credential, Possession::Answered(challenge, answer));
        let admitted = applicant.admit(&info, &[], &[]).unwrap();
        Arc::new(Reach::of(&admitted, &flame_trust::Place::interface("eth0").unwrap()))
    };
    let manifest = Arc::new(Manifest::parse(MANIFEST.as_bytes()).unwrap());
    let entry = Arc::new(flame_plan::CatalogEntry { name: "m".to_owned(), hash: [7; 32], manifest });
    let column = arrow_schema::Field::new("n", arrow_schema::DataType::UInt64, false);
    let schema = Arc::new(arrow_schema::Schema::new(vec![column]));
    let values = Arc::new(arrow_array::UInt64Array::from_iter_values(0..1));
    let row = arrow_array::RecordBatch::try_new(schema, vec![values]).unwrap();
    let (spool, log) = (Spool::new(1 << 20, Arc::default()), Log::default());
    // Returns the number of different rights of the rows, of rows that were dropped, and of lines that a
    // session has which covers these rights.
    let make = |reach: Arc<Reach>| {
        spool.push((&entry, &[reach.clone()].into()), &entry.manifest.tables[0], &row);
        log.text("text", Some(&reach));
        spool.release();
        log.release();
        let lines = log.lines(Audience::Holder, |made| made.is_like(&reach));
        (spool.rights().len(), spool.filled().dropped, lines.len())
    };
    let memory = |n: usize| world.credential(&[(Field::Memory, &format!("{}MiB", n + 1))]);
    assert_eq!(make(reach(&wide)), (1, 0, 1));
    // The same rights again are no other ones.
    assert_eq!(make(reach(&wide)), (1, 0, 2));
    for n in 0..16 {
        assert_eq!(make(reach(&memory(n))), (n + 2, 0, 1));
    }
    assert_eq!(make(reach(&memory(16))), (17, 2, 1), "the rows of too many kinds are dropped");
    assert_eq!(log.lines(Audience::Holder, |_| true).len(), 17, "and their lines are nobody's");
    assert_eq!(log.lines(Audience::Operator, |_| false).len(), 19);
    // The session of a narrow credential does not cover what the module had before.
    let narrow = wide
        .narrow(&Narrow { fields: vec![(Field::Expose, "count".to_owned())], ..Narrow::default() }, None)
        .unwrap();
    let challenge = Challenge::new().unwrap();
    let answer = challenge.answer(&world.alice, &narrow, &SESSION);
    let policy = world.engine.policy().unwrap();
    let session = policy.present(&narrow, (&challenge, &answer)).unwrap();
    assert!(policy.admit_operation(&session, &reach(&wide).operation()).is_err());
    assert!(policy.admit_operation(&session, &reach(&narrow).operation()).is_ok());
}

#[test]
fn the_rights_of_a_user_are_those_of_the_present_configuration() {
    use crate::identity::{Access, Caller, Connection, Peer};
    let world = World::new();
    let connection = Connection::new(Peer::Unix { uid: 4001, node: 0 });
    let users = |operators: &[&str], users: &[&str]| {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut config = world.engine.config.write().unwrap();
        let socket = config.socket.as_mut().unwrap();
        (socket.operators, socket.users) = (of(operators), of(users));
        drop(config);
        world.engine.end_decisions();
    };
    let is_operator = || matches!(connection.caller(&world.engine), Ok(Caller::Operator));
    assert_eq!(connection.access(&world.engine), Access::None);
    users(&["4001"], &[]);
    assert!(is_operator() && connection.payer(&world.engine).is_none());
    users(&[], &["4001"]);
    assert_eq!(connection.access(&world.engine), Access::User);
    assert!(!is_operator() && connection.payer(&world.engine).is_some());
    users(&[], &[]);
    assert_eq!(connection.access(&world.engine), Access::None);
}

#[test]
fn faults_of_the_node_are_told_to_its_operator_alone() {
    let world = World::new();
    let secret = world.folder.path().join("state").display().to_string();
    let error = StoreError::Code { path: secret.clone(), hash: "00".to_owned() };
    let shown = world.engine.stored::<()>(Err(error)).unwrap_err();
    assert!(!serde_json::to_string(&shown).unwrap().contains(&secret), "{shown}");
    assert!(!shown.to_string().contains(&secret));
    assert!(shown.for_operator().cause.contains(&secret));
    assert!(world.engine.health().reasons[0].contains(&secret), "for the operator");
}

#[test]
fn meters_of_a_credential_live_as_long_as_its_modules() {
    let world = World::new();
    for n in 0..3 {
        let credential = world.credential(&[(Field::Memory, &format!("{}MiB", 64 + n))]);
        world.install(&credential);
        let mut modules = world.engine.modules();
        let live = modules.get_mut(&world.key()).unwrap().life.live_mut().unwrap();
        let granted = live.granted.as_ref().unwrap();
        let (node, admitted) = (world.engine.present_node().unwrap(), &granted.admitted());
        let (one, two) = (node.meters(admitted, true).unwrap(), node.meters(admitted, true).unwrap());
        let in_use = node.meters_in_use();
        assert!(in_use > 0);
        drop(one);
        assert_eq!(node.meters_in_use(), in_use, "another module counts in them");
        drop(two);
        assert_eq!(node.meters_in_use(), 0, "{n}");
        modules.remove(&world.key());
        drop(modules);
        world.engine.store.remove(&world.owner(), NAME, 1, None).unwrap();
    }
}

/// No crash between the two leaves the new module with the state of the one before.
#[test]
fn a_change_that_begins_empty_takes_the_state_with_it() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let (store, owner) = (&world.engine.store, world.owner());
    let terms = StateTerms { module: NAME.to_owned(), version: 1, workers: 1, rights: String::new() };
    let states = [(Place::Worker(0), Arc::from(&b"state"[..]))];
    assert!(store.put_states(&owner, NAME, None, &terms, &states).unwrap());
    let next = Stored { revision: 2, ..world.row().unwrap() };
    assert!(matches!(store.put_empty(&next, Some(7), None), Err(StoreError::Raced { .. })));
    assert_eq!((world.row().unwrap().revision, store.state_bytes(&owner, NAME)), (1, 5));
    store.put(&next, Some(1), None).unwrap();
    assert_eq!(store.state_bytes(&owner, NAME), 5);
    store.put_empty(&Stored { revision: 3, ..next }, Some(2), None).unwrap();
    assert_eq!((world.row().unwrap().revision, store.state_bytes(&owner, NAME)), (3, 0));
}

/// The bytes that a principal chooses count in the form in which they are stored.
#[test]
fn control_characters_in_settings_count_as_they_are_stored() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let settings = Arc::new(BTreeMap::from([("text".to_owned(), "\u{1}".repeat(1000))]));
    let (plain, next) = (world.row().unwrap(), Stored { settings, revision: 2, ..world.row().unwrap() });
    world.engine.store.put(&next, Some(1), None).unwrap();
    assert!(next.row_bytes() >= plain.row_bytes() + 6000, "{}", next.row_bytes());
}

/// A credential is stored with its module, and a renewal may bring a larger one.
#[test]
fn a_renewal_counts_in_what_a_principal_may_store() {
    let world = World::new();
    let credential = world.credential(&[]);
    world.install(&credential);
    let bytes = world.engine.config().limits.storage_per_principal;
    world.engine.modules().get_mut(&world.key()).unwrap().known.bytes = bytes;
    let renew = |more: &str| {
        let mut proof = world.row().unwrap().proof.unwrap();
        proof.credential.push_str(more);
        let answer = Answer { key: proof.key.clone(), signature: proof.signature.to_vec() };
        let request = RenewRequest { answer, reserve: None, revision: None };
        world.engine.renew(&world.owner(), NAME, &request, proof).map_err(|refused| refused.code)
    };
    // The same size fits, and no byte more. The source is missing here.
    assert_ne!(renew("").unwrap_err(), Code::TooLarge);
    assert_eq!(renew("x").unwrap_err(), Code::TooLarge);
}

/// Neither a root nor a name of a row gives anybody the module of another principal.
#[test]
fn a_row_whose_owner_is_not_that_of_its_credential_does_not_run() {
    let world = World::new();
    world.install(&world.credential(&[]));
    let row = world.row().unwrap();
    world.engine.check_owner(&row).unwrap();
    let (bob, root) = (Owner { principal: "bob".to_owned(), ..world.owner() }, world.alice.public());
    let eth0 = flame_trust::Place::interface("eth0").unwrap();
    for owner in [bob, Owner { root: root.to_string(), ..world.owner() }] {
        let row = Stored { owner, ..row.clone() };
        // At the start, and when a stopped module is changed.
        for refused in [world.engine.check_owner(&row), world.engine.applicant(&row, &eth0).map(drop)] {
            let refused = refused.unwrap_err();
            assert!(refused.cause.contains("another principal's"), "{refused}");
        }
    }
}

/// Whether another principal has installed a file shows in nothing that an install does.
#[test]
fn code_that_is_there_is_written_again() {
    let world = World::new();
    let hash = flame_compile::hash_of(b"code");
    let stored = || {
        world.engine.store.put_code(&hash, b"code").unwrap();
        let file = world.engine.config().storage.join("code").join(code_name(&hash));
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(file).unwrap())
    };
    let first = stored();
    assert_ne!(stored(), first, "another file");
}
