//! The settings of a node: its neighbours, and the accounts of principals.

use flame_capsule::{Calls, Grant, Limits, MAX_LIST, Payer, Place};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The neighbours of a node and the ways to others.
#[derive(Clone, Debug, Default)]
pub struct Map {
    neighbours: Vec<(Place, SocketAddr)>,
    places: Vec<Place>,
    ways: BTreeMap<Place, Place>,
    /// The interfaces over which neighbours are reached, where they are stated.
    interfaces: BTreeMap<Place, u64>,
}

impl Map {
    /// Makes a map of at most [`MAX_LIST`] neighbours, and for other places the neighbour on the way.
    #[must_use]
    pub fn new(neighbours: &[(Place, SocketAddr)], ways: BTreeMap<Place, Place>) -> Self {
        let neighbours = neighbours[..neighbours.len().min(MAX_LIST)].to_vec();
        let places = neighbours.iter().map(|(place, _)| *place).collect();
        Self { neighbours, places, ways, interfaces: BTreeMap::new() }
    }

    /// States the interfaces over which neighbours are reached, as [`flame_capsule::interface`] numbers them.
    #[must_use]
    pub fn over(self, interfaces: BTreeMap<Place, u64>) -> Self {
        Self { interfaces, ..self }
    }

    /// Returns the interface over which a neighbour is reached, or 0 if it is not stated: then credentials
    /// that name interfaces are not for it.
    #[must_use]
    pub fn interface(&self, neighbour: Place) -> u64 {
        self.interfaces.get(&neighbour).copied().unwrap_or(0)
    }

    /// Returns the neighbours with their addresses.
    pub fn neighbours(&self) -> impl Iterator<Item = (Place, SocketAddr)> {
        self.neighbours.iter().copied()
    }

    /// Returns the places of the neighbours.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns the address of a neighbour.
    #[must_use]
    pub fn address(&self, place: Place) -> Option<SocketAddr> {
        self.neighbours.iter().find(|(neighbour, _)| *neighbour == place).map(|(_, address)| *address)
    }

    /// Returns whether an address is a neighbour's.
    #[must_use]
    pub fn has(&self, address: SocketAddr) -> bool {
        self.neighbours.iter().any(|(_, neighbour)| *neighbour == address)
    }

    /// Returns the neighbour on the way to a place.
    #[must_use]
    pub fn next(&self, place: Place) -> Option<Place> {
        if self.places.contains(&place) { Some(place) } else { self.ways.get(&place).copied() }
    }
}

/// The calls that are granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub send: bool,
    pub deliver: bool,
    pub leave: bool,
    pub service: bool,
    /// The service `time`: how long its own capsules took at this node.
    pub times: bool,
}

impl Rights {
    pub const ALL: Self = Self { send: true, deliver: true, leave: true, service: true, times: true };

    /// Returns those that a grant leaves.
    #[must_use]
    pub fn within(self, grant: &Grant) -> Self {
        let left = |is_granted: bool, call| is_granted && grant.calls.has(call);
        Self {
            send: left(self.send, Calls::SEND),
            deliver: left(self.deliver, Calls::DELIVER),
            leave: left(self.leave, Calls::LEAVE),
            service: left(self.service, Calls::SERVICE),
            times: left(self.times, Calls::TIMES),
        }
    }
}

/// What a principal has at this node.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub rights: Rights,
    /// The most of one capsule's bound that is accepted.
    pub most: Limits,
    /// The milliseconds in steps of which capsules see the time.
    pub resolution: u64,
}

/// The most entries of each account in each table.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Programs.
    pub codes: usize,
    /// Capsules that wait for code.
    pub held: usize,
    /// Values of soft state.
    pub soft: usize,
    /// Hashes that were sent, whose code the next hop may ask for.
    pub owed: usize,
    /// Keys under which hosts wait for deliveries.
    pub hosts: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { codes: 16, held: 32, soft: 256, owed: 64, hosts: 16 }
    }
}

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    pub here: Place,
    pub map: Map,
    pub accounts: BTreeMap<Payer, Terms>,
    /// The terms of strangers, and of principals without an account.
    pub best_effort: Terms,
    /// What strangers together may have accepted in a second.
    pub strangers: Limits,
    pub room: Room,
}

/// What was spent for a principal at this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub capsules: u64,
    pub instructions: u64,
    pub bytes: u64,
    pub copies: u64,
    pub times: Times,
}

/// The parts of the time of a capsule at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Authenticators of packets, verified and made.
    Authentication,
    /// Finding the program, or making it.
    Loading,
    /// Reading and writing messages, and the node's own tables.
    Marshalling,
    Running,
    /// The output.
    Transmission,
}

/// The nanoseconds of each part, as [`crate::Output::instant`] measures them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times(pub [u64; 5]);

impl Times {
    pub(crate) fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, part)| *sum = sum.saturating_add(part));
    }
}
