//! `flame`, the command line: words, no logic. Each command is one file under `command/`.
#![forbid(unsafe_code)]

mod admission_args;
mod caller;
mod client;
mod command;
mod compiler;
mod console;
mod costs;
mod error;
mod exit;
mod files;
mod format;
mod grant_args;
mod notice;
mod paths;
mod plot;
mod progress;
mod remedies;
mod settings;
mod signals;
mod trust_args;

use clap::Parser;
use std::process::ExitCode;

/// Run untrusted monitoring modules on network traffic: sandboxed, at line rate, seeing only what
/// they may.
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    if let Some(code) = flame_compile::serve() {
        return code;
    }
    // A reader that closes the pipe (`| head`) is an error to handle, not a signal to die from: results that
    // are written to files must still be finished. Rust ignores SIGPIPE for us.
    let settled = caller::Caller::here().settle();
    match settled.and_then(|()| Cli::parse().command.run()) {
        Ok(status) => status.code(),
        Err(error) => {
            console::complain!("flame: {error}");
            exit::Status::Failed.code()
        }
    }
}
