use serde::{Deserialize, Serialize};

/// Why a packet that was offered to a module did not reach it whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Shed {
    /// The module trapped on it, or in the batch it was in.
    Trap,
    /// It used up its budget.
    Budget,
    /// It ran past the deadline of a call that seemed proved to be shorter.
    Bound,
    /// The module wrote output that does not fit its manifest, in the batch of this packet.
    Output,
    /// The instance had been stopped before, or the run was stopped and the packet's turn did not come in
    /// time.
    Stopped,
    /// The block was lost because the module fell behind its buffer.
    Overrun,
    /// It had used up its share of processor time.
    Share,
    /// It had lost its grant.
    Evicted,
}

impl Shed {
    pub const ALL: [Self; 8] = [
        Self::Trap,
        Self::Budget,
        Self::Bound,
        Self::Output,
        Self::Stopped,
        Self::Overrun,
        Self::Share,
        Self::Evicted,
    ];

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
        }
    }
}

/// Where every packet went: `offered = processed + filtered + sum(shed)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Packets the source delivered.
    pub offered: u64,
    /// Packets the module was given and returned from.
    pub processed: u64,
    /// Packets its filter left out.
    pub filtered: u64,
    shed: [u64; Shed::ALL.len()],
    /// Records that reached the sink.
    pub records: u64,
    /// Records the module itself reported as dropped.
    pub records_lost: u64,
    /// Messages that no slow instance took: it was gone, or too far behind.
    pub messages_lost: u64,
    /// Records and packets that its grant did not let out.
    pub withheld: u64,
    /// Packets it wrote to the capture file.
    pub written: u64,
    /// Instances that were ended by a fault.
    pub faults: u64,
}

impl Account {
    pub fn shed(&mut self, cause: Shed, packets: u64) {
        self.shed[cause as usize] += packets;
    }

    pub fn shed_by(&self, cause: Shed) -> u64 {
        self.shed[cause as usize]
    }

    /// Packets accounted for so far: the number, from 0, of the next one.
    pub fn accounted(&self) -> u64 {
        self.processed + self.filtered + self.shed.iter().sum::<u64>()
    }

    /// Whether every offered packet is accounted for exactly once.
    pub fn adds_up(&self) -> bool {
        self.offered == self.accounted()
    }

    pub fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.processed += other.processed;
        self.filtered += other.filtered;
        self.records += other.records;
        self.written += other.written;
        self.withheld += other.withheld;
        self.messages_lost += other.messages_lost;
        // The module's own number, so it may be anything.
        self.records_lost = self.records_lost.saturating_add(other.records_lost);
        self.faults += other.faults;
        for (mine, theirs) in self.shed.iter_mut().zip(other.shed) {
            *mine += theirs;
        }
    }
}
