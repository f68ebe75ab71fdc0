#![allow(unsafe_code)] // Closes inherited descriptors and leaves namespaces, for which no library is safe.

//! Confinement of a process that reads or runs foreign code.
//!
//! A confined process calls [`begin`] first, creates what it needs, and then calls [`end`] and installs a
//! [`Filter`]. What remains is memory, the descriptors 0 to 2, and the system calls of the filter. Namespaces
//! and Landlock are not available everywhere; system calls that could use files or a network are refused by
//! the filter in any case.

mod filter;
mod schedule;

pub use filter::Filter;
pub use schedule::{Slice, give_time, give_time_at_least, given_time, this_thread};
pub use seccompiler::BackendError;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
pub use rustix::process::Resource;
use rustix::process::{DumpableBehavior, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use std::fmt::Display;
use std::io;

fn fail(name: &str) -> impl Fn(&dyn Display) -> String {
    move |e| format!("{name}: {e}")
}

/// Gives up inherited descriptors, namespaces and capabilities, and ties the process to its parent. Threads
/// and files may still be opened.
///
/// # Errors
///
/// Returns the step that failed. The process must end then.
pub fn begin(parent: u32) -> Result<(), String> {
    // SAFETY: this is the first call of the process, which has opened nothing itself.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0_u32) } != 0 {
        return Err(fail("close_range")(&io::Error::last_os_error()));
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| fail("PR_SET_PDEATHSIG")(&e))?;
    // The parent may have died before the death signal was set.
    if rustix::process::getppid().map(|p| p.as_raw_nonzero().get() as u32) != Some(parent) {
        return Err("the process that started this one is gone".to_owned());
    }
    // When the machine has no memory left, this process ends and not its parent. This fails only
    // where /proc is not mounted.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    rustix::process::chdir("/").map_err(|e| fail("chdir")(&e))?;
    let apart = UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: the flags do not include FILES, which alone endangers descriptors.
    if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | apart) }.is_err() {
        // Where no namespace of users may be made, root still makes the others.
        // SAFETY: as above.
        let _ = unsafe { rustix::thread::unshare_unsafe(apart) };
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(|e| fail("capset")(&e))
}

/// Gives up files, networks, other processes, new privileges and core dumps. Restrictions of Landlock hold
/// for the calling thread and those that it starts later.
///
/// # Errors
///
/// Returns the step that failed. The process must end then.
pub fn end() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true).map_err(|e| fail("PR_SET_NO_NEW_PRIVS")(&e))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| fail("PR_SET_DUMPABLE")(&e))?;
    // An older kernel enforces the parts that it supports.
    let abi = ABI::V6;
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| r.handle_access(AccessNet::from_all(abi)))
        .and_then(|r| r.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(|r| r.restrict_self())
        .map_err(|e| fail("Landlock")(&e))?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Memlock, 0, 0)
}

/// Limits a resource, within the limit that the process already has.
///
/// # Errors
///
/// Returns the kernel's error.
pub fn limit(resource: Resource, soft: u64, hard: u64) -> Result<(), String> {
    let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let new = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
    rustix::process::setrlimit(resource, new).map_err(|e| fail("setrlimit")(&e))
}
