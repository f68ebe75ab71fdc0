//! The child process. It gives up everything but its standard streams, some memory and some time, and only
//! then reads the module.

use crate::Engines;
use crate::job::{Job, Step, perform};
use crate::limits::Limits;
use crate::sys;
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::UnshareFlags;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// The first argument of a program that is started as a child process of the compiler.
pub const CHILD: &str = "confined-compiler";

/// The exit status of a child that could not confine itself.
pub(crate) const NOT_CONFINED: u8 = 70;

/// Returns the arguments of a child, without the program.
pub(crate) fn arguments(step: Step, module_bytes: usize) -> [OsString; 4] {
    let parent = std::process::id().to_string();
    [CHILD.into(), format!("{step:?}").into(), module_bytes.to_string().into(), parent.into()]
}

/// Parses a child's arguments: the step, the length of the module in bytes, and the id of the parent.
fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<(Step, usize, u32)> {
    let mut next = || arguments.next()?.into_string().ok();
    let step = next()?;
    let all = [Step::Examine, Step::Analyse, Step::Compile, Step::Lines];
    let step = all.into_iter().find(|s| format!("{s:?}") == step)?;
    Some((step, next()?.parse().ok()?, next()?.parse().ok()?))
}

/// Does one job as the child of a [`crate::Worker`], if this program was started as one. A program from which
/// workers are started must call this function before anything else.
pub fn serve() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CHILD {
        return None;
    }
    let served = match parse(arguments) {
        None => Err("this is not for people: `flame check` and `flame run` start it".to_owned()),
        Some((step, module_bytes, parent)) => prepare(step, module_bytes, parent),
    };
    Some(match served {
        Ok(engines) => work(engines.as_ref()),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(NOT_CONFINED)
        }
    })
}

/// Confines the process, before the module is read.
fn prepare(step: Step, module_bytes: usize, parent: u32) -> Result<Option<Engines>, String> {
    let fail = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    // Closes descriptors that this program's own parent left open.
    sys::close_from(3).map_err(|e| fail("close_range", &e))?;
    rustix::process::chdir("/").map_err(|e| fail("chdir", &e))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| fail("PR_SET_PDEATHSIG", &e))?;
    // The parent may have died before the death signal was set.
    if rustix::process::getppid().map(|p| p.as_raw_nonzero().get() as u32) != Some(parent) {
        return Err("the process that started this one is gone".to_owned());
    }
    let engines = match step {
        Step::Compile => Some(Engines::new().map_err(|e| fail("compiler", &e))?),
        _ => None,
    };
    confine(&Limits::of(step, module_bytes))?;
    Ok(engines)
}

fn confine(limits: &Limits) -> Result<(), String> {
    let fail = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    rustix::thread::set_no_new_privs(true).map_err(|e| fail("PR_SET_NO_NEW_PRIVS", &e))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| fail("PR_SET_DUMPABLE", &e))?;
    // New namespaces are not permitted everywhere. System calls that could use a network are refused below in
    // any case.
    if sys::unshare(UnshareFlags::NEWNET).is_err() {
        let _ = sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET);
    }
    // Landlock is not available everywhere either. An older kernel enforces the parts that it supports.
    let abi = ABI::V6;
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| r.handle_access(AccessNet::from_all(abi)))
        .and_then(|r| r.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(|r| r.restrict_self())
        .map_err(|e| fail("Landlock", &e))?;
    let limit = |resource, soft: u64, hard: u64| {
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let new = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
        rustix::process::setrlimit(resource, new).map_err(|e| fail("setrlimit", &e))
    };
    // Reserved address space costs nothing, but nothing here needs it.
    limit(Resource::As, limits.memory + ADDRESS_SPACE, limits.memory + ADDRESS_SPACE)?;
    limit(Resource::Data, limits.memory, limits.memory)?;
    limit(Resource::Stack, STACK, STACK)?;
    limit(Resource::Cpu, limits.cpu, limits.cpu + 1)?;
    limit(Resource::Fsize, ERRORS, ERRORS)?;
    for resource in [Resource::Core, Resource::Nproc, Resource::Memlock, Resource::Nofile] {
        limit(resource, 0, 0)?;
    }
    let filter = filter().map_err(|e| fail("seccomp", &e))?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|e| fail("seccomp", &e))
}

/// Address space for the program and its libraries, in bytes. They are mapped, not owned.
const ADDRESS_SPACE: u64 = 512 << 20;
/// Size of the stack in bytes. Nothing recurses by the module's depth, so this is plenty.
const STACK: u64 = 16 << 20;

/// Maximum error output in bytes. It is written to a file in memory.
const ERRORS: u64 = 64 << 10;

/// Returns a filter that permits memory, standard input and output, and the end of the process. Any other
/// system call kills the process.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let condition = |argument, op, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).map(|c| vec![c])
    };
    let rule = |conditions| SeccompRule::new(conditions);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_madvise,
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
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    // Executable memory is not permitted.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let exec = libc::PROT_EXEC as u64;
        rules.insert(call, vec![rule(condition(2, SeccompCmpOp::MaskedEq(exec), 0)?)?]);
    }
    rules.insert(libc::SYS_read, vec![rule(condition(0, SeccompCmpOp::Eq, 0)?)?]);
    let out = |fd| rule(condition(0, SeccompCmpOp::Eq, fd)?);
    rules.insert(libc::SYS_write, vec![out(1)?, out(2)?]);
    rules.insert(libc::SYS_writev, vec![out(2)?]);
    // `abort` sends a signal to its own process.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![rule(condition(0, SeccompCmpOp::Eq, own)?)?]);
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
}

/// Reads the job and the module, and writes the answer.
fn work(engines: Option<&Engines>) -> ExitCode {
    match read_all().and_then(|input| answer(&input, engines)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(input: &[u8], engines: Option<&Engines>) -> io::Result<()> {
    let (job, wasm): (Job, _) = postcard::take_from_bytes(input).map_err(io::Error::other)?;
    let (answer, code) = perform(&job, wasm, engines);
    write_all(&answer.head().map_err(io::Error::other)?)?;
    write_all(&code)
}

fn read_all() -> io::Result<Vec<u8>> {
    // Standard input is read without the standard library, which takes further system calls.
    let mut input = Vec::new();
    loop {
        input.reserve(1 << 16);
        match rustix::io::read(rustix::stdio::stdin(), rustix::buffer::spare_capacity(&mut input)) {
            Ok(0) => return Ok(input),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
