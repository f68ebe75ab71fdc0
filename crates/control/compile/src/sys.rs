#![allow(unsafe_code)] // Talks to the kernel where no library does.

use rustix::process::Pid;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Resources used by child processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The processor time of all of them.
    pub cpu: Duration,
    /// The memory of the largest one, in bytes.
    pub memory: u64,
}

/// Waits for a child and returns its status and the resources that it used.
///
/// The standard library's `Child` must not wait for it too.
pub(crate) fn wait(child: Pid) -> io::Result<(ExitStatus, Usage)> {
    use std::os::unix::process::ExitStatusExt;
    let mut status = 0;
    // SAFETY: a `rusage` of zeros is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers refer to values of the right type that outlive the call.
        let waited = unsafe { libc::wait4(child.as_raw_nonzero().get(), &mut status, 0, &mut usage) };
        if waited >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.max(0) as u64) + Duration::from_micros(t.tv_usec.max(0) as u64)
    };
    let usage = Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        // The kernel reports KiB.
        memory: (usage.ru_maxrss.max(0) as u64) << 10,
    };
    Ok((ExitStatus::from_raw(status), usage))
}
