//! What a credential leaves of its payer's rights, as it travels with a capsule.

use crate::Place;
use crate::bytes::{Malformed, array, expect, hash_of, number};

/// The most services, places and interfaces that a grant names.
pub const MAX_NAMED: usize = 8;
/// The most bytes of a grant.
pub const MAX_GRANT: usize = START + 3 * 8 * MAX_NAMED;
/// The bytes before its names.
const START: usize = 40;
/// The bits that say which sets are named.
const SERVICES: u8 = 1;
const PLACES: u8 = 2;
const INTERFACES: u8 = 4;

/// A set of numbers, or all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    is_some: bool,
    count: u8,
    /// In rising order, with zeros behind.
    all: [u64; MAX_NAMED],
}

/// The calls of the node that a capsule may make, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls(u8);

/// What a credential leaves of its payer's rights. It only takes away: a node grants what its own account of
/// the payer has, and no more than this. The node at which a capsule began states it, and others pass it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub calls: Calls,
    /// The most that all capsules of the payer may have accepted at a node in a second, so that this one is
    /// accepted.
    pub instructions: u64,
    pub bytes: u64,
    /// The most copies of one capsule.
    pub copies: u32,
    /// The most bytes of soft state that the payer may have at a node, so that this one leaves more.
    pub state: u64,
    /// The names of services that it may ask for.
    pub services: Named,
    /// The places of nodes that evaluate it.
    pub places: Named,
    /// The interfaces of nodes over which it comes from a neighbour or goes to one, see [`interface`].
    pub interfaces: Named,
}

impl Calls {
    pub const SEND: Self = Self(1);
    pub const DELIVER: Self = Self(2);
    pub const LEAVE: Self = Self(4);
    pub const SERVICE: Self = Self(8);
    pub const TIMES: Self = Self(16);
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(31);

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Named {
    /// All numbers.
    pub const ALL: Self = Self { is_some: false, count: 0, all: [0; MAX_NAMED] };

    /// Returns the set of these numbers, or `None` if there are more than [`MAX_NAMED`].
    #[must_use]
    pub fn some(numbers: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut set = Self { is_some: true, ..Self::ALL };
        for number in numbers {
            if set.numbers().contains(&number) {
                continue;
            }
            *set.all.get_mut(usize::from(set.count))? = number;
            set.count += 1;
            set.all[..usize::from(set.count)].sort_unstable();
        }
        Some(set)
    }

    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        !self.is_some || self.numbers().contains(&number)
    }

    fn numbers(&self) -> &[u64] {
        &self.all[..usize::from(self.count)]
    }

    fn meet(self, other: Self) -> Self {
        let mut both = self;
        if !self.is_some {
            return other;
        }
        (both.count, both.all) = (0, [0; MAX_NAMED]);
        for number in self.numbers().iter().filter(|number| other.has(**number)) {
            both.all[usize::from(both.count)] = *number;
            both.count += 1;
        }
        both
    }
}

impl Grant {
    /// The grant that takes nothing away.
    pub const ALL: Self = Self {
        calls: Calls::ALL,
        instructions: u64::MAX,
        bytes: u64::MAX,
        state: u64::MAX,
        services: Named::ALL,
        copies: u32::MAX,
        places: Named::ALL,
        interfaces: Named::ALL,
    };

    /// Returns what both leave.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self {
            calls: Calls(self.calls.0 & other.calls.0),
            instructions: self.instructions.min(other.instructions),
            bytes: self.bytes.min(other.bytes),
            copies: self.copies.min(other.copies),
            state: self.state.min(other.state),
            services: self.services.meet(other.services),
            places: self.places.meet(other.places),
            interfaces: self.interfaces.meet(other.interfaces),
        }
    }

    /// Returns whether it leaves nothing beyond `other`.
    #[must_use]
    pub fn within(self, other: Self) -> bool {
        self.meet(other) == self
    }

    /// Returns whether a node evaluates capsules under it.
    #[must_use]
    pub fn holds_at(&self, place: Place) -> bool {
        self.places.has(place.0)
    }

    /// Returns whether capsules under it may come or go over an interface.
    #[must_use]
    pub fn holds_over(&self, interface: u64) -> bool {
        self.interfaces.has(interface)
    }

    /// Returns the number of its bytes: none if it takes nothing away.
    #[must_use]
    pub fn length(&self) -> usize {
        let sets = [&self.services, &self.places, &self.interfaces];
        let names: usize = sets.iter().map(|set| set.numbers().len()).sum();
        if *self == Self::ALL { 0 } else { START + 8 * names }
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        if *self == Self::ALL {
            return;
        }
        let bit = |set: &Named, bit: u8| if set.is_some { bit } else { 0 };
        let Self { services, places, interfaces, .. } = self;
        let kinds = bit(services, SERVICES) | bit(places, PLACES) | bit(interfaces, INTERFACES);
        let counts = [services.count, places.count, interfaces.count];
        into.extend_from_slice(&[self.calls.0, kinds]);
        into.extend_from_slice(&counts);
        into.extend_from_slice(&[0; 3]);
        let numbers = [self.instructions, self.bytes, self.state, self.copies.into()];
        let names = services.numbers().iter().chain(places.numbers()).chain(interfaces.numbers());
        for number in numbers.iter().chain(names) {
            into.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads bytes that begin at `at` of a message. No bytes are the grant that takes nothing away, and each
    /// grant has one form.
    pub(crate) fn read(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
        if bytes.is_empty() {
            return Ok(Self::ALL);
        }
        Self::parse(bytes).map_err(|wrong| Malformed { at: at + wrong.at, ..wrong })
    }

    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let wrong = |field: &'static str, at: usize, expected: &'static str| {
            let found = bytes.get(at).copied().unwrap_or_default().into();
            Malformed { field, at, found, expected }
        };
        let [calls, kinds, services, places, interfaces] = array(bytes, 0, "grant")?;
        let reserved = number::<3>(bytes, 5, "grant's reserved")?;
        expect("grant's reserved", 5, reserved, "0", reserved == 0)?;
        if calls > Calls::ALL.0 {
            return Err(wrong("grant's calls", 0, "the five calls"));
        }
        if kinds > (SERVICES | PLACES | INTERFACES) {
            return Err(wrong("grant's kinds", 1, "0 to 7"));
        }
        let mut from = START;
        let mut set = |bit: u8, count: u8, head: usize, field: &'static str| {
            let count = usize::from(count);
            if count > MAX_NAMED || (count > 0 && kinds & bit == 0) {
                return Err(wrong(field, head, "at most 8, and none unless they are stated"));
            }
            let mut all = [0; MAX_NAMED];
            for number in &mut all[..count] {
                *number = u64::from_le_bytes(array(bytes, from, field)?);
                from += 8;
            }
            if !all[..count].is_sorted_by(|a, b| a < b) {
                return Err(wrong(field, head, "numbers in rising order"));
            }
            Ok(Named { is_some: kinds & bit != 0, count: u8::try_from(count).unwrap_or(0), all })
        };
        let services = set(SERVICES, services, 2, "grant's services")?;
        let places = set(PLACES, places, 3, "grant's places")?;
        let interfaces = set(INTERFACES, interfaces, 4, "grant's interfaces")?;
        let of = |from| Ok(u64::from_le_bytes(array(bytes, from, "grant")?));
        let (instructions, of_bytes, state) = (of(8)?, of(16)?, of(24)?);
        let copies = u32::try_from(of(32)?).map_err(|_| wrong("grant's copies", 36, "at most 4294967295"))?;
        let calls = Calls(calls);
        let grant =
            Self { calls, instructions, bytes: of_bytes, copies, state, services, places, interfaces };
        let is_whole = grant.length() == bytes.len();
        expect("grant", 0, bytes.len() as u64, "as long as its names, and no bytes for all", is_whole)?;
        Ok(grant)
    }
}

/// Returns the number that stands for an interface's name, never 0.
#[must_use]
pub fn interface(name: &str) -> u64 {
    let digest = hash_of(format!("interface\0{name}").as_bytes()).0;
    digest.first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes).max(1))
}
