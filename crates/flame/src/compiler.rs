//! The compiler as commands use it: modules are read by confined child processes of this program.

use crate::command::Error;
use crate::paths;
use flame_compile::{Cache, Compiler, Worker};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Does the work of such a child, if this process is one.
pub fn serve() -> Option<ExitCode> {
    flame_compile::serve(|| {
        use flame_plan::ModuleClass::{Bounded, Metered};
        let engines = flame_run::Engines::new()?;
        Ok::<_, flame_run::EngineError>([Bounded, Metered].map(|class| engines.of(class).clone()))
    })
}

/// Returns a flag that the first SIGINT or SIGTERM sets; a second one ends the process at once.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Returns a compiler for commands that only look at modules. They do without a cache that cannot be used.
pub fn looking() -> Result<Compiler<'static>, Error> {
    Ok(Compiler::new(Worker::this_program().stopped_by(stop_flag()?), Cache::open(&paths::cache()).ok()))
}
