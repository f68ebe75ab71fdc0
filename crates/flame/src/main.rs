//! `flame`, the command line: words, no logic. Each command is one file under `command/`.
#![forbid(unsafe_code)]

mod active_args;
mod admission_args;
mod cache;
mod caller;
mod client;
mod command;
mod compiler;
mod console;
mod costs;
mod doctor;
mod dry_run;
mod environment;
mod error;
mod exit;
mod extensions;
mod external;
mod files;
mod format;
mod grant_args;
mod help_groups;
mod interrupts;
mod limits;
mod log;
mod meant;
mod mint_checks;
mod notice;
mod outcome;
mod output_args;
mod overload_args;
mod paths;
mod plot;
mod profile;
mod progress;
mod questions;
mod remedies;
mod reserve_args;
mod send_args;
mod settings;
mod signals;
mod state_file;
mod table_args;
mod top;
mod trust_args;
mod vlan;
mod write;
mod written;

use clap::{FromArgMatches, Parser};
use std::process::ExitCode;

/// Returns the version, with the commit that `make install` and `make deb` state.
fn version() -> String {
    let commit = option_env!("FLAME_COMMIT").unwrap_or("built to try, of no stated commit");
    format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
}

/// Run untrusted monitoring modules on network traffic: in a sandbox, at close to native speed, with access
/// to granted packets and bytes only
#[derive(Parser)]
#[command(version = version(), propagate_version = true, max_term_width = 100, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,

    /// Print messages on standard error: -v for notes on the way, -vv for details, -vvv for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Cli {
    /// Parses the arguments of this process. Help, and errors of usage, end it.
    fn of_process() -> Self {
        let matches = help_groups::command().try_get_matches().unwrap_or_else(|error| {
            let given: Vec<String> = std::env::args().skip(1).collect();
            let _ = error.print();
            if let Some(meant) = meant::of(&error, &given) {
                console::complain!("flame: did you mean: {meant}");
            }
            std::process::exit(error.exit_code());
        });
        Self::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
    }
}

fn main() -> ExitCode {
    if let Some(code) = flame_compile::serve() {
        return code;
    }
    flame_files::allow_many_files();
    // Before there are other threads.
    flame_run::register_barrier();
    // A reader that closes the pipe (`| head`) is an error to handle, not a signal to die from: results that
    // are written to files must still be finished. Rust ignores SIGPIPE for us.
    let settled = caller::Caller::here().settle();
    let run = || {
        let cli = Cli::of_process();
        log::start(cli.verbose, caller::audience())?;
        cli.command.run()
    };
    match settled.and_then(|()| run()) {
        Ok(status) => status.code(),
        Err(error) => {
            console::complain!("flame: {error}");
            error::status(&*error).code()
        }
    }
}
