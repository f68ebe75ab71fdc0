//! The bill of a channel: the bytes of the frames that left, and of no others.

use flame_source::live::Unsent;
use flame_transmit::{Link, Reservation, Wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An interface that refuses frames with an odd number of bytes.
struct Even;

impl Wire for Even {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        match frames.take_while(|frame| frame.len() % 2 == 0).count() {
            0 => Err(Unsent::Refused),
            sent => Ok(sent),
        }
    }
}

const RESERVATION: Reservation = Reservation { rate: 50_000_000, period_ns: 1_000_000, extra: true };

#[test]
fn a_bill_has_the_bytes_of_frames_that_left_and_of_no_others() {
    let link = Link::on(Box::new(Even), 200_000_000).unwrap();
    let bills: [Arc<AtomicU64>; 2] = Default::default();
    // Two channels of one owner have one bill; another owner's channel has its own.
    let channels = [0, 0, 1].map(|owner: usize| {
        let channel = link.open(RESERVATION).unwrap();
        channel.bill(bills[owner].clone());
        channel
    });
    let lengths = [60, 61, 1514, 99, 342];
    for (channel, length) in channels.iter().flat_map(|channel| lengths.map(|length| (channel, length))) {
        assert!(channel.send(&vec![7; length], 0));
    }
    let begun = Instant::now();
    while channels.iter().any(|channel| channel.is_waiting()) {
        assert!(begun.elapsed() < Duration::from_secs(60), "frames wait");
        std::thread::sleep(Duration::from_millis(1));
    }
    let each = 60 + 1514 + 342;
    assert_eq!(bills.each_ref().map(|bill| bill.load(Ordering::Relaxed)), [2 * each, each]);
    let traffic = channels.map(|channel| channel.close());
    assert!(traffic.iter().all(|t| (t.sent, t.refused) == (3, 2)), "{traffic:?}");
}

#[test]
fn frames_that_wait_when_their_channel_is_closed_are_on_no_bill() {
    let link = Link::on(Box::new(Even), 8_000_000).unwrap();
    let bill = Arc::<AtomicU64>::default();
    let channel = link.open(Reservation { rate: 1_000_000, period_ns: 1_000_000, extra: false }).unwrap();
    channel.bill(bill.clone());
    (0..40).for_each(|_| assert!(channel.send(&[7; 1000], 0)));
    let traffic = channel.close();
    assert!(traffic.refused > 0 && traffic.sent + traffic.refused == 40, "{traffic:?}");
    assert_eq!(bill.load(Ordering::Relaxed), traffic.sent * 1000);
}
