//! `flame-fleet`, the commands of a fleet: `flame fleet` and `flame query` continue as this program.
//!
//! ```text
//! node ─► spool files ─► agent ─► log (NATS) ─► archive: Parquet and a manifest ─► query (DataFusion)
//! ```
//!
//! Both services may be killed at any time: what they have done is in the spool's cut and in the manifest,
//! and the protocols ([`flame_fleet_protocol`]) decide about the rest.
#![forbid(unsafe_code)]

mod agent;
mod archive;
mod bench;
mod columns;
mod config;
mod holder;
mod live;
mod maintain;
mod output;
mod parquet_files;
mod query;
mod rtt;
mod store;
mod stream;
mod tables;
mod view;

#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(any(test, feature = "fuzz"))]
mod world;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod holder_tests;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod sql_tests;
#[cfg(test)]
mod way_tests;

// Fuzz targets name this crate and the fuzzer's.
#[cfg(test)]
extern crate flame_replay as libfuzzer_sys;
#[cfg(test)]
extern crate self as flame_fleet;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The error that ends a command. Its message states place and remedy.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// Send the records of nodes to one archive, and query it
#[derive(Parser)]
#[command(name = "flame-fleet", bin_name = "flame", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send the records of this node, or keep the records of all nodes
    #[command(subcommand)]
    Fleet(Fleet),
    Query(query::Query),
}

#[derive(Subcommand)]
enum Fleet {
    /// Send the records that the node writes to its spool files to the fleet's log, and follow the fleet,
    /// until it is ended
    Agent {
        /// The node's configuration, whose table `fleet` names spool and server
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    #[command(flatten)]
    Control(Box<flame_fleet_control::Command>),
    /// Take the records of all nodes from the fleet's log into the archive, until it is ended
    Archive {
        /// The configuration: a table `archive` with folder and server
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    Delay(live::Delay),
    Paths(live::Paths),
    Rtt(rtt::Rtt),
    #[command(hide = true)]
    Bench(bench::Bench),
}

/// Runs the command that the arguments state.
#[must_use]
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Fleet(Fleet::Agent { config }) => {
            config::Agent::open(&config).and_then(|agent| agent::run(&agent, &config))
        }
        Command::Fleet(Fleet::Archive { config }) => {
            config::Archive::open(&config).and_then(|config| archive::run(&config))
        }
        Command::Fleet(Fleet::Control(command)) => command.run(config::settings),
        Command::Fleet(Fleet::Delay(delay)) => delay.run(),
        Command::Fleet(Fleet::Paths(paths)) => paths.run(),
        Command::Fleet(Fleet::Rtt(rtt)) => rtt.run(),
        Command::Fleet(Fleet::Bench(bench)) => bench.run(),
        Command::Query(query) => query.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flame: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a message of a service, unless it is the one before.
fn note(last: &mut String, text: String) {
    if *last != text {
        eprintln!("{text}");
        *last = text;
    }
}
