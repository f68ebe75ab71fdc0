//! The location of the program in which modules run apart.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the program in which modules run apart. `FLAME_RUNNER` overrides the one beside this program.
///
/// # Errors
///
/// Returns the place where it was expected, and the remedy.
pub fn find_runner() -> Result<PathBuf, String> {
    if let Some(program) = env::var_os("FLAME_RUNNER") {
        return checked(program.into());
    }
    let exe = env::current_exe().map_err(|e| format!("this program's folder: {e}"))?;
    let installed = exe.with_file_name("flame-runner");
    // `make build` puts it apart from the programs that contain the compiler.
    let built = |up: &str| exe.parent().map(|folder| folder.join(up).join("runner/release/flame-runner"));
    let candidates = [Some(installed.clone()), built("..")];
    let found = candidates.into_iter().flatten().find(|path| path.is_file());
    found.ok_or_else(|| format!("no {} (`make install` installs it)", installed.display()))
}

fn checked(program: PathBuf) -> Result<PathBuf, String> {
    let is_file = |path: &Path| path.metadata().map(|m| m.is_file());
    match is_file(&program) {
        Ok(true) => Ok(program),
        Ok(false) => Err(format!("{}: no file (FLAME_RUNNER names it)", program.display())),
        Err(e) => Err(format!("{}: {e} (FLAME_RUNNER names it)", program.display())),
    }
}
