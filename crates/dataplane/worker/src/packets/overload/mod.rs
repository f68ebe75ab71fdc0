//! Sheds packets of modules of low priority while a worker is behind.
//!
//! [`Overload`] is the option. The regulator of a pipeline measures its modules, and lets [`Control`] decide
//! once for each of the source's blocks.

mod control;
#[cfg(test)]
mod tests;

pub(crate) use control::Control;

use std::fmt;
use std::str::FromStr;

/// The fill of a live source's buffer from which on modules of lower priorities receive no packets, in
/// percent. Captures are read as fast as the modules work, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload(Option<u8>);

impl Default for Overload {
    fn default() -> Self {
        Self(Some(50))
    }
}

impl Overload {
    /// The option by which the kernel alone drops packets, for all modules.
    pub const OFF: Self = Self(None);
    /// The fills that can be chosen. Beyond them, a few blocks fill the rest of the buffer, and whole modules
    /// have to be left out where a part of their blocks would do.
    const RANGE: std::ops::RangeInclusive<u8> = 10..=60;

    /// Returns the fill in thousandths, unless it is off.
    pub(crate) fn fill(self) -> Option<u32> {
        self.0.map(|percent| u32::from(percent) * 10)
    }
}

impl FromStr for Overload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::OFF);
        }
        let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
        match percent.filter(|n| Self::RANGE.contains(n)) {
            Some(percent) => Ok(Self(Some(percent))),
            None => {
                let (least, most) = (Self::RANGE.start(), Self::RANGE.end());
                Err(format!("{text:?}: expected \"off\" or a fill from \"{least}%\" to \"{most}%\""))
            }
        }
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(percent) => write!(f, "{percent}%"),
            None => f.write_str("off"),
        }
    }
}

/// The measurement of one module since the last one.
pub(crate) struct Sample {
    /// The time for a packet in picoseconds, if it was offered any.
    pub(crate) cost: Option<u64>,
    /// Whether it lost blocks of its own because others have the processor.
    pub(crate) is_pressed: bool,
    /// Whether the kernel guarantees its processor time.
    pub(crate) is_guaranteed: bool,
}
