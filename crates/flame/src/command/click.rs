use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_element::driver::{Invocation, Language, run};
use flame_graph::{Graph, Options, read, unbounded_cycles};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Run a Click configuration of native elements
///
/// The arguments are those of userlevel Click; `flame click --help` lists them.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Click {
    /// [flatten|check|help] [OPTION]... [FILE] [NAME=VALUE]...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Click {
    pub fn run(self) -> Result<Status, Error> {
        let invocation = Invocation::parse(self.arguments.into_iter().map(OsStringExt::into_vec))?;
        let interrupt = Arc::new(AtomicBool::new(false));
        stop_on_signals(&interrupt)?;
        match run(&invocation, Language { read: parse, cycles }, interrupt) {
            0 => Ok(Status::Done),
            _ => Ok(Status::Failed),
        }
    }
}

/// Ends the run at SIGINT and SIGTERM, as Click does: files are flushed and handlers are printed.
fn stop_on_signals(interrupt: &Arc<AtomicBool>) -> Result<(), Error> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let (interrupt, runner) = (interrupt.clone(), std::thread::current());
    std::thread::spawn(move || {
        for _ in signals.forever() {
            // A second signal ends the command, should the first not do.
            if interrupt.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            runner.unpark();
        }
    });
    Ok(())
}

/// Reads a library beside the file that requires it.
fn library(name: &str, from: &str) -> Result<(String, Vec<u8>), String> {
    let path = Path::new(from).parent().unwrap_or(Path::new("")).join(name);
    let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((path.to_string_lossy().into_owned(), bytes))
}

fn parse(bytes: &[u8], name: &str, variables: &[(String, String)]) -> Result<Graph, String> {
    let options = Options { variables: variables.to_vec(), library: Some(&library), ..Options::default() };
    read(bytes, name, &options).map_err(|e| e.to_string())
}

fn cycles(graph: &Graph) -> Vec<String> {
    unbounded_cycles(graph, &|e| e.class == "Loop").iter().map(|c| c.names(graph)).collect()
}
