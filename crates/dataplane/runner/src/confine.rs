//! Confinement: what remains are the inherited socket, memory, and three threads.

use flame_confine::Filter;

/// Gives up all system calls but those for memory, the socket, sleeping and clocks, for all threads. No
/// further thread can be started: a process with many would take the machine's processors from all others.
///
/// `fallocate`, `open` and relatives are not permitted, nor `socket`, `clone`, `execve`, `kill`, `ptrace`,
/// `process_vm_readv`, `io_uring_setup`, `bpf`, `userfaultfd` and `perf_event_open` (see "Trust" in
/// `flame_block`).
pub fn end() -> Result<(), String> {
    filter().map_err(|e| format!("seccomp: {e}"))?.apply()
}

fn filter() -> Result<Filter, flame_confine::BackendError> {
    let mut filter = Filter::new()?.allow(&[
        libc::SYS_mprotect,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_membarrier,
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_ppoll,
        libc::SYS_poll,
        libc::SYS_fstat,
        libc::SYS_close,
        libc::SYS_sched_getaffinity,
        // The standard input is the connection to the worker; its copy and the readers' events have other
        // numbers.
        libc::SYS_read,
        libc::SYS_recvmsg,
        libc::SYS_sendto,
        libc::SYS_recvfrom,
    ]);
    // The limit of memory counts private memory; what is shared comes with a descriptor.
    filter = filter.allow_maps()?;
    for command in [libc::F_GETFL, libc::F_GETFD, libc::F_GET_SEALS, libc::F_DUPFD_CLOEXEC] {
        filter = filter.allow_value(libc::SYS_fcntl, 1, command as u32)?;
    }
    filter
        .allow_value(libc::SYS_write, 0, 2)?
        .allow_value(libc::SYS_writev, 0, 2)?
        // A thread names itself.
        .allow_value(libc::SYS_prctl, 0, libc::PR_SET_NAME as u32)
}
