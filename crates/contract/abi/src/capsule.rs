//! The binary interface of capsules: WebAssembly modules that active nodes run and pass on.
//!
//! A capsule is a module of at most 8191 bytes with one page of memory, exported as `memory`. Each function
//! that it exports has one parameter, the length of the arguments, which the node writes at address 0, and no
//! result. A datagram names a function by its place among the exported functions. The imports are calls of
//! the node, and each of them is linked only if it is granted.

/// The bytes of the only page of memory.
pub const PAGE: u64 = 65_536;

/// The instructions that a call of the node stands for.
pub const CALL_WEIGHT: u64 = 50;

/// The most exported functions.
pub const MAX_FUNCTIONS: usize = 64;

/// The prefix of the names under which the compiler exports globals, so that an instance can be wiped.
pub const GLOBAL: &str = "flame:global:";

/// The module name of each import.
pub const IMPORTS: &str = "flame";

/// A call of the node: name, parameters and results, `i` for i32 and `l` for i64.
pub type Import = (&'static str, &'static str, &'static str);

/// The calls that a node offers.
///
/// `neighbours` writes a list at an address, and returns its bytes. `send` has whether the place is remote,
/// the function, address and length of the arguments, place, and parts of the bound. `deliver` has address
/// and length; `leave` name, value and seconds; `service` name and argument. `ask` has the name, address and
/// length of a request, and address and length of the room for the reply; it returns the length of the reply,
/// of which as much is written as there is room.
pub const CALLS: [Import; 13] = [
    ("here", "", "l"),
    ("origin", "", "l"),
    ("from", "", "l"),
    ("now", "", "l"),
    ("hops", "", "l"),
    ("next", "l", "l"),
    ("neighbours", "i", "i"),
    ("send", "iiiill", ""),
    ("deliver", "ii", ""),
    ("leave", "lll", ""),
    ("find", "l", "l"),
    ("service", "ll", "l"),
    ("ask", "liiii", "i"),
];
