//! A network of active nodes in one thread, from a seed: random topologies, loss, repetition, replay,
//! reflection, changed bytes, crashes, clocks that are set back, nodes that lie and nodes that are not what
//! they claim.
//!
//! What is spent is counted outside the nodes: instructions by the sandbox, bytes and copies by the network.
//! So a node that counts wrongly does not hide it. Each run checks after each event:
//!
//! - What was spent for a principal is at most the sum of the bounds that it began with, and of the bounds
//!   that strangers sent; the accounts of nodes state no less than was spent.
//! - No chain of copies is longer than the hops of its origin.
//! - No table exceeds its limit.
//! - No node has a session with a machine whose certificate had expired, is revoked or is another's, and none
//!   evaluates a capsule of a principal after its certificate has ended.
//! - When the faults end, each node reaches each neighbour again.
//!
//! With a machine that lies, all that honest nodes spend is at most its share times its neighbours.
//!
//! These faults were planted by hand in the protocols, one at a time, and each was found by these tests:
//!
//! - a share of instructions is not subtracted; a copy carries the whole bound; a copy keeps its hops;
//! - a copy's datagram, a request for code, its answer or an evaluation is not paid;
//! - a nonce is taken again; authenticators are not verified;
//! - the wall clock alone is the time; a restart forgets the time; a session outlives its certificate;
//! - a certificate serves another key; an exchange with itself makes a session;
//! - a peer's share is not counted;
//! - programs, soft state or capsules that wait have no limit;
//! - a node sends on its newest session, not on the last that its peer used; a neighbour that uses an unknown
//!   session is not shown which there is.
//!
//! That code is owed once only has no test: who asks again pays for the answer from its share.
#![forbid(unsafe_code)]

mod authority;
mod sandbox;
mod world;

pub use authority::{Authority, Statement, own, secret};
pub use world::{Counts, Setup, Villain, run};
