//! The order of frames on one link: earliest deadline first within the reserved bandwidths, then in turn.
//!
//! Each channel has a *budget*: in each of its periods, the bits that its rate allows in that time. A channel
//! with budget and frames has a deadline, the end of its period, and of these the one with the earliest
//! deadline sends next. A channel that used up its budget waits for its next period, or, if it takes extra
//! bandwidth, for the time when no channel with budget has frames; of those, the channel that has sent the
//! fewest bytes in this way since it began to wait sends next. A channel that was idle gets a new period when
//! a frame comes, unless its current one would end with more than its rate allows; so no burst takes the
//! bandwidth that others have reserved (the constant bandwidth server of Abeni and Buttazzo, with a hard
//! reservation).
//!
//! A frame is never divided. It may use more than what is left of the budget, which the next periods pay. Its
//! deadline is the end of the last period that pays, so that a frame that is long for its channel's rate
//! takes no bandwidth from others.
//!
//! The type reads no clock. Times are nanoseconds since any moment, and never go back.

use std::collections::VecDeque;

/// The parameters of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The bandwidth in bits per second.
    pub rate: u64,
    /// The period in nanoseconds, not 0.
    pub period_ns: u64,
    /// Whether it sends beyond its rate when the link is idle.
    pub extra: bool,
}

/// The number of a channel of a [`Scheduler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u64);

/// The next event of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<F> {
    /// The frame leaves at this time.
    Send { key: Key, frame: F, at_ns: u64 },
    /// Nothing leaves before this time.
    Wait(u64),
    /// No frames wait.
    Idle,
}

/// Bits multiplied by 10^9, so that budgets of any rate and period are whole numbers.
type Units = i128;

const SECOND_NS: u64 = 1_000_000_000;

/// The length of the shortest frame on Ethernet without its check sequence: shorter ones are padded.
pub(crate) const SHORTEST: usize = 60;

struct Channel<F> {
    key: Key,
    reservation: Reservation,
    frames: VecDeque<F>,
    /// The rest in this period. It is negative after a frame that was longer.
    budget: Units,
    /// The end of this period.
    deadline_ns: u64,
    /// Bytes sent beyond the rate.
    beyond: Units,
}

/// Returns the cost of a frame.
fn cost<F: AsRef<[u8]>>(frame: &F) -> Units {
    Units::from(frame.as_ref().len().max(SHORTEST) as u64 * 8) * Units::from(SECOND_NS)
}

impl<F: AsRef<[u8]>> Channel<F> {
    /// Returns the budget of a whole period.
    fn whole(&self) -> Units {
        Units::from(self.reservation.rate) * Units::from(self.reservation.period_ns)
    }

    /// Returns the number of periods that have begun since the deadline, or 0 before it.
    fn begun(&self, now_ns: u64) -> u64 {
        now_ns.checked_sub(self.deadline_ns).map_or(0, |late| late / self.reservation.period_ns + 1)
    }

    fn advance(&mut self, periods: u64) {
        self.budget += self.whole() * Units::from(periods);
        let passed = periods.saturating_mul(self.reservation.period_ns);
        self.deadline_ns = self.deadline_ns.saturating_add(passed);
    }

    /// Gives a channel with frames the budget of the next periods, if it used up the one before. What it
    /// could not use in time stays, with its old deadline.
    fn replenish(&mut self, now_ns: u64) {
        if self.budget <= 0 {
            self.advance(self.begun(now_ns).min(self.lacking().saturating_add(1)));
        }
    }

    /// Returns the number of whole periods that the channel has to wait after its deadline.
    fn lacking(&self) -> u64 {
        u64::try_from(-self.budget / self.whole().max(1)).unwrap_or(0)
    }

    /// Returns the deadline of the next frame.
    fn frame_deadline_ns(&self) -> u64 {
        let lacking = self.frames.front().map_or(0, cost) - self.budget;
        if lacking <= 0 {
            return self.deadline_ns;
        }
        let whole = self.whole().max(1);
        let periods = u64::try_from((lacking + whole - 1) / whole).unwrap_or(u64::MAX);
        self.deadline_ns.saturating_add(periods.saturating_mul(self.reservation.period_ns))
    }

    /// Returns the time from which the channel has budget again.
    fn ready_ns(&self) -> u64 {
        self.deadline_ns.saturating_add(self.lacking().saturating_mul(self.reservation.period_ns))
    }

    /// Gives a channel that was idle a new period, as far as that takes nothing from others.
    fn wake(&mut self, now_ns: u64) {
        self.advance(self.begun(now_ns));
        self.budget = self.budget.min(self.whole());
        let left = Units::from(self.deadline_ns - now_ns) * Units::from(self.reservation.rate);
        if self.budget > 0 && self.budget >= left {
            self.budget = self.whole();
            self.deadline_ns = now_ns.saturating_add(self.reservation.period_ns);
        }
    }

    fn has_budget(&self) -> bool {
        !self.frames.is_empty() && self.budget > 0
    }
}

/// The scheduler of one link, for frames of type `F`.
pub struct Scheduler<F> {
    /// Bits per second.
    bandwidth: u64,
    channels: Vec<Channel<F>>,
    /// The time from which the link is free.
    free_ns: u64,
}

impl<F: AsRef<[u8]>> Scheduler<F> {
    /// Creates the scheduler of a link with this bandwidth in bits per second, which is not 0.
    pub fn new(bandwidth: u64) -> Self {
        Self { bandwidth: bandwidth.max(1), channels: Vec::new(), free_ns: 0 }
    }

    /// Adds a channel, whose number no other one has. Whether its bandwidth can be reserved is the caller's
    /// decision.
    pub fn open(&mut self, key: Key, reservation: Reservation) {
        let reservation = Reservation { period_ns: reservation.period_ns.max(1), ..reservation };
        let frames = VecDeque::new();
        self.channels.push(Channel { key, reservation, frames, budget: 0, deadline_ns: 0, beyond: 0 });
    }

    /// Removes a channel, and returns its frames that did not leave.
    pub fn close(&mut self, key: Key) -> VecDeque<F> {
        match self.place(key) {
            Some(at) => self.channels.remove(at).frames,
            None => VecDeque::new(),
        }
    }

    fn place(&self, key: Key) -> Option<usize> {
        self.channels.iter().position(|c| c.key == key)
    }

    /// Adds a frame that came at `now_ns`, after the calls of [`Scheduler::next`] up to this time.
    ///
    /// # Errors
    ///
    /// Returns the frame if the channel is not open.
    pub fn push(&mut self, key: Key, frame: F, now_ns: u64) -> Result<(), F> {
        let Some(at) = self.place(key) else { return Err(frame) };
        if self.channels.iter().all(|c| c.frames.is_empty()) {
            // Time in which nothing waited is lost.
            self.free_ns = self.free_ns.max(now_ns);
        }
        // What others sent while this one had nothing is not made up.
        let waiting = self.channels.iter().filter(|c| c.reservation.extra && !c.frames.is_empty());
        let least = waiting.map(|c| c.beyond).min();
        let channel = &mut self.channels[at];
        if channel.frames.is_empty() {
            channel.wake(now_ns);
            channel.beyond = least.map_or(0, |least| channel.beyond.max(least));
        }
        channel.frames.push_back(frame);
        Ok(())
    }

    /// Returns the next frame that leaves, if the link is free for it by `now_ns`.
    pub fn next(&mut self, now_ns: u64) -> Next<F> {
        loop {
            let at_ns = self.free_ns;
            if self.channels.iter().all(|c| c.frames.is_empty()) {
                return Next::Idle;
            }
            if at_ns > now_ns {
                return Next::Wait(at_ns);
            }
            for channel in self.channels.iter_mut().filter(|c| !c.frames.is_empty()) {
                channel.replenish(at_ns);
            }
            let first = (0..self.channels.len())
                .filter(|i| self.channels[*i].has_budget())
                .min_by_key(|i| (self.channels[*i].frame_deadline_ns(), self.channels[*i].key));
            if let Some(at) = first {
                return self.send(at, at_ns, true);
            }
            let extra = |c: &Channel<F>| c.reservation.extra && !c.frames.is_empty();
            let least = (0..self.channels.len())
                .filter(|i| extra(&self.channels[*i]))
                .min_by_key(|i| (self.channels[*i].beyond, self.channels[*i].key));
            if let Some(at) = least {
                return self.send(at, at_ns, false);
            }
            // All wait for their next periods.
            let waiting = self.channels.iter().filter(|c| !c.frames.is_empty());
            let until = waiting.map(Channel::ready_ns).min().unwrap_or(u64::MAX);
            self.free_ns = until.min(now_ns).max(at_ns);
            if until > now_ns {
                return Next::Wait(until);
            }
        }
    }

    fn send(&mut self, at: usize, at_ns: u64, is_charged: bool) -> Next<F> {
        let channel = &mut self.channels[at];
        let Some(frame) = channel.frames.pop_front() else { return Next::Wait(at_ns) };
        let size = cost(&frame);
        if is_charged {
            channel.budget -= size;
        } else {
            channel.beyond += size;
        }
        let bandwidth = Units::from(self.bandwidth);
        let takes = u64::try_from((size + bandwidth - 1) / bandwidth).unwrap_or(u64::MAX);
        self.free_ns = at_ns.saturating_add(takes);
        Next::Send { key: channel.key, frame, at_ns }
    }

    /// Treats the link as busy before `ns`: frames that could have left by then leave later.
    ///
    /// For the channels that wait, time stands still while they could have sent. Otherwise they would have
    /// the earliest deadlines until they have sent all that they could not, and a channel that waits only
    /// then would get nothing of its rate so long.
    pub fn lose_time_before(&mut self, ns: u64) {
        let waiting = || self.channels.iter().filter(|c| !c.frames.is_empty());
        let could_send = |c: &Channel<F>| if c.budget > 0 || c.reservation.extra { 0 } else { c.ready_ns() };
        let first = waiting().map(could_send).min().unwrap_or(u64::MAX);
        let lost = ns.saturating_sub(self.free_ns.max(first));
        for channel in self.channels.iter_mut().filter(|c| !c.frames.is_empty()) {
            channel.deadline_ns = channel.deadline_ns.saturating_add(lost);
        }
        self.free_ns = self.free_ns.max(ns);
    }
}
