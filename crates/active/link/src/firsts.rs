//! The first messages of exchanges that are answered in a second.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The part of an address in all that are answered.
const OF_ONE: u32 = 8;

/// The first messages of this second. Its entries are at most as many as are answered, and the neighbours.
#[derive(Default)]
pub struct Firsts {
    second: u64,
    /// The messages from strange addresses.
    others: u32,
    /// The messages from each address, as a neighbour's or not.
    of: BTreeMap<(IpAddr, bool), u32>,
}

impl Firsts {
    /// Returns whether a first message is answered. Of strange addresses, `most` are in a second.
    pub fn admit(&mut self, from: IpAddr, is_neighbour: bool, most: u32, now: u64) -> bool {
        if self.second != now / 1000 {
            *self = Self { second: now / 1000, ..Self::default() };
        }
        if !is_neighbour && self.others >= most {
            return false;
        }
        let own = self.of.entry((from, is_neighbour)).or_default();
        if *own >= most.div_ceil(OF_ONE) {
            return false;
        }
        *own += 1;
        self.others += u32::from(!is_neighbour);
        true
    }
}
