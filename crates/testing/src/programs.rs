//! Programs that a test writes and starts.
//!
//! Another process writes them. A file that this process wrote may be open for writing in a child that
//! another thread of it is just starting, and the kernel executes no such file ("Text file busy").

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes a program to `path` from a file.
fn install(from: &Path, path: &Path) -> std::io::Result<std::process::Child> {
    Command::new("install").args(["-m", "755"]).args([from, path]).stdin(Stdio::piped()).spawn()
}

/// Copies a program.
///
/// # Panics
///
/// Panics if it cannot be copied.
pub fn copy_program(from: &Path, path: &Path) {
    let status = install(from, path).and_then(|mut child| child.wait()).unwrap();
    assert!(status.success(), "copying {} to {}: {status}", from.display(), path.display());
}

/// Writes a script, whose first line names its interpreter, and returns its path.
///
/// # Panics
///
/// Panics if it cannot be written.
pub fn script(path: PathBuf, text: &str) -> PathBuf {
    let mut child = install(Path::new("/dev/stdin"), &path).unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "writing {}: {status}", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// As many programs are started by other threads as possible.
    #[test]
    fn programs_are_executable_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        Command::new("true").status().unwrap();
                    }
                });
            }
            let started = |path: &Path| {
                let out = Command::new(path).arg("--list").output();
                out.map(|out| out.status.success()).map_err(|e| e.to_string())
            };
            // A long program, so that others are started while it is written.
            let long = std::env::current_exe().unwrap();
            let all: Result<Vec<_>, _> = (0..80)
                .flat_map(|n| {
                    let (program, other) = (folder.path().join(format!("p{n}")), format!("s{n}"));
                    copy_program(&long, &program);
                    let of_program = started(&program);
                    [of_program, started(&script(folder.path().join(other), "#!/bin/sh\nexit 0\n"))]
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(all, Ok(vec![true; 160]));
        });
    }
}
