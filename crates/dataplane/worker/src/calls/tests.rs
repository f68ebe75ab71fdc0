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

#[test]
fn callers_have_their_turns_and_servers_a_few_calls_at_a_time() {
    let mut calls = Calls::default();
    calls.join(id(1), vec![], names(&["a"]));
    (2..5).for_each(|n| calls.join(id(n), names(&["a"]), vec![]));
    for (caller, number) in [(2, 20), (3, 2), (4, 2)] {
        assert!((0..number).all(|token| calls.call((id(caller), 0, token), &[], 0, |_| Some(()))));
    }
    let mut order = Vec::new();
    while let Some(request) = calls.next_request(|_| true) {
        order.push(request.caller.0);
    }
    assert_eq!(order[..8], [2, 3, 4, 2, 3, 4, 2, 2]);
    assert_eq!(order.len(), SERVING);
    assert!(!calls.can_deliver(|_| true));
    assert!(calls.reply(id(1), 0, b"x") && !calls.reply(id(1), 0, b"x"), "a call has one reply");
    assert!(!calls.reply(id(2), 1, &[]), "the call of another");
    assert!(calls.can_deliver(|_| true) && !calls.can_deliver(|_| false));
    let (caller, done) = calls.next_outcome(|_| true).unwrap();
    assert_eq!((caller, done.token, done.outcome, &*done.reply), (id(2), 0, Outcome::Replied, &b"x"[..]));
}

#[test]
fn a_caller_has_so_many_calls_open_and_learns_how_many_were_lost() {
    let mut calls = Calls::default();
    calls.join(id(1), names(&["a"]), vec![]);
    calls.join(id(2), names(&["a"]), vec![]);
    let let_out = |calls: &mut Calls<()>, caller| {
        (0..1000).filter(|token| calls.call((id(caller), 0, *token), &[], 0, |_| Some(()))).count()
    };
    assert_eq!((let_out(&mut calls, 1), let_out(&mut calls, 2)), (OPEN, OPEN), "each has a bound of its own");
    assert!(!calls.call((id(1), 1, 0), &[], 0, |_| Some(())), "a number that is not there");
    let (_, done) = calls.next_outcome(|to| to == id(1)).unwrap();
    assert_eq!((done.outcome, done.lost), (Outcome::Nobody, 1000 - OPEN as u32));
    assert!(!calls.call((id(1), 0, 0), &[], 0, |_| None), "there is no memory for it");
    assert_eq!(calls.next_outcome(|to| to == id(1)).unwrap().1.lost, 1);
}

#[test]
fn a_service_that_is_replaced_keeps_the_calls_that_wait() {
    let mut calls = Calls::default();
    calls.join(id(1), vec![], names(&["x", "a"]));
    calls.join(id(2), names(&["a", "x"]), vec![]);
    for token in 0..3 {
        calls.call((id(2), (token == 2).into(), token), &[], 0, |_| Some(()));
    }
    let first = calls.next_request(|_| true).unwrap();
    assert_eq!((first.server, first.service), (id(1), 1));
    calls.join(id(3), vec![], names(&["a"]));
    let second = calls.next_request(|to| to == id(3)).unwrap();
    assert_eq!((second.server, second.service, second.call), (id(3), 0, 0));
    assert!(calls.next_request(|to| to == id(3)).is_none(), "the other service is not replaced");
    calls.leave(id(1));
    assert!(calls.reply(id(3), 0, &[]));
    let mut outcomes = Vec::new();
    while let Some((_, done)) = calls.next_outcome(|_| true) {
        outcomes.push((done.token, done.outcome));
    }
    assert_eq!(outcomes, [(0, Outcome::Ended), (2, Outcome::Ended), (1, Outcome::Replied)]);
}

#[derive(Clone, Debug)]
enum Step {
    Join(u32),
    Leave(u32),
    Call(u32, u16),
    Deliver(u32),
    Reply(u32, u64),
    Refuse(u32),
    Take(u32),
    Wait(u64),
    EndAll,
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
        5 => id().prop_map(Step::Take),
        2 => (0..700_000_000_u64).prop_map(Step::Wait),
        1 => Just(Step::EndAll),
    ]
}

proptest! {
    /// Each call that is let out has exactly one outcome, and its memory is held until it is taken.
    #[test]
    fn each_call_has_one_outcome(steps in prop::collection::vec(step(), 0..400)) {
        let held = Rc::<Cell<u64>>::default();
        let mut calls = Calls::default();
        let mut present = BTreeSet::new();
        // The tokens of each module without an outcome, and the calls that each serves.
        let mut open: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let mut serving: BTreeMap<(u32, u64), (u32, u64)> = BTreeMap::new();
        let (mut now, mut token) = (0, 0);
        let all = ["a", "b", "c"];
        for step in steps {
            match step {
                // Each module offers a service of its own number and uses all; some share one.
                Step::Join(n) => if present.insert(n) {
                    let mine = all[n as usize % 3];
                    let uses = all.iter().filter(|name| **name != mine).copied().collect::<Vec<_>>();
                    calls.join(id(n), names(&uses), names(&[mine]));
                    open.insert(n, BTreeSet::new());
                },
                Step::Leave(n) => {
                    calls.leave(id(n));
                    present.remove(&n);
                    open.remove(&n);
                    serving.retain(|(server, _), (caller, _)| *server != n && *caller != n);
                }
                Step::Call(n, used) => {
                    token += 1;
                    if calls.call((id(n), used, token), &[0; 10], now, hold(&held)) {
                        prop_assert!(used < 2);
                        open.get_mut(&n).unwrap().insert(token);
                    }
                }
                Step::Deliver(n) => if let Some(request) = calls.next_request(|to| to == id(n)) {
                    prop_assert!(present.contains(&n));
                    serving.insert((n, request.call), (request.caller.0, now));
                    prop_assert!(serving.iter().filter(|((s, _), (_, at))| *s == n && now < at + DEADLINE_NS).count() <= SERVING);
                },
                Step::Reply(n, call) => {
                    let known = serving.remove(&(n, call));
                    let replied = calls.reply(id(n), call, b"yes");
                    prop_assert!(known.is_some() || !replied, "a reply to no call");
                }
                Step::Refuse(n) => if let Some(request) = calls.next_request(|to| to == id(n)) {
                    calls.refuse(id(n), request.call);
                },
                Step::Take(n) => if let Some((caller, done)) = calls.next_outcome(|to| to == id(n)) {
                    prop_assert_eq!(caller, id(n));
                    prop_assert!(open.get_mut(&n).unwrap().remove(&done.token), "a second outcome");
                    prop_assert_eq!(done.outcome == Outcome::Replied, !done.reply.is_empty());
                },
                Step::Wait(ns) => {
                    now += ns;
                    calls.expire(now);
                    prop_assert!(!calls.is_due(now));
                }
                Step::EndAll => {
                    calls.end_all();
                    serving.clear();
                }
            }
            prop_assert!(open.values().all(|tokens| tokens.len() <= OPEN));
            let bytes = (ENTRY + 10 + MAX_REQUEST) as u64;
            prop_assert_eq!(held.get(), open.values().map(|t| t.len() as u64).sum::<u64>() * bytes);
        }
        // Nobody replies any more, and each call that is left has an outcome in time.
        calls.expire(now + DEADLINE_NS);
        while let Some((caller, done)) = calls.next_outcome(|_| true) {
            prop_assert!(open.get_mut(&caller.0).unwrap().remove(&done.token));
        }
        prop_assert!(open.values().all(BTreeSet::is_empty), "{:?}", open);
        prop_assert_eq!(held.get(), 0);
    }
}
