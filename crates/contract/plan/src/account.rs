use serde::{Deserialize, Serialize};

/// The reason why a packet that was offered to a module did not reach it completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shed {
    /// The module trapped on the packet, or on another one of its batch.
    Trap,
    /// The module used up its budget on the packet.
    Budget,
    /// The call ran past its deadline although its bound seemed proved.
    Bound,
    /// The module wrote output that does not fit its manifest, in the batch of this packet.
    Output,
    /// The instance had been stopped before, or the run was stopped before the packet was processed.
    Stopped,
    /// The block was lost because the module's buffer was full.
    Overrun,
    /// The module had used up its share of processor time.
    Share,
    /// The module had lost its grant.
    Evicted,
    /// The worker was behind, and other modules have a higher priority.
    Overload,
}

impl Shed {
    pub const ALL: [Self; 9] = [
        Self::Trap,
        Self::Budget,
        Self::Bound,
        Self::Output,
        Self::Stopped,
        Self::Overrun,
        Self::Share,
        Self::Evicted,
        Self::Overload,
    ];

    /// Returns the name of the cause in records and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Budget => "budget",
            Self::Bound => "bound",
            Self::Output => "output",
            Self::Stopped => "stopped",
            Self::Overrun => "overrun",
            Self::Share => "share",
            Self::Evicted => "evicted",
            Self::Overload => "overload",
        }
    }
}

/// The reason why a frame of a module's channel was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unsent {
    /// The run has no link for channels.
    Link,
    /// The filter of the channel or of the grant does not let the frame out.
    Filter,
    /// The bytes per second of the grant were used up.
    Rate,
    /// Frames of the channel came faster than they could leave, and its queue was full.
    Queue,
    /// The interface did not take the frame, or the run ended before it could leave.
    Interface,
}

impl Unsent {
    pub const ALL: [Self; 5] = [Self::Link, Self::Filter, Self::Rate, Self::Queue, Self::Interface];

    /// Returns the name of the cause in records and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Filter => "filter",
            Self::Rate => "rate",
            Self::Queue => "queue",
            Self::Interface => "interface",
        }
    }
}

/// Returns the next power of two, which leaves only the order of magnitude; 0 stays 0.
pub fn rounded(n: u64) -> u64 {
    n.checked_next_power_of_two().filter(|_| n > 0).unwrap_or(n)
}

/// The packets of one event queue of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueAccount {
    pub name: String,
    /// The packets that came into the queue.
    pub packets: u64,
    /// Those of calls from which the module returned.
    pub processed: u64,
    /// Those that were lost because all blocks of the queue were in use.
    pub overrun: u64,
}

/// The most queues that an account names. Those of further names are counted together, in a queue without a
/// name.
const MOST_QUEUES: usize = 16;

impl QueueAccount {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.processed += other.processed;
        self.overrun += other.overrun;
    }

    /// Returns the packets that were lost for another cause, or that still wait.
    pub fn others(&self) -> u64 {
        self.packets.saturating_sub(self.processed).saturating_sub(self.overrun)
    }
}

/// The number of packets of an event queue that are processed, or of all if the module has no queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processed {
    pub queue: usize,
    pub packets: u64,
}

/// The numbers of packets by outcome: `offered = processed + filtered + sampled + sum(shed)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Packets that the source delivered.
    pub offered: u64,
    /// Packets of calls from which the module returned.
    pub processed: u64,
    /// Packets that the module's filters left out.
    pub filtered: u64,
    /// Packets that sampling left out. Only the operator may learn their number.
    pub sampled: u64,
    shed: [u64; Shed::ALL.len()],
    /// Packets of which no payload was shown because it contains a packet that no transform would change.
    /// They are counted as others besides.
    pub cut: u64,
    /// Records that reached the sink.
    pub records: u64,
    /// Records that the module itself reported as dropped.
    pub records_lost: u64,
    /// Messages that no slow instance took, because it had ended or its queue was full.
    pub messages_lost: u64,
    /// Records and packets that the module's grant did not let out.
    pub withheld: u64,
    /// Packets that the module wrote to the capture file.
    pub written: u64,
    /// Texts for the operator that were delivered.
    pub logged: u64,
    /// Texts for the operator that were too many, or that the module's grant did not let out.
    pub logs_dropped: u64,
    /// Frames that the module sent on its channels.
    pub sent: u64,
    unsent: [u64; Unsent::ALL.len()],
    /// Calls of services that the module made, and those that were not let out: too many were open, or its
    /// grant does not allow it.
    pub calls: u64,
    pub calls_lost: u64,
    /// Replies of the module's services, and those that came too late or to no call.
    pub replies: u64,
    pub replies_lost: u64,
    /// Instances that a fault ended.
    pub faults: u64,
    /// The packets of each event queue. Together they are those that the view's filters let pass, without
    /// those that were shed before they had a queue.
    pub queues: Vec<QueueAccount>,
}

impl Account {
    /// Returns an account with empty event queues of these names.
    pub fn with_queues(names: impl IntoIterator<Item = String>) -> Self {
        let queues = names.into_iter().map(|name| QueueAccount { name, ..QueueAccount::default() }).collect();
        Self { queues, ..Self::default() }
    }

    /// Counts packets that were offered, and those of them that the view's filters did not select.
    pub fn offer(&mut self, offered: u64, filtered: u64) {
        self.offered += offered;
        self.filtered += filtered;
    }

    /// Counts packets that were offered and that sampling left out.
    pub fn sample(&mut self, packets: u64) {
        self.offered += packets;
        self.sampled += packets;
    }

    /// Counts packets that came into a queue.
    pub fn queued(&mut self, queue: usize, packets: u64) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.packets += packets;
        }
    }

    /// Counts packets of a queue as processed.
    pub fn process(&mut self, queue: usize, packets: u64) {
        self.processed += packets;
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.processed += packets;
        }
    }

    /// Returns the processed packets of a queue after `more`.
    pub fn processed_with(&self, queue: usize, more: u32) -> Processed {
        let packets = self.queues.get(queue).map_or(self.processed, |queue| queue.processed);
        Processed { queue, packets: packets + u64::from(more) }
    }

    /// Records the number of processed packets of a queue, unless more are known to be.
    pub fn raise_processed(&mut self, Processed { queue, packets }: Processed) {
        let known = self.queues.get_mut(queue).map_or(&mut self.processed, |queue| &mut queue.processed);
        *known = packets.max(*known);
    }

    /// Counts packets of a queue as lost because all its blocks were in use.
    pub fn overrun(&mut self, queue: usize, packets: u64) {
        self.shed(Shed::Overrun, packets);
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.overrun += packets;
        }
    }

    /// Counts packets as shed for a cause.
    pub fn shed(&mut self, cause: Shed, packets: u64) {
        self.shed[cause as usize] += packets;
    }

    /// Returns the number of packets shed for a cause.
    pub fn shed_by(&self, cause: Shed) -> u64 {
        self.shed[cause as usize]
    }

    /// Counts frames of channels as not sent for a cause.
    pub fn unsent(&mut self, cause: Unsent, frames: u64) {
        self.unsent[cause as usize] += frames;
    }

    /// Returns the number of frames of channels that were not sent for a cause.
    pub fn unsent_by(&self, cause: Unsent) -> u64 {
        self.unsent[cause as usize]
    }

    /// Replaces the number of frames of channels that were not sent for a cause.
    pub fn set_unsent(&mut self, cause: Unsent, frames: u64) {
        self.unsent[cause as usize] = frames;
    }

    /// Returns the number of packets accounted for so far without those of sampling, which is the index of
    /// the next one among those that can be shown.
    pub fn accounted(&self) -> u64 {
        self.processed + self.filtered + self.shed.iter().sum::<u64>()
    }

    /// Returns whether every offered packet is accounted for exactly once.
    pub fn adds_up(&self) -> bool {
        let queues = |of: fn(&QueueAccount) -> u64| self.queues.iter().map(of).sum::<u64>();
        let passed = self.offered.saturating_sub(self.filtered + self.sampled);
        let fit = self.queues.is_empty()
            || queues(|q| q.packets) <= passed
                // Instances before an update may have had no queues.
                && queues(|q| q.processed) <= self.processed
                && queues(|q| q.overrun) <= self.shed_by(Shed::Overrun)
                && self.queues.iter().all(|q| q.processed + q.overrun <= q.packets);
        self.offered == self.accounted() + self.sampled && fit
    }

    /// Returns the account for the holder of a grant, who must not learn the number of hidden packets.
    pub fn without_sampled(&self) -> Self {
        Self { offered: self.offered.saturating_sub(self.sampled), sampled: 0, ..self.clone() }
    }

    /// Returns the account without what a module under a grant could put into it: numbers that it can choose
    /// are rounded to the next power of two, and what it states of its losses is left out.
    pub fn without_choices(&self) -> Self {
        Self {
            records_lost: 0,
            messages_lost: rounded(self.messages_lost),
            withheld: rounded(self.withheld),
            logs_dropped: rounded(self.logs_dropped),
            calls: rounded(self.calls),
            calls_lost: rounded(self.calls_lost),
            replies: rounded(self.replies),
            replies_lost: rounded(self.replies_lost),
            unsent: self.unsent.map(rounded),
            ..self.clone()
        }
    }

    /// Returns the part of the packets that had been offered by an earlier account of the same instance,
    /// which has ended with this one. Those that were on their way then came to their ends before others.
    #[must_use]
    pub fn until(&self, then: &Self) -> Self {
        let Self { offered, processed, filtered, sampled, shed, ref queues, .. } = *then;
        let mut left = offered.saturating_sub(then.accounted() + sampled);
        let mut account =
            Self { offered, processed, filtered, sampled, shed, queues: queues.clone(), ..self.clone() };
        let mut take = |now: u64, before: &mut u64| {
            let more = now.saturating_sub(*before).min(left);
            left -= more;
            *before += more;
        };
        take(self.processed, &mut account.processed);
        self.shed.iter().zip(&mut account.shed).for_each(|(now, before)| take(*now, before));
        let mut gained = account.processed - processed;
        for (queue, now) in account.queues.iter_mut().zip(&self.queues) {
            let more = queue.others().min(now.processed.saturating_sub(queue.processed)).min(gained);
            queue.processed += more;
            gained -= more;
        }
        account.shed(Shed::Stopped, left);
        account
    }

    /// Adds the numbers of another account.
    pub fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.processed += other.processed;
        self.filtered += other.filtered;
        self.sampled += other.sampled;
        self.cut += other.cut;
        self.records += other.records;
        self.written += other.written;
        self.withheld += other.withheld;
        self.messages_lost += other.messages_lost;
        self.logged += other.logged;
        self.logs_dropped += other.logs_dropped;
        // The module reports this number, so it may have any value.
        self.records_lost = self.records_lost.saturating_add(other.records_lost);
        self.faults += other.faults;
        self.sent += other.sent;
        self.calls += other.calls;
        self.calls_lost += other.calls_lost;
        self.replies += other.replies;
        self.replies_lost += other.replies_lost;
        let mut earlier = QueueAccount::default();
        for theirs in &other.queues {
            let named = self.queues.len();
            match self.queues.iter_mut().find(|mine| mine.name == theirs.name) {
                Some(mine) => mine.add(theirs),
                None if named < MOST_QUEUES => self.queues.push(theirs.clone()),
                // A module chooses the names, and may have others after each update.
                None => earlier.add(theirs),
            }
        }
        if earlier != QueueAccount::default() {
            match self.queues.iter_mut().find(|queue| queue.name.is_empty()) {
                Some(queue) => queue.add(&earlier),
                None => self.queues.push(earlier),
            }
        }
        for (mine, theirs) in self.unsent.iter_mut().zip(other.unsent) {
            *mine += theirs;
        }
        for (mine, theirs) in self.shed.iter_mut().zip(other.shed) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up() {
        assert_eq!([0, 1, 2, 3, 1000, u64::MAX].map(rounded), [0, 1, 2, 4, 1024, u64::MAX]);
    }

    #[test]
    fn numbers_that_a_module_chooses_are_rounded() {
        let all = |n| Account {
            records_lost: n,
            messages_lost: n,
            withheld: n,
            logs_dropped: n,
            calls: n,
            calls_lost: n,
            replies: n,
            replies_lost: n,
            unsent: [n; Unsent::ALL.len()],
            ..Account::default()
        };
        assert_eq!(all(1000).without_choices(), Account { records_lost: 0, ..all(1024) });
        let packets = Account { offered: 1000, processed: 999, records: 5, ..Account::default() };
        assert_eq!(packets.without_choices(), packets);
    }

    #[test]
    fn an_account_until_an_earlier_one_has_no_later_packets() {
        let mut then = Account::with_queues(["a".to_owned()]);
        (then.offered, then.filtered, then.sampled) = (100, 20, 10);
        then.queued(0, 70);
        then.process(0, 40);
        then.shed(Shed::Share, 5);
        // 25 are on their way. Of all, 3 are shed before the others.
        let mut end = Account { offered: 1000, filtered: 220, faults: 1, ..then.clone() };
        end.queued(0, 700);
        end.process(0, 722);
        end.shed(Shed::Trap, 3);
        assert!(end.adds_up(), "{end:?}");
        let until = end.until(&then);
        assert!(until.adds_up(), "{until:?}");
        assert_eq!((until.offered, until.filtered, until.processed, until.faults), (100, 20, 65, 1));
        assert_eq!(until.queues[0].packets, 70);
        // Some had no end.
        let end = Account { processed: 60, ..end };
        assert_eq!((end.until(&then).shed_by(Shed::Trap), end.until(&then).shed_by(Shed::Stopped)), (3, 2));
        assert_eq!(end.until(&Account::default()).offered, 0);
    }

    #[test]
    fn queues_add_up_and_are_added_by_name() {
        let mut account = Account::with_queues(["a", "b"].map(str::to_owned));
        account.offered = 12;
        account.filtered = 2;
        account.queued(0, 6);
        account.queued(1, 4);
        account.process(0, 3);
        account.process(1, 4);
        account.overrun(0, 2);
        assert!(!account.adds_up(), "a packet waits");
        account.shed(Shed::Trap, 1);
        assert!(account.adds_up());
        assert_eq!(account.queues[0].others(), 1);
        let mut sum = Account::with_queues(["b", "c"].map(str::to_owned));
        sum.add(&account);
        sum.add(&account);
        let of = |q: &QueueAccount| (q.name.clone(), q.packets, q.processed, q.overrun);
        let named = |name: &str, packets, processed, overrun| (name.to_owned(), packets, processed, overrun);
        let expected = [named("b", 8, 8, 0), named("c", 0, 0, 0), named("a", 12, 6, 4)];
        assert_eq!(sum.queues.iter().map(of).collect::<Vec<_>>(), expected);
        assert!(sum.adds_up());
        // Names without end are counted together.
        let mut all = sum.clone();
        for n in 0..40 {
            let mut one = Account::with_queues([format!("q{n}")]);
            (one.offered, one.queues[0].packets) = (1, 1);
            one.process(0, 1);
            all.add(&one);
        }
        assert!(all.adds_up() && all.queues.len() == MOST_QUEUES + 1, "{:?}", all.queues);
        assert_eq!(all.queues.iter().map(|q| q.packets).sum::<u64>(), 20 + 40);
        // An instance without queues, before or after an update.
        let mut plain = Account { offered: 5, processed: 5, ..Account::default() };
        plain.add(&account);
        assert!(plain.adds_up());
        // More than came in.
        account.queues[1].processed += 1;
        assert!(!account.adds_up());
    }
}
