//! What a number of iterations comes from, and with it the work that it counts: the classes of the RBClick
//! study.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Depends {
    /// E1.
    #[default]
    Nothing,
    /// E2: how long the packet is.
    Length,
    /// E3: how long its headers are.
    Headers,
    /// E4: what lies at a fixed place of the module's memory, as parameters and what was made of them at the
    /// start do.
    Configuration,
    /// E5: what lies elsewhere in its memory, such as in an entry of a table.
    Stored,
    /// E6: what the packet says, or what cannot be told.
    Field,
    /// E7.
    Unknown,
}

impl Depends {
    /// E1 to E7.
    pub fn class(self) -> &'static str {
        ["E1", "E2", "E3", "E4", "E5", "E6", "E7"][self as usize]
    }
}
