//! The guarantees of channels on a machine of which others take all processor time.

use flame_confine::{Slice, give_time, given_time};
use flame_source::live::Unsent;
use flame_transmit::{Link, LinkError, Reservation, Wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An interface that takes all, and states whether the kernel guarantees time to the thread that sends.
struct Observed(Arc<AtomicBool>);

impl Wire for Observed {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        self.0.store(given_time(0).is_ok_and(|time| time.is_some()), Ordering::Relaxed);
        Ok(frames.count())
    }
}

/// Returns whether the kernel gave the link its time. A machine may refuse it, with a remedy.
fn takes_time(link: &Link) -> bool {
    match link.take_time() {
        Ok(()) => true,
        Err(e @ LinkError::Time(_)) => {
            assert!(e.to_string().contains("hold only while a processor is free: "), "{e}");
            eprintln!("skipped: {e}");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

/// The guarantees in Mbit/s of a link of 20, whose rest all share.
const RATES: [u64; 3] = [2, 4, 6];
const FRAME: usize = 1000;

/// Ends the loops of busy threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn channels_have_their_rates_beside_busy_loops() {
    let has_time = Arc::<AtomicBool>::default();
    let link = Link::on(Box::new(Observed(has_time.clone())), 20_000_000).unwrap();
    assert!(!link.has_time());
    if !takes_time(&link) {
        return;
    }
    assert!(link.has_time());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        let loops = 2 * std::thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..loops {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let bills: [Arc<AtomicU64>; 3] = Default::default();
        let channels: Vec<_> = RATES
            .iter()
            .zip(&bills)
            .map(|(rate, bill)| {
                let reserved = Reservation { rate: rate * 1_000_000, period_ns: 10_000_000, extra: true };
                let channel = link.open(reserved).unwrap();
                channel.bill(bill.clone());
                channel
            })
            .collect();
        // What sends on the channels has time, too: the link is measured, and not what makes the frames.
        if let Err(e) = give_time(0, Slice { slice_ns: 1_000_000, period_ns: 10_000_000 }) {
            return eprintln!("skipped: {e}");
        }
        let (begun, frame) = (Instant::now(), [7; FRAME]);
        while begun.elapsed() < Duration::from_secs(2) {
            // A queue holds more than its channel sends in 40 ms.
            channels.iter().for_each(|channel| while channel.send(&frame, 0) {});
            std::thread::sleep(Duration::from_millis(2));
        }
        let time = begun.elapsed().as_secs_f64();
        let had = bills.map(|bill| bill.load(Ordering::Relaxed) as f64 * 8.0 / 1e6 / time);
        println!("had {had:?} of {RATES:?} Mbit/s");
        assert!(has_time.load(Ordering::Relaxed), "the thread that sends has no time of its own");
        assert!(had.iter().zip(RATES).all(|(had, rate)| *had > rate as f64 * 0.98), "{had:?} of {RATES:?}");
    });
}

/// An interface that counts how often it is handed frames.
struct Counting(Arc<AtomicU64>);

impl Wire for Counting {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(frames.count())
    }
}

/// Regression: a thread that yields while it waits gives up the rest of its period, and sent once in each.
#[test]
fn a_link_sends_as_often_as_frames_come() {
    let calls = Arc::<AtomicU64>::default();
    let link = Link::on(Box::new(Counting(calls.clone())), 20_000_000).unwrap();
    if !takes_time(&link) || give_time(0, Slice { slice_ns: 200_000, period_ns: 1_000_000 }).is_err() {
        return;
    }
    let channel = link.open(Reservation { rate: 20_000_000, period_ns: 1_000_000, extra: false }).unwrap();
    let (begun, mut frames) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(1) {
        frames += u64::from(channel.send(&[7; 60], 0));
        std::thread::sleep(Duration::from_micros(200));
    }
    let calls = calls.load(Ordering::Relaxed);
    println!("{calls} calls for {frames} frames");
    assert!(frames < 1500 || calls > frames / 2, "{calls} calls for {frames} frames");
}

#[test]
fn a_capture_needs_no_time() {
    struct Nowhere;
    impl flame_transmit::Capture for Nowhere {
        fn frame(&mut self, _: u64, _: &[u8]) -> Result<(), String> {
            Ok(())
        }
        fn finish(self: Box<Self>) -> Result<(), String> {
            Ok(())
        }
    }
    let link = Link::capture(Box::new(Nowhere), 1_000_000);
    assert!(link.take_time().is_ok() && link.has_time());
}
