//! Tests of sources that end.

use super::*;
use crate::config::Config;
use crate::test_world::{PATIENCE, plan, within};
use flame_worker::Worker;
use std::path::Path;
use std::time::Instant;

/// Starts a source without its supervisor: the test does what follows the end of its run.
fn started() -> (SourceRun, Worker) {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../demo/demo.pcap");
    let text = format!(
        "[node]\nstorage = \"state\"\n[socket]\npath = \"sock\"\n\
         [sources.tap]\nfile = {demo:?}\nrepeat = true\n"
    );
    let config = Config::parse(text.as_bytes(), "node.toml", Path::new("/")).unwrap();
    let config = config.sources["tap"].clone();
    let (routes, charging) = (Routes::default(), Arc::<Charging>::default());
    let launch = Launch {
        config: config.clone(),
        place: Place::captures(),
        engines: Engines::new().unwrap(),
        runner: None,
        dispatch_key: None,
        link: None,
        routes: routes.clone(),
        charging: charging.clone(),
    };
    let shared = Arc::<Shared>::default();
    let worker = launch.start(&mut shared.inner(), open(&config).unwrap()).unwrap();
    let (bandwidth, thread) = Default::default();
    let name = "tap".to_owned();
    let place = Place::captures();
    (SourceRun { name, config, place, routes, charging, link: None, bandwidth, shared, thread }, worker)
}

/// The workers have ended, and what they counted is not reported yet.
#[test]
fn totals_do_not_fall_while_a_source_fails() {
    let (source, worker) = started();
    assert!(within(PATIENCE, || source.snapshot().0.packets > 0), "no packets");
    let seen = source.snapshot().0;
    let handle = source.shared.inner().handle.clone().unwrap();
    handle.stop();
    let (report, _) = worker.join().unwrap();
    assert!(handle.snapshot().is_err());
    assert_eq!(source.snapshot().0, seen);
    assert!(report.packets >= seen.packets);
}

/// Its workers have ended, and their report comes a moment later.
#[test]
fn a_module_that_is_removed_as_its_source_ends_keeps_its_account() {
    let (source, worker) = started();
    let id = source.number();
    let plan = plan(id, "probe#1");
    let account = |offered| {
        let mut account = Account::default();
        account.offered = offered;
        account
    };
    {
        let mut inner = source.shared.inner();
        inner.past_accounts.insert(plan.name.clone(), account(4));
        inner.modules.insert(id, Module::from(plan));
    }
    let handle = source.shared.inner().handle.clone().unwrap();
    handle.stop();
    let (mut report, _) = worker.join().unwrap();
    report.accounts.push(("probe#1".to_owned(), account(36)));
    let removed = std::thread::scope(|scope| {
        let removing = scope.spawn(|| source.remove(id));
        assert!(within(PATIENCE, || !source.shared.inner().modules.contains_key(&id)), "it is not removed");
        // The longer, the more a removal that does not wait would miss.
        std::thread::sleep(Duration::from_millis(50));
        source.shared.ended(Ok(report), &source.routes);
        removing.join().unwrap()
    });
    assert_eq!(removed, account(40));
    let inner = source.shared.inner();
    assert!(inner.past_accounts.is_empty() && inner.changing.is_empty(), "nothing is left of it");
}

/// A module that the source does not know, since its process could not be started, say, has no account.
#[test]
fn a_removal_does_not_wait_for_a_source_that_runs() {
    let (source, worker) = started();
    let id = source.number();
    source.shared.inner().modules.insert(id, Module::from(plan(id, "probe#1")));
    let start = Instant::now();
    assert_eq!(source.remove(id), Account::default());
    assert!(start.elapsed() < REPORT, "{:?}", start.elapsed());
    let handle = source.shared.inner().handle.clone().unwrap();
    handle.stop();
    worker.join().unwrap();
}

/// The source ends and is started again with the old module while that is replaced. Whether the second
/// attempt succeeds or not, all packets are in some account.
#[test]
fn a_module_that_is_replaced_while_its_source_is_started_again_keeps_all_packets() {
    let account = |offered| {
        let mut account = Account::default();
        account.offered = offered;
        account
    };
    for succeeds in [true, false] {
        let (source, worker) = started();
        let (old, new) = (source.number(), source.number());
        let (before, after) = (plan(old, "probe#1"), plan(new, "probe#2"));
        {
            let mut inner = source.shared.inner();
            inner.past_accounts.insert(before.name.clone(), account(1));
            inner.modules.insert(old, Module::from(before));
        }
        let mut attempts = 0;
        let replaced = source.replace_by(old, &Module::from(after), |handle| {
            attempts += 1;
            if attempts > 1 {
                return if succeeds { Ok(account(100)) } else { Err(RunError::Unknown(old)) };
            }
            // What the new one had until the source ended.
            let mut report = Report::default();
            report.accounts.push(("probe#2".to_owned(), account(1000)));
            source.shared.ended(Ok(report), &source.routes);
            let mut inner = source.shared.inner();
            inner.handle = Some(handle.clone());
            inner.starts += 1;
            Ok(account(10))
        });
        assert_eq!(attempts, 2);
        let accounts = source.snapshot().1;
        match succeeds {
            true => {
                assert_eq!(replaced.unwrap(), account(111));
                assert_eq!(accounts["probe#2"], account(1000));
            }
            false => {
                assert!(replaced.is_err());
                assert_eq!(accounts.len(), 1, "{accounts:?}");
                assert_eq!(accounts["probe#1"], account(1011));
            }
        }
        let handle = {
            let inner = source.shared.inner();
            assert!(inner.changing.is_empty());
            assert_eq!(inner.modules.keys().copied().collect::<Vec<_>>(), [if succeeds { new } else { old }]);
            inner.handle.clone().unwrap()
        };
        handle.stop();
        worker.join().unwrap();
    }
}

/// The source ends, and may be started again without the module, while that is added. What the module had
/// until then is in its account if it is added, and nowhere else.
#[test]
fn a_module_that_is_added_as_its_source_ends_keeps_all_packets() {
    for (restarts, succeeds) in [(true, true), (true, false), (false, true)] {
        let (source, worker) = started();
        let id = source.number();
        let mut attempts = 0;
        let added = source.add_by(&Module::from(plan(id, "probe#1")), |handle| {
            attempts += 1;
            if attempts > 1 {
                return if succeeds { Ok(()) } else { Err(RunError::Unknown(id)) };
            }
            let mut report = Report::default();
            let mut account = Account::default();
            account.offered = 1000;
            report.accounts.push(("probe#1".to_owned(), account));
            source.shared.ended(Ok(report), &source.routes);
            if restarts {
                let mut inner = source.shared.inner();
                inner.handle = Some(handle.clone());
                inner.starts += 1;
            }
            Ok(())
        });
        assert_eq!((attempts, added.is_ok()), (1 + usize::from(restarts), succeeds));
        let inner = source.shared.inner();
        let counted = inner.past_accounts.get("probe#1").map(|account| account.offered);
        assert_eq!(counted, succeeds.then_some(1000));
        assert_eq!(inner.modules.contains_key(&id), succeeds);
        assert!(inner.changing.is_empty());
        drop(inner);
        worker.handle().stop();
        worker.join().unwrap();
    }
}
