//! The program in which modules run apart.

use flame_plan::limits::ProcessLimits;
use std::env;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The program in which modules run apart.
///
/// It is opened once. Later processes run the same build, whatever is installed in the meantime, and are
/// started by users who cannot reach its folder.
#[derive(Clone, Debug)]
pub struct Runner {
    path: PathBuf,
    /// `None` for a script, which its interpreter opens by its path.
    file: Option<Arc<File>>,
    pub(super) limits: ProcessLimits,
}

impl Runner {
    /// Opens the program that `FLAME_RUNNER` names, or the one beside this program.
    ///
    /// # Errors
    ///
    /// Returns the place where it was expected, and the remedy.
    pub fn open() -> Result<Self, String> {
        if let Some(named) = env::var_os("FLAME_RUNNER") {
            let path = PathBuf::from(named);
            return Self::at(&path).map_err(|e| format!("{e} (FLAME_RUNNER names it)"));
        }
        let exe = env::current_exe().map_err(|e| format!("this program's folder: {e}"))?;
        let path = exe.with_file_name("flame-runner");
        if !path.exists() {
            return Err(format!("no {} (`make install` installs it)", path.display()));
        }
        Self::at(&path)
    }

    /// Opens the program at `path`.
    ///
    /// # Errors
    ///
    /// Returns the path, and the reason for which it cannot be read.
    pub fn at(path: &Path) -> Result<Self, String> {
        let text = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut file = File::open(path).map_err(text)?;
        if !file.metadata().map_err(text)?.is_file() {
            return Err(format!("{}: no file", path.display()));
        }
        let mut start = [0; 2];
        let is_script = file.read_exact(&mut start).is_ok() && start == *b"#!";
        let file = (!is_script).then(|| Arc::new(file));
        Ok(Self { path: path.to_owned(), file, limits: ProcessLimits::default() })
    }

    /// Returns the program with other limits for its processes.
    #[must_use]
    pub fn with_limits(self, limits: ProcessLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns a command that starts the program.
    pub(super) fn command(&self) -> Command {
        let Some(file) = &self.file else { return Command::new(&self.path) };
        let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        command.arg0(&self.path);
        command
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the output of a copy of `echo`, opened as a runner, after `change` was made to its folder.
    fn output(change: impl FnOnce(&Path)) -> String {
        let folder = tempfile::tempdir().unwrap();
        fs::copy("/bin/echo", folder.path().join("runner")).unwrap();
        let runner = Runner::at(&folder.path().join("runner")).unwrap();
        change(folder.path());
        let out = runner.command().arg("opened").output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn the_build_that_was_opened_runs_although_another_is_installed() {
        let install = |folder: &Path| {
            fs::remove_file(folder.join("runner")).unwrap();
            fs::copy("/bin/false", folder.join("runner")).unwrap();
        };
        assert_eq!(output(install), "opened\n");
        assert_eq!(output(|folder| fs::remove_file(folder.join("runner")).unwrap()), "opened\n");
    }
}
