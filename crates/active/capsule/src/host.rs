//! The calls that a node offers to a capsule. Each is linked by right: a call that was not granted is absent.

use crate::{Parts, Place};

/// The most elements of a list, and the most neighbours that a capsule sees.
pub const MAX_LIST: usize = 32;

/// The node on which a copy is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The node with this address: nodes between pass it on unseen.
    Remote(Place),
    /// The neighbour with this address.
    Neighbour(Place),
}

/// A call that the node refused. The capsule ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the call {0} is not granted: ask for the right, or leave it out")]
    NotGranted(&'static str),
    #[error("the capsule made more {0} than one evaluation may, {1}: make fewer")]
    TooMany(&'static str, usize),
    /// The evaluation ends without effects, and begins again once the reply is there.
    #[error("the reply is not there yet")]
    Waits,
}

/// A node, as a capsule sees it.
pub trait Host {
    /// Returns this node's address.
    fn here(&self) -> Place;

    /// Returns the node at which the capsule began.
    fn origin(&self) -> Place;

    /// Returns the neighbour from which it came, or [`Place::NOWHERE`].
    fn from(&self) -> Place;

    /// Returns the time in milliseconds since 1970, at the resolution of the payer's grant.
    fn now(&self) -> u64;

    /// Returns the hops that are left.
    fn hops(&self) -> u8;

    /// Returns the neighbour on the way to `place`, or [`Place::NOWHERE`].
    fn next(&self, place: Place) -> Place;

    /// Returns at most [`MAX_LIST`] neighbours.
    fn neighbours(&self) -> &[Place];

    /// Sends a copy that calls `function`, after this evaluation, with `parts` of the bound that is left
    /// then.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not granted, or was made too often.
    fn send(&mut self, function: u8, arguments: &[u8], to: Target, parts: Parts) -> Result<(), Refused>;

    /// Hands bytes to the application that waits at this node for capsules of this key.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not granted, or was made too often.
    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Refused>;

    /// Leaves a value for `seconds`, which later capsules of the payer find under the same key and name.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not granted, or was made too often.
    fn leave(&mut self, name: u64, value: i64, seconds: u64) -> Result<(), Refused>;

    /// Returns a value that was left, or 0.
    fn find(&self, name: u64) -> i64;

    /// Returns the answer of an installed module's service, or 0 if there is no such service.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not granted.
    fn service(&mut self, name: u64, argument: i64) -> Result<i64, Refused>;

    /// Returns the reply of an installed module's service to a request, and no bytes without one.
    ///
    /// # Errors
    ///
    /// Returns an error if the call is not granted, was made too often, or if the reply is not there yet.
    fn ask(&mut self, name: u64, request: &[u8]) -> Result<&[u8], Refused>;
}

/// Returns a name of at most eight bytes as a number: its bytes, little-endian, and zeros behind.
#[must_use]
pub fn name(text: &str) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(u64::from_le_bytes(bytes))
}
