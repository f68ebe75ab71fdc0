//! The quantity on which a trip count depends, and with it the work in the loop: the classes of the RBClick
//! study.

use serde::{Deserialize, Serialize};

/// The quantity on which a trip count depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Depends {
    /// E1: nothing.
    #[default]
    Nothing,
    /// E2: the length of the packet.
    Length,
    /// E3: the length of its headers.
    Headers,
    /// E4: values at fixed addresses of the module's memory, such as parameters and tables computed from them
    /// at the start.
    Configuration,
    /// E5: values elsewhere in its memory, such as in an entry of a table.
    Stored,
    /// E6: the contents of the packet, or an unknown value.
    Field,
    /// E7: not known.
    Unknown,
}

impl Depends {
    /// Returns the name of the class, E1 to E7.
    pub fn class(self) -> &'static str {
        ["E1", "E2", "E3", "E4", "E5", "E6", "E7"][self as usize]
    }
}
