//! The tests of the command, of runs and of nodes, in one program: each of several would link all of FLAME.
//! Each folder has one subject: `cargo test --profile fast-build -p flame --test all -- node::` runs tests of
//! nodes.

mod active;
mod built;
mod click;
mod commands;
mod common;
mod daemon;
mod devices;
mod feed;
mod forward;
mod forwards;
mod network;
mod node;
mod run;
mod wasm;

// Parts that tests of other files use.
use click::{click_modules, click_threads};
use forward::forward_random;
use run::{credentials, services, slow_sink};
