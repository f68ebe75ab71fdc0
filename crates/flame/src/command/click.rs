use crate::caller::Caller;
use crate::command::click_modules::modules;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_element::driver::{Invocation, Language, run};
use flame_graph::{Graph, Options, draw, open_library, read, unbounded_cycles};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Run a Click configuration of native elements and modules
///
/// The arguments are those of userlevel Click; `flame click --help` lists them.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Click {
    /// [flatten|check|draw|help] [OPTION]... [FILE] [NAME=VALUE]...
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Click {
    pub fn run(self) -> Result<Status, Error> {
        let invocation = Invocation::parse(self.arguments.into_iter().map(OsStringExt::into_vec))?;
        // A configuration names files to read and to write.
        Caller::here().may_name("flame click", "run it with your own rights")?;
        let interrupt = Arc::new(AtomicBool::new(false));
        stop_on_signals(&interrupt)?;
        let modules = modules(&invocation, &interrupt)?;
        match run(&invocation, Language { read: parse, cycles, bound, draw }, Some(modules), interrupt) {
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

fn parse(bytes: &[u8], name: &str, variables: &[(String, String)]) -> Result<Graph, String> {
    let options =
        Options { variables: variables.to_vec(), library: Some(&open_library), ..Options::default() };
    read(bytes, name, &options).map_err(|e| e.to_string())
}

fn cycles(graph: &Graph) -> Vec<String> {
    unbounded_cycles(graph, &|e| e.class == "Loop" || ends(e)).iter().map(|c| c.names(graph)).collect()
}

/// Returns whether an element gives none of the packets that it takes, so that a path ends there.
fn ends(element: &flame_graph::Element) -> bool {
    matches!(element.class.as_str(), "Idle" | "KernelTun" | "Socket")
}

fn bound(graph: &Graph, costs: &[f64]) -> (f64, Vec<(Vec<usize>, u32)>) {
    let passes = |e: &flame_graph::Element| {
        (e.class == "Loop").then(|| e.config.trim().trim_start_matches("N ").trim().parse().unwrap_or(255))
    };
    let worst = flame_graph::worst_path(graph, costs, &flame_graph::Rules { passes: &passes, ends: &ends });
    (worst.cost, worst.parts)
}
