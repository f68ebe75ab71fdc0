#![allow(unsafe_code)] // Its test maps memory by system calls, which no library does with any flags.

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// The system calls that a process keeps. Any other ends it.
///
/// Arguments are compared in their low 32 bits.
#[derive(Default)]
pub struct Filter(BTreeMap<i64, Vec<SeccompRule>>);

impl Filter {
    /// Creates a filter that permits private memory, clocks, random numbers, signals of the process to
    /// itself, and its end.
    ///
    /// `madvise` is permitted only with advices that concern the process's own pages: others, such as
    /// `MADV_HWPOISON`, change the memory of the machine.
    ///
    /// # Errors
    ///
    /// Returns an error only for arguments that the machine does not have.
    pub fn new() -> Result<Self, BackendError> {
        let mut filter = Self::default().allow(&[
            libc::SYS_munmap,
            libc::SYS_mremap,
            libc::SYS_brk,
            libc::SYS_futex,
            libc::SYS_getrandom,
            libc::SYS_clock_gettime,
            libc::SYS_sched_yield,
            libc::SYS_restart_syscall,
            libc::SYS_rt_sigreturn,
            libc::SYS_rt_sigaction,
            libc::SYS_rt_sigprocmask,
            libc::SYS_sigaltstack,
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_exit,
            libc::SYS_exit_group,
        ]);
        let advices = [
            libc::MADV_DONTNEED,
            libc::MADV_FREE,
            libc::MADV_HUGEPAGE,
            libc::MADV_NOHUGEPAGE,
            libc::MADV_DONTFORK,
        ];
        for advice in advices {
            filter = filter.allow_value(libc::SYS_madvise, 2, advice as u32)?;
        }
        // `abort` sends a signal to its own process.
        filter.allow_value(libc::SYS_tgkill, 0, std::process::id())
    }

    /// Permits `calls` with any arguments.
    #[must_use]
    pub fn allow(mut self, calls: &[i64]) -> Self {
        self.0.extend(calls.iter().map(|call| (*call, Vec::new())));
        self
    }

    /// Permits `call` if its argument number `argument` is `value`, besides the cases permitted before.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such argument.
    pub fn allow_value(self, call: i64, argument: u8, value: u32) -> Result<Self, BackendError> {
        self.allow_if(call, argument, SeccompCmpOp::Eq, value)
    }

    /// Permits `call` if none of the bits `mask` is set in its argument, besides the cases permitted before.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such argument.
    pub fn allow_without(self, call: i64, argument: u8, mask: u32) -> Result<Self, BackendError> {
        self.allow_if(call, argument, SeccompCmpOp::MaskedEq(mask.into()), 0)
    }

    /// Permits new private memory, and shared memory of a descriptor. No other form of a mapping is
    /// permitted: some escape the limits of a process, as shared memory without a descriptor and stacks that
    /// grow do.
    ///
    /// # Errors
    ///
    /// Returns an error only for arguments that the machine does not have.
    pub fn allow_maps(self) -> Result<Self, BackendError> {
        let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let of_descriptor = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let mut filter = self;
        for flags in [own, of_descriptor] {
            filter = filter.allow_without(libc::SYS_mmap, 3, !(flags | libc::MAP_FIXED) as u32)?;
        }
        Ok(filter)
    }

    fn allow_if(
        mut self,
        call: i64,
        argument: u8,
        operator: SeccompCmpOp,
        value: u32,
    ) -> Result<Self, BackendError> {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())?;
        self.0.entry(call).or_default().push(SeccompRule::new(vec![condition])?);
        Ok(self)
    }

    /// Installs the filter for all threads of the process, for good.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not support it.
    pub fn apply(self) -> Result<(), String> {
        let program = || -> Result<BpfProgram, BackendError> {
            let arch = std::env::consts::ARCH.try_into()?;
            let (otherwise, matching) = (SeccompAction::KillProcess, SeccompAction::Allow);
            SeccompFilter::new(self.0, otherwise, matching, arch)?.try_into()
        };
        let fail = |e: &dyn std::fmt::Display| format!("seccomp: {e}");
        seccompiler::apply_filter_all_threads(&program().map_err(|e| fail(&e))?).map_err(|e| fail(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    const FLAGS: &str = "FLAME_TEST_MAPS";

    /// Maps memory within the filter in another process, and returns the signal that ended it.
    fn signal(flags: i32) -> Option<i32> {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "filter::tests::maps_within_the_filter"]).env(FLAGS, flags.to_string());
        child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().signal()
    }

    /// The other process of the test below, rather than a test.
    #[test]
    fn maps_within_the_filter() {
        let Some(flags) = std::env::var(FLAGS).ok().and_then(|flags| flags.parse::<i32>().ok()) else {
            return;
        };
        Filter::new().unwrap().allow_maps().unwrap().apply().unwrap();
        // SAFETY: a new mapping changes no memory that exists.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0) };
        // SAFETY: it ends the process, whose other threads do nothing.
        unsafe { libc::_exit(i32::from(at == libc::MAP_FAILED)) }
    }

    #[test]
    fn only_forms_that_limits_count_are_permitted() {
        let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        for flags in [own, own | libc::MAP_NORESERVE, own | libc::MAP_STACK, libc::MAP_SHARED] {
            assert_eq!(signal(flags), None, "{flags:#x}");
        }
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        for more in [libc::MAP_GROWSDOWN, libc::MAP_LOCKED, libc::MAP_POPULATE, libc::MAP_HUGETLB, 1 << 30] {
            assert_eq!(signal(own | more), Some(libc::SIGSYS), "{more:#x}");
        }
        for flags in [shared, libc::MAP_SHARED_VALIDATE, own | libc::MAP_SHARED] {
            assert_eq!(signal(flags), Some(libc::SIGSYS), "{flags:#x}");
        }
    }
}
