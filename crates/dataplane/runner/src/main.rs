//! The process in which the modules of one principal run. A worker starts it with a socket as its standard
//! input; it is not for people. It gives up everything but that socket and memory before it receives any
//! module, and contains no compiler.

mod confine;
mod grants;
mod module;
mod serve;

use std::os::fd::AsFd;
use std::process::ExitCode;

/// The exit status of a runner that could not confine itself.
const NOT_CONFINED: u8 = 70;

/// The most that the stack of the first thread may have.
const STACK: u64 = 8 << 20;

/// Confines the process, and starts its other threads, the last that it can start.
fn confined(engines: &flame_run::Engines) -> Result<flame_execute::Slices, String> {
    // Landlock holds for threads that are started later.
    flame_confine::end()?;
    let slices = serve::start_threads(engines)?;
    // The stack of the first thread is not in the limit of memory.
    flame_confine::limit(flame_confine::Resource::Stack, STACK, STACK)?;
    confine::end().map(|()| slices)
}

fn main() -> ExitCode {
    let Some(parent) = std::env::args().nth(1).and_then(|id| id.parse().ok()) else {
        eprintln!("this is not for people: `flame run` and `flame node` start it");
        return ExitCode::from(NOT_CONFINED);
    };
    // It was started by a number of an open file, which would be its name.
    let _ = rustix::thread::set_name(c"flame-runner");
    // Restrictions of Landlock hold for the calling thread and those that it starts later.
    let engines = match flame_confine::begin(parent).and_then(|()| serve::engines()) {
        Ok(engines) => engines,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(NOT_CONFINED);
        }
    };
    let slices = match confined(&engines) {
        Ok(slices) => slices,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(NOT_CONFINED);
        }
    };
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    match socket.map_err(|e| e.to_string()).and_then(|socket| serve::serve(socket, &engines, &slices)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
