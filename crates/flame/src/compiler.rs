//! The compiler for commands. Modules are read by confined child processes of this program.

use crate::cache;
use crate::error::Error;
use crate::interrupts;
use flame_compile::{Compiler, Worker};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that the first interrupt sets; a further one ends the process at once.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in interrupts::SIGNALS {
        // The handler itself sets the flag, so that a wait interrupted by the signal finds it set.
        flag::register(signal, stop.clone())?;
    }
    interrupts::watch(|| {})?;
    Ok(stop)
}

/// Returns a compiler for commands that only examine modules. It works without a cache if the cache folder
/// cannot be used.
pub fn looking() -> Result<Compiler<'static>, Error> {
    Ok(Compiler::new(Worker::this_program().stopped_by(stop_flag()?), cache::open(true)))
}
