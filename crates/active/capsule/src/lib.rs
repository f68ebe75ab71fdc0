//! Capsules: datagrams that carry a program, or the hash of one, and a bound for all that they spend.
//!
//! # Bytes
//!
//! A message is a capsule, a request for code, its answer, or a delivery to a host. The link between two
//! nodes adds and checks the authenticator, so the bytes here include none. Numbers are little-endian; a
//! reserved byte is zero.
//!
//! | at | bytes | field of a capsule | range |
//! | --- | --- | --- | --- |
//! | 0 | 1 | version | 1 |
//! | 1 | 1 | kind | 1 |
//! | 2 | 1 | function, by its place among the program's exported functions | |
//! | 3 | 1 | bound: hops | |
//! | 4 | 2 | length of the arguments | at most [`MAX_ARGUMENTS`] |
//! | 6 | 2 | length of the code, 0 if the hash stands for it | at most [`MAX_CODE`] |
//! | 8 | 8 | bound: instructions | |
//! | 16 | 8 | bound: bytes on links | |
//! | 24 | 4 | bound: copies | |
//! | 28 | 2 | length of the grant, 0 if it takes nothing away | at most [`MAX_GRANT`] |
//! | 30 | 2 | reserved | |
//! | 32 | 8 | the node at which it began | |
//! | 40 | 8 | the node that evaluates it, 0 for the receiver | |
//! | 48 | 16 | payer, 0 for Best Effort | |
//! | 64 | 16 | key of its soft state | |
//! | 80 | 32 | SHA-256 of the code | of the code, if that follows |
//! | 112 | | grant, arguments, then code | |
//!
//! | at | bytes | field of a grant, see [`Grant`] |
//! | --- | --- | --- |
//! | 0 | 1 | calls: send, deliver, leave, service, times from the lowest bit on |
//! | 1 | 1 | whether services (1), places (2) and interfaces (4) are named |
//! | 2 | 3 | number of services, of places and of interfaces, each at most [`MAX_NAMED`] |
//! | 5 | 3 | reserved |
//! | 8 | 32 | instructions and bytes in a second, bytes of soft state, copies |
//! | 40 | | services, places, then interfaces, each in rising order |
//!
//! | at | bytes | field of a request | field of an answer |
//! | --- | --- | --- | --- |
//! | 0 | 1 | version | version |
//! | 1 | 1 | kind, 2 | kind, 3 |
//! | 2 | 2 | reserved | reserved |
//! | 4 | 4 | the longest code that is taken | length of the code |
//! | 8 | 32 | SHA-256 of the code | SHA-256 of the code |
//! | 40 | | | code |
//!
//! | at | bytes | field of a delivery |
//! | --- | --- | --- |
//! | 0 | 1 | version |
//! | 1 | 1 | kind, 4 |
//! | 2 | 2 | reserved |
//! | 4 | 4 | length of the bytes, at most [`MAX_ARGUMENTS`] |
//! | 8 | 16 | key of the capsule |
//! | 24 | | bytes |
//!
//! # Promises
//!
//! | promise | test |
//! | --- | --- |
//! | what is written is read | `what_is_written_is_read` |
//! | bytes that are no message are refused, with field, place, found and expected | `each_field_is_checked` |
//! | no bytes make it panic, and what is read has one form | `any_bytes_are_refused_or_have_one_form` |
//! | code under a wrong hash is refused | `code_has_its_hash` |
//! | all that a tree of capsules spends and has left is the bound at its root | `splits_create_nothing` |
//! | a share that does not fit changes nothing | `a_refused_share_changes_nothing` |
//! | no chain of capsules is longer than its hops | `chains_end` |
//! | the meet of grants leaves no more than either | `the_meet_leaves_no_more` |
#![forbid(unsafe_code)]

mod bound;
mod bytes;
mod causes;
mod grant;
mod host;

pub use bound::{Bound, Exhausted, Limits, Parts, Resource};
pub use bytes::{
    CODE_HEADER, Capsule, CodeMessage, DELIVERY_HEADER, Delivery, HEADER, MAX_ARGUMENTS, MAX_CODE,
    MAX_MESSAGE, Malformed, Message, Request, VERSION, hash_of,
};
pub use grant::{Calls, Grant, MAX_GRANT, MAX_NAMED, Named, interface};
pub use host::{Host, MAX_LIST, Refused, Target, name};

/// The address of a node among active nodes. Its table of neighbours has the addresses of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u64);

impl Place {
    /// The address that no node has.
    pub const NOWHERE: Self = Self(0);
}

/// Who pays for a capsule: a digest of the root and the name of a principal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Payer(pub [u8; 16]);

impl Payer {
    /// All strangers together.
    pub const BEST_EFFORT: Self = Self([0; 16]);
}

/// The key under which capsules of one payer find each other's soft state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; 16]);

/// The SHA-256 of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);
