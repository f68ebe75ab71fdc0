//! The first messages of exchanges that are answered in a second.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The part of an address in all that are answered.
const OF_ONE: u32 = 8;

/// The sender of a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// At the address of a neighbour.
    Neighbour,
    Stranger,
    /// It has shown a cookie, so it receives at its address.
    Proven,
}

/// The first messages of this second. Its entries are at most as many as are answered.
#[derive(Default)]
pub struct Firsts {
    second: u64,
    /// The messages that are answered, of strangers and of those with a proven address.
    of_kind: BTreeMap<Sender, u32>,
    /// The messages from each address.
    of: BTreeMap<(IpAddr, Sender), u32>,
}

impl Firsts {
    /// Returns whether a first message is answered. Of each kind, `most` are in a second.
    pub fn admit(&mut self, from: IpAddr, sender: Sender, most: u32, now: u64) -> bool {
        if self.second != now / 1000 {
            *self = Self { second: now / 1000, ..Self::default() };
        }
        let of_kind = self.of_kind.entry(sender).or_default();
        if sender != Sender::Neighbour && *of_kind >= most {
            return false;
        }
        let own = self.of.entry((from, sender)).or_default();
        if *own >= most.div_ceil(OF_ONE) {
            return false;
        }
        *own += 1;
        *of_kind += 1;
        true
    }
}
