//! The processor time that a link's thread needs for what its channels are guaranteed.

use flame_confine::Slice;

/// The period in which a thread has its time: a part of the time that it may be late and catch up.
const PERIOD_NS: u64 = crate::thread::CATCH_UP_NS / 2;
/// The time of a frame, with the receiver's part of it where an interface hands frames over at once, and in
/// each period the time of commands and of waking up.
const FRAME_NS: u64 = 4_000;
const WAKES_NS: u64 = 100_000;
/// The most that is reserved. Beyond it a thread has what other reservations leave: its bandwidth limits the
/// work.
const MOST_NS: u64 = PERIOD_NS / 2;

/// Returns the time that a link of this bandwidth, in bits per second, needs for the shortest frames.
pub(crate) fn needed(bandwidth: u64) -> Slice {
    let shortest = crate::schedule::SHORTEST as u64 * 8;
    let frames = u128::from(bandwidth) * u128::from(PERIOD_NS) / u128::from(shortest) / 1_000_000_000;
    let work = frames.saturating_mul(FRAME_NS.into()).saturating_add(WAKES_NS.into());
    let slice_ns = u64::try_from(work).unwrap_or(u64::MAX).min(MOST_NS);
    Slice { slice_ns, period_ns: PERIOD_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_grows_with_the_bandwidth_up_to_half_a_processor() {
        let needed = |bandwidth| needed(bandwidth).slice_ns;
        // 41 frames of 60 bytes in a millisecond.
        assert_eq!((needed(0), needed(20_000_000)), (WAKES_NS, WAKES_NS + 41 * FRAME_NS));
        assert_eq!((needed(100_000_000_000), needed(u64::MAX)), (PERIOD_NS / 2, PERIOD_NS / 2));
    }
}
