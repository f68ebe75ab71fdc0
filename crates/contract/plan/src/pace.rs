use serde::{Deserialize, Serialize};

/// The extent to which whoever gives packets waits for the module that takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// Nobody waits: packets that are not taken in time get lost.
    Live,
    /// The giver waits until there is room for its packets.
    #[default]
    Waiting,
    /// The giver also waits for what became of each of its blocks before it gives the next one.
    Stepwise,
}

impl Pace {
    /// Returns the pace of a source that waits, unless it `is_live`.
    pub const fn of(is_live: bool) -> Self {
        if is_live { Self::Live } else { Self::Waiting }
    }

    pub const fn is_live(self) -> bool {
        matches!(self, Self::Live)
    }

    pub const fn is_stepwise(self) -> bool {
        matches!(self, Self::Stepwise)
    }
}
