use crate::denied;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use std::io;

/// Resets inherited settings that would affect files of this process: the umask; core files, which would hold
/// keys; and a limit on the length of files, which would cut a log within a line.
///
/// # Errors
///
/// Returns an error if a setting cannot be reset.
pub fn settle() -> io::Result<()> {
    umask(Mode::from_raw_mode(0o022));
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let length = getrlimit(Resource::Fsize);
    if let Some(most) = length.maximum {
        return Err(denied(format!("files may have no more than {most} bytes: lift the limit (ulimit -f)")));
    }
    Ok(setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None })?)
}

/// Allows this process to open as many files as the hard limit allows. The soft limit is usually 1,024, for
/// programs that use `select`, and an archive has more captures. Where the limit cannot be raised, it stays.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // A refusal is no error: a process that needs more learns it when a file cannot be opened.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Limits the memory of this process for data to `bytes`. A process that needs more is aborted.
///
/// # Errors
///
/// Returns an error if the limit cannot be set.
pub fn limit_data(bytes: u64) -> io::Result<()> {
    let limit = Rlimit { current: Some(bytes), ..getrlimit(Resource::Data) };
    Ok(setrlimit(Resource::Data, limit)?)
}
