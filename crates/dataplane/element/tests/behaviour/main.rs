//! The behaviour of elements in small configurations, by subject.

#[path = "../common/account.rs"]
mod account;
#[path = "../common/mod.rs"]
mod common;
mod flows;
mod fragments;
mod home;
mod icmp;
mod limits;
mod manual;
mod packets;
mod reconfigure;
mod registry;
mod rewriter;
mod running;
mod scheduling;
mod sockets;
mod swaps;
mod tables;
mod threads;
