use crate::caller::{self, Caller};
use crate::command::click_modules::modules;
use crate::error::Error;
use crate::exit::Status;
use crate::interrupts;
use clap::Args;
use flame_element::driver::{Divided, Division, Invocation, Language, What, Worst, run};
use flame_graph::{Element, Graph, Options, Rules, Stuck, draw, open_library, read, unbounded_cycles};
use flame_trust::{MachineOption, Policy};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
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
        permitted(&invocation)?;
        let interrupt = Arc::new(AtomicBool::new(false));
        stop_on_signals(&interrupt)?;
        let modules = modules(&invocation, &interrupt)?;
        let language = Language { read: parse, cycles, bound, segment, insert_polls, draw };
        match run(&invocation, language, Some(modules), interrupt) {
            0 => Ok(Status::Done),
            _ => Ok(Status::Failed),
        }
    }
}

/// Checks that the policy of this machine lets its users run graphs, whose elements open devices.
fn permitted(invocation: &Invocation) -> Result<(), Error> {
    if invocation.what != What::Run || caller::audience().is_operator() {
        return Ok(());
    }
    let named = invocation.policy.as_ref().map(Path::new);
    let Some(path) = caller::policy(named)? else { return Ok(()) };
    // Its key may be closed to this user, and does not matter here.
    let policy = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Policy::parse(&policy)?.permits(MachineOption::Click, "flame click")?)
}

/// Ends the run at the first interrupt, as Click does: files are flushed and handlers are printed. A further
/// one ends the command, should the first not do.
fn stop_on_signals(interrupt: &Arc<AtomicBool>) -> Result<(), Error> {
    let (interrupt, runner) = (interrupt.clone(), std::thread::current());
    interrupts::watch(move || {
        interrupt.store(true, Ordering::Relaxed);
        runner.unpark();
    })?;
    Ok(())
}

fn parse(bytes: &[u8], name: &str, variables: &[(String, String)]) -> Result<Graph, String> {
    let options =
        Options { variables: variables.to_vec(), library: Some(&open_library), ..Options::default() };
    read(bytes, name, &options).map_err(|e| e.to_string())
}

fn cycles(graph: &Graph) -> Vec<String> {
    let rules = Rules::of_elements();
    let is_end = |e: &Element| (rules.passes)(e).is_some() || (rules.ends)(e);
    unbounded_cycles(graph, &is_end).iter().map(|c| c.names(graph)).collect()
}

fn bound(graph: &Graph, costs: &[f64]) -> Worst {
    let worst = flame_graph::worst_path(graph, costs, &Rules::of_elements());
    (worst.cost, worst.parts)
}

fn segment(graph: &Graph, costs: &[f64], waits: &[bool]) -> Worst {
    let worst = flame_graph::worst_segment(graph, costs, &Rules::of_elements(), waits);
    (worst.cost, worst.parts)
}

fn insert_polls(division: &Division<'_>) -> Result<Divided, String> {
    let Division { graph, costs, waits, limit, poll, is_push, is_interrupted } = *division;
    let polls = flame_graph::Polls { limit, cost: poll, is_push, is_interrupted };
    let name = |at: usize| graph.elements.get(at).map_or("a Poll", |e| e.name.as_str());
    match flame_graph::insert_polls(graph, costs, &Rules::of_elements(), waits, &polls) {
        Ok(divided) => Ok((divided.graph, divided.places, divided.worst.cost)),
        Err(Stuck::Element(at)) => Err(format!("{} costs more by itself", name(at))),
        Err(Stuck::TooMany) => Err("the graph would have more elements than a configuration may".to_owned()),
        Err(Stuck::Interrupted) => Err("interrupted".to_owned()),
        Err(Stuck::Segment(worst)) => {
            let path = worst.parts.first().map(|(path, _)| path.as_slice()).unwrap_or_default();
            let names: Vec<&str> = path.iter().map(|at| name(*at)).collect();
            Err(format!(
                "between {} there is no room for it: packets are pulled there, or the elements and a Poll cost \
                 more together",
                names.join(" -> ")
            ))
        }
    }
}
