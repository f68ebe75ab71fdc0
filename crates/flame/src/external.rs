//! Commands that are programs of their own, so that this one is built as fast and as small without them.

use crate::error::Error;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The program of a fleet's commands.
const PROGRAM: &str = "flame-fleet";

/// Continues as `flame-fleet NAME ARGUMENTS`. The program lies beside this one, or in a folder of PATH.
///
/// # Errors
///
/// Returns only an error: the program is missing, or cannot be started.
pub fn become_fleet(name: &str, arguments: &[OsString]) -> Error {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places =
        beside.into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)));
    let Some(program): Option<PathBuf> = places.find(|place| place.is_file()) else {
        return format!(
            "flame {name}: the program {PROGRAM} is neither beside this one nor in a folder of PATH: build it \
             (make fleet), and copy it there"
        )
        .into();
    };
    let error = Command::new(&program).arg(name).args(arguments).exec();
    format!("{}: {error}", program.display()).into()
}
