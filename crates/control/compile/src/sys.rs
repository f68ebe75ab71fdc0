#![allow(unsafe_code)] // Talks to the kernel where no library does.

use crate::worker::Usage;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

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

/// Closes every descriptor from `first` on, including inherited ones.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: the child calls this first, before it has opened anything itself.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Replaces the parent's namespaces with new, empty ones.
pub(crate) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: no caller passes FILES, the only flag that endangers descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
