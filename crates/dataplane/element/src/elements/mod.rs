//! The elements, by family. The head of each file is its manual, a paragraph for each element or group of
//! alike.

/// Declares a class of elements. The file states its text as `SOURCE`.
macro_rules! class {
    ($id:ident, $name:literal, $ports:literal, $modes:literal, [$($key:literal),*], $make:expr) => {
        pub static $id: crate::registry::Class = crate::registry::Class {
            name: $name,
            ports: $ports,
            processing: $modes,
            keywords: &[$($key),*],
            make: $make,
            source: SOURCE,
        };
    };
}

pub mod arp;
pub mod basic;
pub mod bound;
pub mod chance;
pub mod classify;
pub mod counter;
pub mod dump;
pub mod encap;
pub mod ether;
pub mod filter;
pub mod filter_language;
pub mod gateway;
pub mod icmp;
pub mod ip;
pub mod ipprint;
pub mod lookup;
pub mod paint;
pub mod print;
pub mod queue;
pub mod rewriter;
pub mod sched;
pub mod script;
pub mod script_functions;
pub mod source;
pub mod strip;
pub mod summary;
pub mod summary_fields;
pub mod switch;
pub mod unqueue;
pub mod util;
