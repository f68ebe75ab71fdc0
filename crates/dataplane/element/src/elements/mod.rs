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
pub mod arp_table;
mod arp_waiting;
pub mod basic;
pub mod bound;
pub mod chance;
pub mod classify;
mod control_commands;
pub mod control_socket;
pub mod counter;
pub mod dump;
pub mod encap;
pub mod ether;
pub mod filter;
pub mod filter_expression;
pub mod filter_language;
pub mod from_device;
pub mod from_file;
pub mod gateway;
pub mod icmp;
pub mod icmp_rewriter;
pub mod inbox;
pub mod ip;
pub mod ipprint;
pub mod kernel_tun;
pub mod lookup;
pub mod module;
pub mod module_block;
pub mod module_forward;
pub mod module_rest;
pub mod opened;
mod origin;
pub mod output;
pub mod paint;
pub mod print;
pub mod queue;
pub mod reassembler;
pub mod rewriter;
pub mod rewriter_flows;
pub mod rewriter_pattern;
pub mod sched;
pub mod script;
pub mod socket;
pub mod source;
pub mod stream;
pub mod strip;
pub mod summary;
pub mod summary_fields;
pub mod summary_options;
pub mod switch;
pub mod thread_sched;
pub mod to_device;
pub mod unqueue;
pub mod util;
pub mod watch;
