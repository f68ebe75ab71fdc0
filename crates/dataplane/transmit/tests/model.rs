//! Tests of the scheduler against what it promises, with channels of any rates and frames of any lengths.

use flame_transmit::{Key, Next, Reservation, Scheduler};
use proptest::prelude::*;

const BANDWIDTH: u64 = 100_000_000;
const MS: u64 = 1_000_000;
const WINDOW: u64 = 100 * MS;

/// A channel that always has frames of one length.
#[derive(Clone, Debug)]
struct Greedy {
    rate: u64,
    period_ns: u64,
    frame: usize,
    extra: bool,
}

fn greedy() -> impl Strategy<Value = Greedy> {
    let period = prop::sample::select(vec![MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS]);
    (100_000..40_000_000_u64, period, 60..1515_usize, any::<bool>())
        .prop_map(|(rate, period_ns, frame, extra)| Greedy { rate, period_ns, frame, extra })
}

/// Channels whose rates the link has.
fn channels() -> impl Strategy<Value = Vec<Greedy>> {
    prop::collection::vec(greedy(), 1..6).prop_map(|mut all| {
        let sum: u64 = all.iter().map(|c| c.rate).sum();
        if sum > BANDWIDTH {
            all.iter_mut()
                .for_each(|c| c.rate = (u128::from(c.rate) * u128::from(BANDWIDTH) / u128::from(sum)) as u64);
        }
        all
    })
}

/// Returns the frames that leave within `end_ns`: number of the channel, time and length.
fn run(all: &[Greedy], step_ns: u64, end_ns: u64) -> Vec<(usize, u64, u64)> {
    let mut scheduler = Scheduler::new(BANDWIDTH);
    for (key, c) in (0..).zip(all) {
        scheduler.open(Key(key), Reservation { rate: c.rate, period_ns: c.period_ns, extra: c.extra });
        (0..4).for_each(|_| scheduler.push(Key(key), vec![0; c.frame], 0).unwrap());
    }
    let (mut sent, mut now) = (Vec::new(), 0);
    while now < end_ns {
        now += step_ns;
        while let Next::Send { key: Key(key), frame, at_ns } = scheduler.next(now) {
            assert!(at_ns <= now);
            sent.push((key as usize, at_ns, frame.len() as u64));
            scheduler.push(Key(key), frame, now).unwrap();
        }
    }
    sent
}

fn served(sent: &[(usize, u64, u64)], channel: usize, from: u64, to: u64) -> u64 {
    sent.iter().filter(|(c, at, _)| *c == channel && (from..to).contains(at)).map(|(.., n)| n).sum()
}

proptest! {
    /// Each channel gets its rate in each tenth of a second, within 1 % or one frame of each channel; without
    /// extra bandwidth, it gets no more. With it, the link never idles.
    #[test]
    fn a_channel_gets_what_it_reserved_and_no_other_gets_it(all in channels(), step in MS / 10..3 * MS) {
        let end = 10 * WINDOW;
        let sent = run(&all, step, end);
        for (number, c) in all.iter().enumerate() {
            let reserved = c.rate / 8 / 10;
            let frames: u64 = all.iter().map(|c| c.frame as u64).sum();
            let slack = (reserved / 100).max(frames);
            for window in 0..10 {
                let got = served(&sent, number, window * WINDOW, (window + 1) * WINDOW);
                prop_assert!(got + slack >= reserved, "{number} in {window}: {got} of {reserved}, {all:?}");
                let is_within = c.extra || got <= reserved + slack;
                prop_assert!(is_within, "{number} in {window}: {got} of {reserved}, {all:?}");
            }
        }
        let bytes: u64 = sent.iter().filter(|(_, at, _)| *at < end).map(|(.., n)| n).sum();
        let whole = BANDWIDTH / 8;
        prop_assert!(bytes <= whole + 1514);
        if all.iter().any(|c| c.extra) {
            prop_assert!(bytes + 1514 >= whole, "{bytes} of {whole}: {all:?}");
        }
        // The link is not used twice at a time.
        for pair in sent.windows(2) {
            prop_assert!(pair[1].1 >= pair[0].1 + pair[0].2 * 8 * 1_000_000_000 / BANDWIDTH);
        }
    }

    /// A channel whose frames come at its rate waits no longer than its period and a frame of each channel,
    /// whatever the others send.
    #[test]
    fn a_frame_within_the_rate_leaves_in_time(others in channels(), phase in 0..10 * MS) {
        let own = Reservation { rate: 1_000_000, period_ns: 10 * MS, extra: false };
        let mut scheduler = Scheduler::new(BANDWIDTH + own.rate);
        let key = Key(99);
        scheduler.open(key, own);
        for (key, c) in (0..).zip(&others) {
            scheduler.open(Key(key), Reservation { rate: c.rate, period_ns: c.period_ns, extra: c.extra });
            (0..4).for_each(|_| scheduler.push(Key(key), vec![0; c.frame], 0).unwrap());
        }
        let frames: u64 = others.iter().map(|c| c.frame as u64).sum::<u64>() + 1514;
        let most = 10 * MS + frames * 8 * 1_000_000_000 / BANDWIDTH + MS / 10;
        let mut came = None;
        for step in 0..5000 {
            let now = step * MS / 10;
            while let Next::Send { key: sent, frame, at_ns } = scheduler.next(now) {
                if sent == key {
                    let waited = at_ns.saturating_sub(came.take().unwrap());
                    prop_assert!(waited <= most, "{waited} ns, {others:?}");
                } else {
                    scheduler.push(sent, frame, now).unwrap();
                }
            }
            // 100 bytes each 12 ms are less than its rate.
            if now % (12 * MS) == phase / (MS / 10) * (MS / 10) {
                prop_assert!(came.is_none(), "{others:?}");
                scheduler.push(key, vec![0; 100], now).unwrap();
                came = Some(now);
            }
        }
    }
}

/// Returns the greatest time that a frame of a channel waits that reserved `rate` of 100 Mbit/s, while two
/// others have the rest and always wait. The link has lost time before: `late` of each 100 ms for a minute,
/// then `stall` at once.
fn wait_after_lost_time(rate: u64, late: u64, stall: u64) -> u64 {
    let mut scheduler = Scheduler::new(BANDWIDTH);
    for (key, rate) in [(0, (BANDWIDTH - rate) / 2), (1, (BANDWIDTH - rate) / 2), (2, rate)] {
        scheduler.open(Key(key), Reservation { rate, period_ns: 10 * MS, extra: false });
    }
    for key in [0, 1] {
        (0..8).for_each(|_| scheduler.push(Key(key), vec![0; 1500], 0).unwrap());
    }
    let (mut now, mut came, mut worst) = (0, None, 0_u64);
    let begins = 60_000 * MS + stall;
    while now < begins + 1000 * MS {
        now += MS / 10;
        let is_late = now < 60_000 * MS && now % (100 * MS) > 100 * MS - late;
        if is_late || (60_000 * MS..begins).contains(&now) {
            continue;
        }
        scheduler.lose_time_before(now.saturating_sub(2 * MS));
        while let Next::Send { key, frame, at_ns } = scheduler.next(now) {
            match key {
                Key(2) => worst = worst.max(at_ns.saturating_sub(came.take().unwrap())),
                key => scheduler.push(key, frame, now).unwrap(),
            }
        }
        if now >= begins && came.is_none() && now % (10 * MS) == 0 {
            scheduler.push(Key(2), vec![0; 100], now).unwrap();
            came = Some(now);
        }
    }
    worst
}

/// Time that the link loses is lost to those who waited, and not taken from those who come later.
#[test]
fn lost_time_is_not_made_up_at_the_cost_of_others() {
    for (rate, late, stall) in [(10, 0, 0), (10, 0, 100), (10, 0, 5000), (2, 6, 0), (2, 6, 50)] {
        let worst = wait_after_lost_time(rate * 1_000_000, late * MS, stall * MS);
        assert!(worst <= 13 * MS, "{rate} Mbit/s, {late} ms, {stall} ms: {worst} ns");
    }
}

/// Frames that are long for the rate of their channels do not come before those of others.
#[test]
fn long_frames_of_many_channels_hold_nobody_up() {
    let mut scheduler = Scheduler::new(2_000_000);
    for key in 0..16 {
        scheduler.open(Key(key), Reservation { rate: 73_728, period_ns: MS, extra: false });
    }
    scheduler.open(Key(99), Reservation { rate: 800_000, period_ns: 10 * MS, extra: false });
    let (mut came, mut worst, mut long) = (std::collections::VecDeque::new(), 0, 0);
    for now in (0..5000).map(|n| n * MS) {
        while let Next::Send { key, at_ns, .. } = scheduler.next(now) {
            match key {
                Key(99) => worst = at_ns.saturating_sub(came.pop_front().unwrap()).max(worst),
                _ => long += 1,
            }
        }
        if now % (1000 * MS) == 0 {
            (0..16).for_each(|key| scheduler.push(Key(key), vec![0; 9216], now).unwrap());
        }
        scheduler.push(Key(99), vec![0; 100], now).unwrap();
        came.push_back(now);
    }
    // One long frame takes 37 ms, in which 37 short ones come, of which ten leave in a period.
    assert!(worst <= 60 * MS, "{worst}");
    assert!(long >= 4 * 16, "{long}");
}

/// Extra bandwidth is divided by bytes, among those who wait.
#[test]
fn extra_bandwidth_is_shared_by_bytes() {
    let mut scheduler = Scheduler::new(BANDWIDTH);
    let lengths = [60, 1514, 9216];
    for (key, length) in (0..).zip(lengths) {
        scheduler.open(Key(key), Reservation { rate: 1_000, period_ns: 1000 * MS, extra: true });
        (0..4).for_each(|_| scheduler.push(Key(key), vec![0; length], 0).unwrap());
    }
    let mut sent = [0; 3];
    for now in (0..10_000).map(|n| n * MS / 10) {
        while let Next::Send { key, frame, .. } = scheduler.next(now) {
            sent[key.0 as usize] += frame.len();
            scheduler.push(key, frame, now).unwrap();
        }
    }
    let most = sent.iter().max().unwrap();
    assert!(sent.iter().all(|n| n + 3 * 9216 > *most), "{sent:?}");
}

/// A channel that waits for its next period has not lost the time until then.
#[test]
fn waiting_for_budget_is_no_lost_time() {
    let mut scheduler = Scheduler::new(BANDWIDTH);
    scheduler.open(Key(0), Reservation { rate: 8_000_000, period_ns: 10 * MS, extra: false });
    (0..1000).for_each(|_| scheduler.push(Key(0), vec![0; 1000], 0).unwrap());
    let mut sent = 0;
    for now in (0..1000).map(|n| n * MS) {
        scheduler.lose_time_before(now.saturating_sub(2 * MS));
        sent += all_of(&mut scheduler, now).len();
    }
    assert_eq!(sent, 1000, "ten frames in each period");
}

fn all_of(scheduler: &mut Scheduler<Vec<u8>>, now_ns: u64) -> Vec<(u64, u8, u64)> {
    std::iter::from_fn(|| match scheduler.next(now_ns) {
        Next::Send { key, frame, at_ns } => Some((key.0, frame[0], at_ns)),
        _ => None,
    })
    .collect()
}

#[test]
fn frames_of_a_channel_leave_in_order_and_a_closed_one_gives_them_back() {
    let mut scheduler = Scheduler::new(8_000_000);
    let rate = Reservation { rate: 4_000_000, period_ns: 10 * MS, extra: false };
    scheduler.open(Key(1), rate);
    scheduler.open(Key(2), rate);
    for n in 0..8_u8 {
        scheduler.push(Key(1 + u64::from(n % 2)), vec![n; 1000], 5).unwrap();
    }
    assert_eq!(scheduler.push(Key(3), vec![9], 5), Err(vec![9]));
    // A thousand bytes take a millisecond. Deadlines are the same, so the first channel's budget goes first.
    let sent = all_of(&mut scheduler, 5 + 5 * MS);
    let times: Vec<_> = sent.iter().map(|(.., at)| *at).collect();
    assert_eq!(times, (0..6).map(|n| 5 + n * MS).collect::<Vec<_>>());
    assert_eq!(sent.iter().map(|(_, n, _)| *n).collect::<Vec<_>>(), [0, 2, 4, 6, 1, 3]);
    assert_eq!(scheduler.close(Key(2)).len(), 2);
    assert_eq!((scheduler.next(6 * MS), scheduler.close(Key(2)).len()), (Next::Idle, 0));
}

/// A period that is long over leaves no debt and no more than a whole budget.
#[test]
fn an_idle_channel_saves_nothing() {
    let mut scheduler = Scheduler::new(1_000_000_000);
    scheduler.open(Key(0), Reservation { rate: 800_000, period_ns: 10 * MS, extra: false });
    for start in [0, 1_700_000_000_000_000_000] {
        (0..30).for_each(|n| scheduler.push(Key(0), vec![n; 100], start).unwrap());
        // A thousand bytes are the budget of a period.
        assert_eq!(all_of(&mut scheduler, start + 5 * MS).len(), 10);
        assert_eq!(scheduler.next(start + 5 * MS), Next::Wait(start + 10 * MS));
        assert_eq!(all_of(&mut scheduler, start + 30 * MS).len(), 20);
    }
}
