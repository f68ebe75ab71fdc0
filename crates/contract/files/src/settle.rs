use crate::denied;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};
use std::io;

/// Undoes what whoever started this process set for it, where that would reach files of its own: permissions
/// that are taken from new ones, core files, which hold keys, and a limit on files' lengths, which would cut
/// a log in the midst of a line. What cannot be undone is an error.
pub fn settle() -> io::Result<()> {
    umask(Mode::from_raw_mode(0o022));
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let length = getrlimit(Resource::Fsize);
    if let Some(most) = length.maximum {
        return Err(denied(format!("files may have no more than {most} bytes: lift the limit (ulimit -f)")));
    }
    Ok(setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None })?)
}
