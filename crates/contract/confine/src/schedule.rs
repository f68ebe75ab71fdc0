#![allow(unsafe_code)] // Two system calls of the kernel's scheduler, for which no library is safe.

//! Processor time that the kernel guarantees to a thread, by its earliest-deadline-first scheduler
//! (`SCHED_DEADLINE`).

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use std::io;

const SCHED_DEADLINE: u32 = 6;
/// A thread that it starts has the usual scheduling.
const RESET_ON_FORK: u64 = 1;
/// The thread may also use what other threads with such time leave.
const RECLAIM: u64 = 2;

/// The processor time that a thread has in each period, before all threads without such time. It has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub slice_ns: u64,
    pub period_ns: u64,
}

/// The kernel's `struct sched_attr`, in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// Gives a thread time of its own, in place of what it has. Such a thread may run on every processor: the
/// kernel admits it for all of them. There is no way back to the usual scheduling but the thread's end:
/// kernels exist (6.18) that never give the time to others again after such a change.
///
/// # Errors
///
/// Returns the kernel's error: `EBUSY` if the time of all such threads would exceed what the kernel gives to
/// them, `EPERM` without `CAP_SYS_NICE`.
pub fn give_time(thread: u32, slice: Slice) -> io::Result<()> {
    give(thread, slice, RESET_ON_FORK)
}

/// Gives a thread time of its own as [`give_time`], and what other such threads leave, up to nearly a whole
/// processor: for work that is limited otherwise.
///
/// # Errors
///
/// Returns the errors of [`give_time`].
pub fn give_time_at_least(thread: u32, slice: Slice) -> io::Result<()> {
    give(thread, slice, RESET_ON_FORK | RECLAIM)
}

/// Returns the number of this thread.
pub fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

fn give(thread: u32, Slice { slice_ns, period_ns }: Slice, flags: u64) -> io::Result<()> {
    let id = i32::try_from(thread).map_err(io::Error::other)?;
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    sched_setaffinity(Pid::from_raw(id), &all)?;
    let attributes = Attributes {
        size: SIZE,
        policy: SCHED_DEADLINE,
        flags,
        runtime: slice_ns,
        deadline: period_ns,
        period: period_ns,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads as many bytes as the size states.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, id, &raw const attributes, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the time that the kernel guarantees to a thread.
///
/// # Errors
///
/// Returns the kernel's error, for example if there is no such thread.
pub fn given_time(thread: u32) -> io::Result<Option<Slice>> {
    let id = i32::try_from(thread).map_err(io::Error::other)?;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most as many bytes as the size states.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, id, &raw mut attributes, SIZE, 0) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let Attributes { policy, runtime: slice_ns, period: period_ns, .. } = attributes;
    Ok((policy == SCHED_DEADLINE).then_some(Slice { slice_ns, period_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_what_it_was_asked_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = child.id();
        assert_eq!(given_time(id).unwrap(), None);
        let slice = Slice { slice_ns: 100_000, period_ns: 10_000_000 };
        match give_time(id, slice) {
            // Others may have all of the time.
            Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ResourceBusy) => {
                eprintln!("skipped: {e}");
            }
            given => {
                given.unwrap();
                assert_eq!(given_time(id).unwrap(), Some(slice));
                let all = Slice { slice_ns: 10_000_001, ..slice };
                assert_eq!(give_time(id, all).unwrap_err().kind(), io::ErrorKind::InvalidInput);
                let less = Slice { slice_ns: 50_000, ..slice };
                give_time(id, less).unwrap();
                assert_eq!(given_time(id).unwrap(), Some(less));
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(give_time(id, slice).is_err() && given_time(id).is_err(), "it is gone");
    }
}
