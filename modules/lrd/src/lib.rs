//! `lrd`: the on-line estimator of long-range dependence of Roughan, Veitch and Abry (*Real-time estimation
//! of the parameters of long-range dependence*, IEEE/ACM Trans. Networking 8(4), 2000).
//!
//! Needs only descriptors. Packets, bytes and connections (TCP SYNs) are counted per interval in [`window`]
//! and transformed in [`pyramid`]; the result, one sum for each octave, becomes an estimate in [`regress`].
//! Writes the tables `estimate`, `octave` and `state` of `module.toml`.
#![forbid(unsafe_code)]

pub mod merge;
pub mod message;
pub mod pyramid;
pub mod regress;
mod special;
pub mod transform;
pub mod window;

/// The rows and parameters of `module.toml`.
pub mod tables {
    flame_module::manifest!();
}

pub use merge::Estimator;

use flame_module::{Batch, Descriptor, Init, MAX_BATCH, Module, Out, Progress, flags, tcp};
use transform::Transform;
use window::Window;

/// The number of series: packets, bytes and connections.
pub const SERIES: usize = 3;
/// The arrivals in one interval, by series.
pub type Counts = [u64; SERIES];

/// The fast path. A single worker transforms its counts itself; several workers send their counts to the slow
/// path, because the energies of parts do not add up to the energy of the whole.
pub struct Lrd {
    window: Window,
    transform: Option<Transform>,
    /// Whether nothing was sent before: this instance may have replaced one that was ended.
    first: bool,
    late: u64,
    /// The packets of a batch that lie beyond the window, and their number.
    beyond: Box<[(u64, Counts); MAX_BATCH]>,
    beyond_count: usize,
    /// The first interval that is counted according to these.
    begin: u64,
    /// The interval from which to continue with counts that did not fit the output before.
    from: u64,
}

impl Module for Lrd {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        Self {
            window: Window::new(params.interval, init.tick_ns, params.lateness),
            transform: (init.workers <= 1).then(|| Transform::new(params.moments.into())),
            first: true,
            late: 0,
            beyond: Box::new([(0, [0; SERIES]); MAX_BATCH]),
            beyond_count: 0,
            begin: 0,
            from: 0,
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        if let Some(first) = batch.descriptors().first() {
            self.window.begin(first.ts_ns);
        }
        for d in batch.descriptors() {
            let counts = [1, d.wire_len.into(), is_syn(d)];
            if !self.window.add(d.ts_ns, counts) {
                self.omit(d.ts_ns, counts);
            }
        }
        if self.beyond_count > 0 {
            self.send_beyond(out);
        }
    }

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.send(self.window.closed_at(now_ns), out)
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        // The interval in which the capture ends is incomplete, so it is left out.
        self.send(self.window.interval_of(now_ns), out)
    }
}

impl Lrd {
    /// Counts a packet as late, or keeps it for the slow path if this worker began before the first of all
    /// packets.
    #[inline(never)]
    fn omit(&mut self, ts_ns: u64, counts: Counts) {
        flame_module::cold();
        let is_beyond = self.transform.is_none() && self.window.is_beyond(ts_ns);
        match self.beyond.get_mut(self.beyond_count).filter(|_| is_beyond) {
            Some(place) => {
                *place = (self.window.interval_of(ts_ns), counts);
                self.begin = self.begin.max(self.window.begin_at(ts_ns));
                self.beyond_count += 1;
            }
            None => self.late += 1,
        }
    }

    /// Sends the packets of a batch that lie beyond the window.
    #[inline(never)]
    fn send_beyond(&mut self, out: &mut Out) {
        flame_module::cold();
        let packets = self.beyond.get(..self.beyond_count).unwrap_or_default();
        out.message(message::beyond(self.begin, packets).bytes());
        self.beyond_count = 0;
    }

    /// Sends the intervals below `until`, which are complete.
    fn send(&mut self, until: u64, out: &mut Out) -> Progress {
        match &mut self.transform {
            Some(transform) => {
                while let Some((index, counts)) = self.window.next(self.from).filter(|(i, _)| *i < until) {
                    transform.push(index, &counts);
                    self.from = index + 1;
                }
                transform.advance(until);
                out.message(&message::sums(
                    self.late,
                    self.first,
                    transform.intervals,
                    &transform.energies(),
                ));
            }
            None => loop {
                if out.room() < message::LARGEST {
                    return Progress::More;
                }
                let mut counts = message::Counted::new(self.late, self.window.base());
                self.late = 0;
                while let Some((index, of_interval)) = self.window.next(self.from) {
                    if !counts.push(index, &of_interval) {
                        break;
                    }
                    self.from = index + 1;
                }
                out.message(counts.bytes());
                if self.window.next(self.from).is_none() {
                    self.window.clear();
                    break;
                }
            },
        }
        self.window.forget(until);
        (self.first, self.late, self.from) = (false, 0, 0);
        Progress::Done
    }
}

#[inline]
fn is_syn(d: &Descriptor) -> u64 {
    let of_tcp = d.proto == 6 && d.flags & (flags::IPV4 | flags::IPV6) != 0;
    let whole = d.flags & flags::LATER_FRAGMENT == 0;
    u64::from(of_tcp && whole && d.tcp_flags & (tcp::SYN | tcp::ACK) == tcp::SYN)
}

flame_module::export!(Lrd, slow = Estimator);

#[cfg(test)]
mod tests;
