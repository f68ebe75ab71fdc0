//! The compiler for commands. Modules are read by confined child processes of this program.

use crate::cache;
use crate::console::complain;
use crate::error::Error;
use crate::interrupts;
use flame_compile::{Compiler, Spent, Worker};
use signal_hook::flag;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Returns a function that waits until an allowance may have more, and says so the first time. It returns
/// false if `stop` is set.
pub fn waiting(stop: Arc<AtomicBool>) -> impl Fn(&Spent) -> bool {
    let is_said = Cell::new(false);
    move |Spent { share, wait }| {
        let wait = wait.unwrap_or_default();
        if !is_said.replace(true) {
            let seconds = wait.as_secs() + 1;
            complain!(
                "flame: waiting for the credential's allowance of compilation ({share}): about {seconds} s; \
                 Ctrl-C to give up"
            );
        }
        // Another process may give back what it has reserved.
        std::thread::sleep(wait.clamp(SHORTEST, LONGEST));
        !stop.load(Ordering::Relaxed)
    }
}

/// The range of the time after which a used-up allowance is asked again. A signal is noticed as late.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);

/// Returns a compiler for commands that only examine modules. It works without a cache if the cache folder
/// cannot be used.
pub fn looking() -> Result<Compiler<'static>, Error> {
    Ok(Compiler::new(Worker::this_program().stopped_by(stop_flag()?), cache::open(true)))
}
