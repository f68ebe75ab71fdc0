#![allow(unsafe_code)] // Closes inherited descriptors and leaves namespaces, for which no library is safe.

//! Confinement: what remains are the inherited socket, memory, and the threads of this process.

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

fn fail(name: &str, e: &dyn std::fmt::Display) -> String {
    format!("{name}: {e}")
}

/// Gives up inherited descriptors, and ties the process to its parent. Threads may still be started.
pub fn begin(parent: u32) -> Result<(), String> {
    // SAFETY: this is the first call of the process, which has opened nothing itself.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0_u32) } != 0 {
        return Err(fail("close_range", &std::io::Error::last_os_error()));
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| fail("PR_SET_PDEATHSIG", &e))?;
    // The parent may have died before the death signal was set.
    if rustix::process::getppid().map(|p| p.as_raw_nonzero().get() as u32) != Some(parent) {
        return Err("the process that started this one is gone".to_owned());
    }
    rustix::process::chdir("/").map_err(|e| fail("chdir", &e))?;
    // New namespaces are not permitted everywhere. System calls that could use a network are refused later in
    // any case.
    let apart = UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
    // SAFETY: the flags do not include FILES, the only one that endangers descriptors.
    if unsafe { rustix::thread::unshare_unsafe(apart) }.is_err() {
        // SAFETY: as above.
        let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | apart) };
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(|e| fail("capset", &e))
}

/// Gives up files, networks, other processes and new privileges.
pub fn end() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true).map_err(|e| fail("PR_SET_NO_NEW_PRIVS", &e))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| fail("PR_SET_DUMPABLE", &e))?;
    // Landlock is not available everywhere either. An older kernel enforces the parts that it supports.
    let abi = ABI::V6;
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| r.handle_access(AccessNet::from_all(abi)))
        .and_then(|r| r.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(|r| r.restrict_self())
        .map_err(|e| fail("Landlock", &e))?;
    for resource in [Resource::Core, Resource::Memlock] {
        let most = Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(resource, most).map_err(|e| fail("setrlimit", &e))?;
    }
    for filter in [no_clone3(), filter()] {
        let filter = filter.map_err(|e| fail("seccomp", &e))?;
        seccompiler::apply_filter_all_threads(&filter).map_err(|e| fail("seccomp", &e))?;
    }
    Ok(())
}

/// Returns a filter under which `clone3` does not exist: its flags lie in memory, which no filter sees. The C
/// library then uses `clone`.
fn no_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32), arch)?
        .try_into()
}

/// Returns a filter that permits memory, the socket, sleeping, clocks and threads of this process. Any other
/// system call kills the process.
///
/// `fallocate`, `open` and relatives are not permitted, nor `socket`, `execve`, `kill`,
/// `ptrace`, `process_vm_readv`, `io_uring_setup`, `bpf`, `userfaultfd` and `perf_event_open`. Of `madvise`,
/// only the advices that concern private memory are permitted (see "Trust" in `flame_block`).
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let condition = |argument, op, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map(|c| vec![c])
    };
    let rule = |conditions| SeccompRule::new(conditions);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_sched_yield,
        libc::SYS_membarrier,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_ppoll,
        libc::SYS_poll,
        libc::SYS_fstat,
        libc::SYS_memfd_create,
        libc::SYS_ftruncate,
        libc::SYS_close,
        libc::SYS_sched_getaffinity,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    let any = |argument, values: &[i32]| {
        let rules = values.iter().map(|v| rule(condition(argument, SeccompCmpOp::Eq, *v as u64)?));
        rules.collect::<Result<Vec<_>, _>>()
    };
    let advices = [
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_DONTFORK,
    ];
    rules.insert(libc::SYS_madvise, any(2, &advices)?);
    rules.insert(
        libc::SYS_fcntl,
        any(1, &[libc::F_GETFL, libc::F_GETFD, libc::F_GET_SEALS, libc::F_ADD_SEALS, libc::F_DUPFD_CLOEXEC])?,
    );
    // The standard input is the connection to the worker; its copy and the readers' events have other
    // numbers.
    for call in [libc::SYS_read, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_recvfrom] {
        rules.insert(call, Vec::new());
    }
    rules.insert(libc::SYS_write, any(0, &[2])?);
    rules.insert(libc::SYS_writev, any(0, &[2])?);
    // A thread names itself.
    rules.insert(libc::SYS_prctl, any(0, &[libc::PR_SET_NAME])?);
    // New threads, not new processes.
    rules.insert(libc::SYS_clone3, Vec::new());
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(condition(0, SeccompCmpOp::MaskedEq(thread), thread)?)?]);
    // `abort` sends a signal to its own process.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![rule(condition(0, SeccompCmpOp::Eq, own)?)?]);
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
}
