use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The memory of one call, counted while it is held.
struct Held(Rc<Cell<u64>>, u64);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

fn hold(count: &Rc<Cell<u64>>) -> impl FnOnce(u64) -> Option<Held> {
    let count = count.clone();
    move |bytes| {
        count.set(count.get() + bytes);
        Some(Held(count, bytes))
    }
}

fn id(n: u32) -> ModuleId {
    ModuleId(n)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A call without a reply would time what a server sees whose replies wait.
#[test]
fn calls_of_a_module_in_steps_are_late_at_the_ends_of_intervals() {
    let mut calls = Calls::default();
    calls.join((id(1), None), vec![], names(&["a"]));
    calls.join((id(2), None), vec![], names(&["b"]));
    calls.join((id(3), None), names(&["a", "b"]), vec![]);
    calls.set_steps(id(1));
    for used in [0, 0, 1] {
        assert!(calls.call((id(3), used, used.into()), &[], 0, |_| Some(())));
    }
    // One waits, the others are made.
    assert!(calls.next_request(|_| true).is_some() && calls.next_request(|_| true).is_some());
    let late = |calls: &mut Calls<()>| {
        let mut all = Vec::new();
        while let Some(done) = calls.next_outcome(|_| true) {
            assert_eq!(done.outcome, Outcome::Late);
            calls.taken(id(3));
            all.push(done.token);
        }
        all
    };
    calls.expire(5 * REPLY_MAX_NS);
    assert_eq!(late(&mut calls), [1]);
    assert!(!calls.is_due(u64::MAX - 1));
    calls.end_interval(id(2), 5 * REPLY_MAX_NS);
    calls.end_interval(id(1), REPLY_MAX_NS - 1);
    assert!(late(&mut calls).is_empty());
    calls.end_interval(id(1), REPLY_MAX_NS);
    assert_eq!(late(&mut calls), [0, 0]);
}

#[test]
fn callers_have_their_turns_and_servers_a_few_calls_at_a_time() {
    let mut calls = Calls::default();
    calls.join((id(1), None), vec![], names(&["a"]));
    (2..5).for_each(|n| calls.join((id(n), None), names(&["a"]), vec![]));
    for (caller, number) in [(2, 20), (3, 2), (4, 2)] {
        assert!((0..number).all(|token| calls.call((id(caller), 0, token), &[], 0, |_| Some(()))));
    }
    let mut order = Vec::new();
    while let Some(request) = calls.next_request(|_| true) {
        order.push(request.caller.0);
    }
    assert_eq!(order.len(), SERVICE_DELIVERED_MAX);
    assert!(!calls.can_deliver(|_, _| true));
    // The next one is delivered when one was made, whatever its outcome.
    for call in 0.. {
        calls.made(id(1), call);
        let Some(request) = calls.next_request(|_| true) else { break };
        order.push(request.caller.0);
    }
    assert_eq!((&order[..8], order.len()), (&[2, 3, 4, 2, 3, 4, 2, 2][..], 24));
    assert!(calls.reply(id(1), 0, b"x") && !calls.reply(id(1), 0, b"x"), "a call has one reply");
    assert!(!calls.reply(id(2), 1, &[]), "the call of another");
    assert!(calls.can_deliver(|_, _| true) && !calls.can_deliver(|_, serves| serves));
    let done = calls.next_outcome(|_| true).unwrap();
    let found = (done.caller, done.token, done.outcome, &*done.reply);
    assert_eq!(found, (id(2), 0, Outcome::Replied, &b"x"[..]));
}

#[test]
fn the_part_of_a_tenant_does_not_grow_with_its_modules() {
    let mut calls = Calls::default();
    calls.join((id(1), None), vec![], names(&["a"]));
    let tenant = |n| if n == 30 { "alice" } else { "bob" };
    for n in 2..52 {
        calls.join((id(n), Some(tenant(n))), names(&["a"]), vec![]);
        (0..9).for_each(|token| assert!(calls.call((id(n), 0, token), &[], 0, |_| Some(()))));
    }
    let mut order = Vec::new();
    for call in 0..18 {
        order.extend(calls.next_request(|_| true).map(|request| request.caller.0));
        calls.made(id(1), call);
    }
    let own = order.iter().filter(|caller| **caller == 30).count();
    assert_eq!(own, 9, "{order:?}");
    let others: BTreeSet<_> = order.iter().filter(|caller| **caller != 30).collect();
    assert_eq!(others.len(), 9, "the modules of one have their turns: {order:?}");
}

/// A call that is late or whose caller has left is made nevertheless: no other one takes its place meanwhile.
#[test]
fn a_call_holds_its_place_until_it_was_made() {
    let mut calls = Calls::default();
    calls.join((id(1), None), vec![], names(&["a"]));
    calls.join((id(2), None), names(&["a"]), vec![]);
    (0..10).for_each(|token| assert!(calls.call((id(2), 0, token), &[], 0, |_| Some(()))));
    while calls.next_request(|_| true).is_some() {}
    calls.expire(REPLY_MAX_NS);
    calls.leave(id(2));
    calls.join((id(3), None), names(&["a"]), vec![]);
    assert!(calls.call((id(3), 0, 0), &[], REPLY_MAX_NS, |_| Some(())));
    assert!(calls.next_request(|_| true).is_none() && !calls.is_quiet());
    calls.made(id(1), 1);
    calls.made(id(1), 1);
    assert_eq!(calls.next_request(|_| true).unwrap().caller, id(3));
}

/// A module that is closed takes the outcomes of its calls, and nothing else happens to it.
#[test]
fn a_module_that_is_closed_takes_its_outcomes() {
    let mut calls = Calls::default();
    calls.join((id(1), None), names(&["b"]), names(&["a"]));
    calls.join((id(2), None), names(&["a"]), names(&["b"]));
    for n in [1, 2] {
        (0..3).for_each(|token| assert!(calls.call((id(n), 0, token), &[], 0, |_| Some(()))));
    }
    assert_eq!(calls.next_request(|to| to == id(1)).unwrap().caller, id(2));
    calls.close(id(1));
    assert!(!calls.call((id(1), 0, 0), &[], 0, |_| Some(())), "it makes no more calls");
    assert!(calls.call((id(2), 0, 7), &[], 0, |_| Some(())), "nobody offers the service");
    assert!(!calls.reply(id(1), 0, &[]), "it has ended");
    for n in [1, 2] {
        let mut outcomes = Vec::new();
        assert!(!calls.is_settled(id(n)));
        while let Some(done) = calls.next_outcome(|to| to == id(n)) {
            outcomes.push((done.token, done.outcome));
            calls.taken(id(n));
        }
        assert!(outcomes[..3].iter().all(|(_, outcome)| *outcome == Outcome::Ended), "{outcomes:?}");
        assert_eq!(outcomes.get(3).copied(), (n == 2).then_some((7, Outcome::Nobody)));
    }
    assert!(calls.is_settled(id(1)) && calls.is_settled(id(2)));
}

#[test]
fn outcomes_of_a_closed_module_can_be_forgotten() {
    let mut calls = Calls::default();
    calls.join((id(1), None), names(&["a"]), vec![]);
    (0..9).for_each(|token| assert!(calls.call((id(1), 0, token), &[], 0, |_| Some(()))));
    assert!(calls.next_outcome(|_| true).is_some());
    assert_eq!(calls.forget(id(1)), 0, "it takes them");
    calls.close(id(1));
    assert_eq!(calls.forget(id(1)), 9);
    // It takes the one that it was given.
    calls.taken(id(1));
    assert!(calls.is_settled(id(1)) && calls.is_quiet());
    assert_eq!(calls.forget(id(1)), 0);
}

#[test]
fn a_caller_has_so_many_calls_open_and_learns_how_many_were_lost() {
    let mut calls = Calls::default();
    calls.join((id(1), None), names(&["a"]), vec![]);
    calls.join((id(2), None), names(&["a"]), vec![]);
    let let_out = |calls: &mut Calls<()>, caller| {
        (0..1000).filter(|token| calls.call((id(caller), 0, *token), &[], 0, |_| Some(()))).count()
    };
    assert_eq!(
        (let_out(&mut calls, 1), let_out(&mut calls, 2)),
        (SERVICE_OPEN_MAX, SERVICE_OPEN_MAX),
        "each has a bound of its own"
    );
    assert!(!calls.call((id(1), 1, 0), &[], 0, |_| Some(())), "a number that is not there");
    let done = calls.next_outcome(|to| to == id(1)).unwrap();
    assert_eq!((done.outcome, done.lost), (Outcome::Nobody, 1000 - SERVICE_OPEN_MAX as u32));
    assert_eq!(let_out(&mut calls, 1), 0, "it has not taken the outcome");
    calls.taken(id(1));
    assert_eq!(let_out(&mut calls, 1), 1);
    calls.taken(id(1));
    assert_eq!(let_out(&mut calls, 1), 0, "an outcome that it was not given");
    calls.join((id(3), None), names(&["a"]), vec![]);
    assert!(!calls.call((id(3), 0, 0), &[], 0, |_| None), "there is no memory for it");
    assert!(calls.call((id(3), 0, 0), &[], 0, |_| Some(())));
    assert_eq!(calls.next_outcome(|to| to == id(3)).unwrap().lost, 1);
}

#[test]
fn a_service_that_is_replaced_keeps_the_calls_that_wait() {
    let mut calls = Calls::default();
    calls.join((id(1), None), vec![], names(&["x", "a"]));
    calls.join((id(2), None), names(&["a", "x"]), vec![]);
    for token in 0..3 {
        calls.call((id(2), (token == 2).into(), token), &[], 0, |_| Some(()));
    }
    let first = calls.next_request(|_| true).unwrap();
    assert_eq!((first.server, first.service), (id(1), 1));
    calls.join((id(3), None), vec![], names(&["a"]));
    let second = calls.next_request(|to| to == id(3)).unwrap();
    assert_eq!((second.server, second.service, second.call), (id(3), 0, 0));
    assert!(calls.next_request(|to| to == id(3)).is_none(), "the other service is not replaced");
    calls.leave(id(1));
    assert!(calls.reply(id(3), 0, &[]));
    let mut outcomes = Vec::new();
    while let Some(done) = calls.next_outcome(|_| true) {
        outcomes.push((done.token, done.outcome));
        calls.taken(done.caller);
    }
    assert_eq!(outcomes, [(0, Outcome::Ended), (2, Outcome::Ended), (1, Outcome::Replied)]);
}

#[test]
fn calls_of_several_services_that_are_replaced_stay_in_order() {
    let mut calls = Calls::default();
    calls.join((id(1), None), vec![], names(&["a", "b"]));
    calls.join((id(2), None), names(&["a", "b"]), vec![]);
    assert!(calls.call((id(2), 1, 0), &[], 0, |_| Some(())));
    assert!(calls.call((id(2), 0, 1), &[], 5, |_| Some(())));
    calls.join((id(3), None), vec![], names(&["a", "b"]));
    calls.expire(REPLY_MAX_NS);
    assert!(!calls.is_due(REPLY_MAX_NS));
    let done = calls.next_outcome(|_| true).unwrap();
    assert_eq!((done.token, done.outcome), (0, Outcome::Late));
}

#[derive(Clone, Debug)]
enum Step {
    Join(u32),
    Leave(u32),
    Call(u32, u16),
    Deliver(u32),
    Reply(u32, u64),
    Refuse(u32),
    Made(u32, u64),
    Take(u32),
    Taken(u32),
    Close(u32),
    Wait(u64),
    CloseAll,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0..5_u32;
    prop_oneof![
        1 => id().prop_map(Step::Join),
        1 => id().prop_map(Step::Leave),
        9 => (id(), 0..3_u16).prop_map(|(id, used)| Step::Call(id, used)),
        6 => id().prop_map(Step::Deliver),
        6 => (id(), 0..8_u64).prop_map(|(id, call)| Step::Reply(id, call)),
        1 => id().prop_map(Step::Refuse),
        6 => (id(), 0..8_u64).prop_map(|(id, call)| Step::Made(id, call)),
        5 => id().prop_map(Step::Take),
        5 => id().prop_map(Step::Taken),
        1 => id().prop_map(Step::Close),
        2 => (0..700_000_000_u64).prop_map(Step::Wait),
        1 => Just(Step::CloseAll),
    ]
}

proptest! {
    /// Each call that is let out has exactly one outcome, and its memory is held until it is taken.
    #[test]
    fn each_call_has_one_outcome(steps in prop::collection::vec(step(), 0..400)) {
        let held = Rc::<Cell<u64>>::default();
        let mut calls = Calls::default();
        let mut present = BTreeSet::new();
        // The tokens of each module without an outcome, the numbers of outcomes that it has not taken, the
        // calls that each serves, and those that each has not made.
        let mut open: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let mut given: BTreeMap<u32, usize> = BTreeMap::new();
        let mut serving: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        let mut making: BTreeSet<(u32, u64)> = BTreeSet::new();
        let mut closed = BTreeSet::new();
        let (mut now, mut token) = (0, 0);
        let all = ["a", "b", "c"];
        for step in steps {
            match step {
                // Each module offers a service of its own number and uses all; some share one.
                Step::Join(n) => if present.insert(n) {
                    let mine = all[n as usize % 3];
                    let uses = all.iter().filter(|name| **name != mine).copied().collect::<Vec<_>>();
                    calls.join((id(n), None), names(&uses), names(&[mine]));
                    open.insert(n, BTreeSet::new());
                    given.insert(n, 0);
                },
                Step::Leave(n) => {
                    calls.leave(id(n));
                    present.remove(&n);
                    open.remove(&n);
                    given.remove(&n);
                    closed.remove(&n);
                    serving.retain(|(server, _), caller| *server != n && *caller != n);
                    making.retain(|(server, _)| *server != n);
                }
                Step::Call(n, used) => {
                    token += 1;
                    if calls.call((id(n), used, token), &[0; 10], now, hold(&held)) {
                        prop_assert!(used < 2 && !closed.contains(&n));
                        open.get_mut(&n).unwrap().insert(token);
                    }
                }
                Step::Deliver(n) => if let Some(request) = calls.next_request(|to| to == id(n)) {
                    prop_assert!(present.contains(&n));
                    prop_assert!(!closed.contains(&n) && !closed.contains(&request.caller.0));
                    serving.insert((n, request.call), request.caller.0);
                    making.insert((n, request.call));
                    prop_assert!(making.iter().filter(|(server, _)| *server == n).count() <= SERVICE_DELIVERED_MAX);
                },
                Step::Reply(n, call) => {
                    let known = serving.remove(&(n, call));
                    let replied = calls.reply(id(n), call, b"yes");
                    prop_assert!(known.is_some() || !replied, "a reply to no call");
                }
                Step::Refuse(n) => if let Some(request) = calls.next_request(|to| to == id(n)) {
                    calls.refuse(id(n), request.call);
                },
                Step::Made(n, call) => {
                    making.remove(&(n, call));
                    calls.made(id(n), call);
                }
                Step::Taken(n) => {
                    calls.taken(id(n));
                    given.entry(n).and_modify(|given| *given = given.saturating_sub(1));
                }
                Step::Close(n) => {
                    calls.close(id(n));
                    closed.extend(present.contains(&n).then_some(n));
                    serving.retain(|(server, _), caller| *server != n && *caller != n);
                }
                Step::Take(n) => if let Some(done) = calls.next_outcome(|to| to == id(n)) {
                    prop_assert_eq!(done.caller, id(n));
                    prop_assert!(open.get_mut(&n).unwrap().remove(&done.token), "a second outcome");
                    *given.get_mut(&n).unwrap() += 1;
                    prop_assert!(given[&n] <= SERVICE_DELIVERED_MAX);
                    prop_assert_eq!(done.outcome == Outcome::Replied, !done.reply.is_empty());
                },
                Step::Wait(ns) => {
                    now += ns;
                    calls.expire(now);
                    prop_assert!(!calls.is_due(now));
                }
                Step::CloseAll => {
                    calls.close_all();
                    closed = present.clone();
                    serving.clear();
                }
            }
            let counts: Vec<_> = present.iter().map(|n| open[n].len() + given[n]).collect();
            prop_assert!(counts.iter().all(|count| *count <= SERVICE_OPEN_MAX));
            let settled: Vec<_> = present.iter().map(|n| calls.is_settled(id(*n))).collect();
            prop_assert_eq!(settled, counts.iter().map(|count| *count == 0).collect::<Vec<_>>());
            let bytes = (ENTRY + 10 + MAX_REQUEST) as u64;
            prop_assert_eq!(held.get(), counts.iter().sum::<usize>() as u64 * bytes);
        }
        // Nobody replies any more, and each call that is left has an outcome in time.
        calls.expire(now + REPLY_MAX_NS);
        present.iter().for_each(|n| (0..SERVICE_DELIVERED_MAX).for_each(|_| calls.taken(id(*n))));
        while let Some(done) = calls.next_outcome(|_| true) {
            prop_assert!(open.get_mut(&done.caller.0).unwrap().remove(&done.token));
            calls.taken(done.caller);
        }
        prop_assert!(open.values().all(BTreeSet::is_empty), "{:?}", open);
        prop_assert_eq!(held.get(), 0);
    }
}

#[test]
fn a_question_from_outside_has_one_outcome_and_is_paid_by_its_module() {
    let count = Rc::new(Cell::new(0));
    let mut calls = Calls::default();
    calls.join((id(1), Some("a")), vec![], names(&["names"]));
    let ask = |calls: &mut Calls<Held>, server, service: &str, now_ns| {
        let (answer, wait) = crossbeam_channel::bounded(1);
        let question = Question { service: service.to_owned(), request: vec![7], answer };
        calls.ask(id(server), question, now_ns, hold(&count));
        wait
    };
    // Replied: the request comes to the module as one of its own, and the reply leaves the run.
    let replied = ask(&mut calls, 1, "names", 0);
    assert!(count.get() > 0);
    let request = calls.next_request(|_| true).unwrap();
    assert_eq!((request.caller, request.server, &*request.bytes), (id(1), id(1), &[7][..]));
    calls.made(id(1), request.call);
    assert!(calls.reply(id(1), request.call, b"reply"));
    assert!(!calls.reply(id(1), request.call, b"second"));
    assert_eq!(replied.try_recv(), Ok((Outcome::Replied, b"reply".to_vec())));
    assert!(calls.next_outcome(|_| true).is_none() && calls.is_settled(id(1)) && count.get() == 0);
    // Late, refused, of no such service or module.
    let late = ask(&mut calls, 1, "names", 0);
    calls.expire(REPLY_MAX_NS);
    assert_eq!(late.try_recv(), Ok((Outcome::Late, vec![])));
    for (server, service) in [(1, "other"), (2, "names")] {
        assert_eq!(ask(&mut calls, server, service, 0).try_recv(), Ok((Outcome::Nobody, vec![])));
    }
    let many: Vec<_> = (0..SERVICE_OPEN_MAX).map(|_| ask(&mut calls, 1, "names", 0)).collect();
    assert_eq!(ask(&mut calls, 1, "names", 0).try_recv(), Ok((Outcome::Refused, vec![])));
    // Some are made when the module leaves: no answer comes any more, and no memory is held.
    assert!(calls.next_request(|_| true).is_some());
    calls.leave(id(1));
    let gone = Err(crossbeam_channel::TryRecvError::Disconnected);
    assert!(many.iter().all(|wait| wait.try_recv() == gone));
    assert_eq!(count.get(), 0);
}
