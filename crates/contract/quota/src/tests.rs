use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

fn quota(records: u64) -> Quota {
    Quota {
        per_second: Amounts { records, bytes: 1000 * records, transmit: 0 },
        per_packet: Amounts::default(),
        share: None,
        memory: 100,
    }
}

const ONE: Amounts = Amounts { records: 1, bytes: 10, transmit: 0 };

/// A ledger that counts the requests to it.
struct CountingLedger(Arc<AtomicU64>);

impl Ledger for CountingLedger {
    fn draw(&self, _: Option<u64>, _: Amounts) -> Amounts {
        self.0.fetch_add(1, Ordering::Relaxed);
        Amounts::default()
    }
    fn give_back(&self, _: Amounts) {}
    fn reserve(&self, _: Duration, _: Duration) -> Duration {
        self.0.fetch_add(1, Ordering::Relaxed);
        Duration::ZERO
    }
    fn give_back_time(&self, _: Duration) {}
    fn may_own(&self, _: u64) -> bool {
        true
    }
}

/// A request accesses a file: a flood beyond the limits must not cause many.
#[test]
fn who_is_over_a_limit_does_not_keep_the_ledger_busy() {
    let times = Arc::new(AtomicU64::new(0));
    let quota = Quota { share: Some(Share { slice_ns: 1000, period_ns: 1_000_000_000 }), ..quota(5) };
    let meters = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(CountingLedger(times.clone()))))]);
    assert!((0..100_000).all(|_| !meters.take(ONE) && !meters.may_begin()));
    assert!(times.load(Ordering::Relaxed) < 50, "{}", times.load(Ordering::Relaxed));
}

/// A ledger that several processes share.
#[derive(Clone)]
struct Shared(Arc<ThisRun>, Arc<Mutex<u64>>);

impl Ledger for Shared {
    fn begin(&self) {
        let now = *self.1.lock().unwrap();
        lock(&self.0.state).begin(&self.0.quota, now);
    }
    fn draw(&self, second: Option<u64>, want: Amounts) -> Amounts {
        self.0.draw(second, want)
    }
    fn give_back(&self, amounts: Amounts) {
        self.0.give_back(amounts);
    }
    fn reserve(&self, over: Duration, want: Duration) -> Duration {
        let now = *self.1.lock().unwrap();
        lock(&self.0.state).reserve(&self.0.quota, now, over, want)
    }
    fn give_back_time(&self, time: Duration) {
        self.0.give_back_time(time);
    }
    fn may_own(&self, _: u64) -> bool {
        true
    }
}

#[test]
fn a_second_pays_once_and_a_jump_pays_one() {
    let meters = Meters::of_grant(vec![Arc::new(Meter::new(quota(5), Box::new(ThisRun::new(quota(5)))))]);
    let out = || (0..1000).filter(|_| meters.take(ONE)).count();
    assert_eq!(out(), 5);
    meters.tick(1_000_000_000);
    assert_eq!(out(), 5);
    // A jump of a year forward, back, and forward again.
    meters.tick(31_536_000_000_000_000);
    assert_eq!(out(), 5);
    meters.tick(2_000_000_000);
    meters.tick(31_536_000_000_000_000);
    assert_eq!(out(), 0);
    // Unused amounts are not saved.
    (1..100).for_each(|s| meters.tick((40_000_000 + s) * 1_000_000_000));
    assert_eq!(out(), 5);
}

#[test]
fn who_narrows_takes_of_those_it_was_narrowed_from() {
    let root = Arc::new(Meter::new(quota(10), Box::new(ThisRun::new(quota(10)))));
    let of = |n| {
        Meters::of_grant(vec![root.clone(), Arc::new(Meter::new(quota(n), Box::new(ThisRun::new(quota(n)))))])
    };
    let (bob, carol, dave) = (of(3), of(9), of(9));
    let out = |m: &Meters| (0..100).filter(|_| m.take(ONE)).count();
    assert_eq!((out(&bob), out(&carol), out(&dave)), (3, 7, 0));
    assert!(bob.own(60) && !carol.own(41) && carol.own(40) && !dave.own(1), "memory is of all together");
    bob.disown(60);
    assert!(dave.own(60));
}

#[test]
fn the_operators_own_modules_are_limited_by_packets() {
    let meters = Meters::default();
    assert!(!meters.granted());
    let out = || (0..10_000_000).take_while(|_| meters.take(ONE)).count();
    assert_eq!(out(), 65_536);
    meters.packets(1000);
    assert_eq!(out(), 64_000);
}

#[test]
fn processor_time_is_of_all_workers_and_is_worked_off() {
    let share = Some(Share { slice_ns: 1_000, period_ns: 1_000_000 });
    let quota = Quota { share, ..quota(1) };
    let clock = Arc::new(Mutex::new(1_000_000_000));
    let ledger = Shared(Arc::new(ThisRun::new(quota)), clock.clone());
    let runs: Vec<_> = (0..2)
        .map(|_| Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ledger.clone())))]))
        .collect();
    assert!(runs.iter().all(|m| m.timed()) && runs[0].may_begin());
    runs[0].took(Duration::from_nanos(5_500));
    assert!(!runs[0].may_begin());
    assert!(!runs[1].may_begin(), "what one run takes, the other does not have");
    // A new run also finds it used.
    drop(runs);
    let again = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ledger)))]);
    assert!(!again.may_begin());
    *clock.lock().unwrap() += 4_999_999;
    std::thread::sleep(ASK.0);
    assert!(!again.may_begin(), "four periods");
    *clock.lock().unwrap() += 1;
    std::thread::sleep(ASK.0);
    assert!(again.may_begin(), "five");
}

/// A process that is killed does not report what it used since its last request.
#[test]
fn who_is_killed_again_and_again_has_no_more_processor_time() {
    let share = Some(Share { slice_ns: 100_000_000, period_ns: 60_000_000_000 });
    let quota = Quota { share, ..quota(1) };
    let ledger = Shared(Arc::new(ThisRun::new(quota)), Arc::new(Mutex::new(1_000_000_000)));
    let (mut all, call) = (Duration::ZERO, Duration::from_millis(1));
    for _ in 0..1000 {
        let run = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ledger.clone())))]);
        for _ in 0..3 {
            if run.may_begin() {
                run.took(call);
                all += call;
            }
        }
        std::mem::forget(run);
    }
    assert!(all <= Duration::from_millis(100) && !all.is_zero(), "{all:?}");
    // A process that ends regularly returns what it did not use.
    let ledger = Shared(Arc::new(ThisRun::new(quota)), ledger.1);
    for _ in 0..99 {
        let run = Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ledger.clone())))]);
        assert!(run.may_begin());
        run.took(call);
    }
}

/// A step in the life of a credential's installs.
#[derive(Clone, Debug)]
enum Step {
    /// Begins a run of this many installs.
    Begin(usize),
    End(usize),
    /// Sets packet time in a run, to any second.
    Tick(usize, u64),
    Take(usize, u64),
    /// Sets the node's clock, forward or back.
    Clock(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1usize..4).prop_map(Step::Begin),
        1 => (0usize..8).prop_map(Step::End),
        4 => (0usize..8, prop_oneof![0u64..20, any::<u64>().prop_map(|n| n / 1_000_000_000)]).prop_map(|(r, s)| Step::Tick(r, s)),
        6 => (0usize..8, 1u64..40).prop_map(|(r, n)| Step::Take(r, n)),
        2 => (0u64..20_000_000_000).prop_map(Step::Clock),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Over all sequences of installs, restarts, runs and clocks, the total is at most the amounts of one
    /// second at the beginning, one for each second of packet time that occurred, and one for each second of
    /// the node's clock.
    #[test]
    fn the_sums_never_exceed_what_was_granted(steps in steps(), rate in 1u64..30) {
        let quota = quota(rate);
        let clock = Arc::new(Mutex::new(0));
        let ledger = Shared(Arc::new(ThisRun::new(quota)), clock.clone());
        let (mut runs, mut out, mut seconds, mut latest): (Vec<Vec<Meters>>, u64, BTreeSet<u64>, u64) =
            (Vec::new(), 0, BTreeSet::new(), 0);
        for step in steps {
            match step {
                Step::Begin(installs) => {
                    let meter = Arc::new(Meter::new(quota, Box::new(ledger.clone())));
                    runs.push((0..installs).map(|_| Meters::of_grant(vec![meter.clone()])).collect());
                }
                Step::End(run) if run < runs.len() => drop(runs.remove(run)),
                Step::Tick(run, second) if run < runs.len() => {
                    seconds.insert(second);
                    runs[run].iter().for_each(|m| m.tick(second * 1_000_000_000));
                }
                Step::Take(run, times) if run < runs.len() => {
                    for n in 0..times as usize {
                        let of = &runs[run];
                        out += u64::from(of[n % of.len()].take(ONE));
                    }
                }
                Step::Clock(to) => {
                    *clock.lock().unwrap() = to;
                    latest = latest.max(to);
                }
                _ => {}
            }
            let most = rate as f64 * (1.0 + seconds.len() as f64 + latest as f64 / 1e9);
            prop_assert!(out as f64 <= most, "{out} of {most}");
            let state = lock(&ledger.0.state);
            prop_assert!(state.is_sound());
        }
    }
}

fn meter(memory: u64) -> Arc<Meter> {
    let quota = Quota { memory, ..quota(5) };
    Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))
}

#[test]
fn a_renewed_install_counts_in_the_new_meters_and_not_in_the_old_ones() {
    let (root, old, new) = (meter(100), meter(50), meter(50));
    let usage = Arc::<Usage>::default();
    let meters = Meters::of_grant(vec![root.clone(), old.clone()]).with(None, Some(usage.clone()));
    // An instance has a clone of the meters, from before the renewal.
    let of_instance = meters.clone();
    assert!((0..5).all(|_| of_instance.take(ONE)) && of_instance.own(40));
    assert!(!of_instance.take(ONE), "the old meter is used up");
    let held = |m: &Meter| lock(&m.inner).memory;
    assert_eq!((held(&root), held(&old), held(&new)), (40, 40, 0));
    // The root is in both chains, and would not allow the same memory twice.
    assert!(Meters::of_grant(vec![root.clone()]).own(50));
    meters.renew(&Meters::of_grant(vec![root.clone(), new.clone()])).unwrap();
    assert_eq!((held(&root), held(&old), held(&new)), (90, 0, 40));
    assert!(!of_instance.own(11) && of_instance.own(10));
    // The root's records are used up as well: it is the same.
    assert!(!of_instance.take(ONE) && of_instance.renew(&Meters::of_grant(vec![new.clone()])).is_ok());
    assert!((0..5).all(|_| of_instance.take(ONE)) && !of_instance.take(ONE));
    assert_eq!((held(&root), held(&new)), (50, 50));
    let few = meter(49);
    assert_eq!(meters.renew(&Meters::of_grant(vec![few.clone()])), Err(Exceeded { owned: 50 }));
    assert_eq!((held(&few), held(&new)), (0, 50), "nothing changed");
    of_instance.disown(50);
    assert_eq!((held(&root), held(&new)), (50, 0));
    let used = usage.used();
    assert_eq!((used.records, used.record_bytes, used.memory.now, used.memory.peak), (10, 100, 0, 50));
    assert!(meters.timed() && !Meters::of_grant(vec![root]).timed());
}
