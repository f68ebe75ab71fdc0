//! The parent's side of a child process: starts it, enforces its limits, and reads its answer.

use crate::answer::Answer;
use crate::child;
use crate::job::Job;
use crate::limits::Limits;
use crate::report;
use crate::step::Step;
use crate::sys;
use crate::sys::Usage;
use flame_base::lock;
use flame_bounds::Size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    #[error("it took more than {seconds} s of processor time, the limit for {size}; {REMEDY}")]
    Cpu { seconds: u64, size: Size },
    #[error("it took more than {mib} MiB of memory, the limit for {size}; {REMEDY}")]
    Memory { mib: u64, size: Size },
    /// The reserved part of an allowance was used, which is less than the limit.
    #[error("it took more than {seconds} s of processor time, all that the credential's allowance had left")]
    Allowance { seconds: u64 },
    #[error("it had no answer after {seconds} s; try again when the machine does less")]
    Deadline { seconds: u64 },
    #[error("interrupted")]
    Interrupted,
    /// The program is at fault, or the child was killed from outside.
    #[error("the process that does it ended: {0}")]
    Ended(String),
    #[error("the process that does it gave an answer that is not understood: {0}")]
    Answer(&'static str),
    #[error("the process that does it could not be started: {0}")]
    Start(String),
}

const REMEDY: &str = "split its largest functions, or split the module";

impl Stopped {
    /// Returns whether the failure is attributed to the module, and not to the machine or its operator.
    pub(crate) fn is_the_modules(&self) -> bool {
        !matches!(self, Self::Interrupted | Self::Start(_) | Self::Allowance { .. })
    }
}

/// A starter of child processes that examine, analyse and compile.
#[derive(Clone, Debug)]
pub struct Worker {
    program: PathBuf,
    stop: Arc<AtomicBool>,
    usage: Arc<Mutex<Usage>>,
    /// A child for the next capsule, if it was started ahead.
    spare: Arc<Mutex<Option<Spare>>>,
}

/// A child that has confined itself, and waits for its only job.
#[derive(Debug)]
struct Spare {
    child: Child,
    /// Its standard input.
    job: PipeWriter,
}

/// Interval of checks of a silent child.
const CHILD_CHECK: Duration = Duration::from_millis(50);
/// Maximum number of bytes to keep of a child's error output.
const MAX_ERRORS: usize = 4096;
/// Maximum length of a capsule for a child that was started ahead: less than a pipe holds.
const MAX_SPARE: usize = 16 << 10;

impl Worker {
    /// Starts children from this process's own program, even if its file was replaced. The program must call
    /// [`crate::serve`].
    pub fn this_program() -> Self {
        Self::new("/proc/self/exe")
    }

    /// Starts children from another program that calls [`crate::serve`].
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), stop: Arc::default(), usage: Arc::default(), spare: Arc::default() }
    }

    /// Returns the worker with a flag that ends its children when it is set.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Returns the resources that the children of this worker used so far.
    pub fn usage(&self) -> Usage {
        *lock(&self.usage)
    }

    /// Does a job in a child process, in the reserved processor time if there is any. Also returns the
    /// processor time that was used, by the kernel's account.
    pub(crate) fn perform(
        &self,
        job: &Job,
        (wasm, size): (&[u8], Size),
        reserved: Option<Duration>,
    ) -> (Done, Duration) {
        let full = Limits::of(job.step(), wasm.len(), size);
        let limits = reserved.map_or(full, |time| full.within(time));
        let spare = matches!(job, Job::Capsule).then(|| lock(&self.spare).take()).flatten();
        let child = match spare.and_then(|spare| spare.begin(job, wasm, limits.cpu)) {
            Some(child) => Ok(child),
            None => input(job, wasm)
                .map_err(|e| Stopped::Start(e.to_string()))
                .and_then(|input| Child::start(self, job.step(), (wasm.len(), size), limits.cpu, input)),
        };
        let mut child = match child {
            Ok(child) => child,
            Err(stopped) => return (Err(stopped), Duration::ZERO),
        };
        let read = child.read(&self.stop, &limits);
        let (waited, errors) = child.end();
        // There is no account if this process was started with SIGCHLD ignored.
        let used = waited.as_ref().map_or(Duration::from_secs(limits.cpu), |(_, used)| used.cpu);
        if let Ok((_, used)) = &waited {
            let mut usage = lock(&self.usage);
            *usage = Usage { cpu: usage.cpu + used.cpu, memory: usage.memory.max(used.memory) };
        }
        let done = read.and_then(|answer| match waited {
            Ok((status, used)) if !status.success() => {
                Err(match reason(status, used, &errors, &limits, size) {
                    Stopped::Cpu { seconds, .. } if seconds < full.cpu => Stopped::Allowance { seconds },
                    stopped => stopped,
                })
            }
            // A complete answer is enough if there is no status.
            _ => Answer::parse(job.step(), answer).map_err(Stopped::Answer),
        });
        (done, used)
    }
}

impl Worker {
    /// Starts a child for the next capsule, unless there is one. It ends with the thread that calls this.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started. Then the next capsule's child is started when it comes.
    pub(crate) fn prepare(&self) -> Result<(), Stopped> {
        let mut spare = lock(&self.spare);
        if spare.is_none() {
            let (stdin, job) = std::io::pipe().map_err(|e| Stopped::Start(e.to_string()))?;
            let (bytes, size) = (MAX_SPARE, Size::default());
            let seconds = Limits::of(Step::Compile, bytes, size).cpu;
            let child = Child::start(self, Step::Compile, (bytes, size), seconds, stdin.into())?;
            *spare = Some(Spare { child, job });
        }
        Ok(())
    }
}

impl Spare {
    /// Gives the child its job, with this much processor time. Returns `None` if it has ended meanwhile, or
    /// if the job is too long for it.
    fn begin(mut self, job: &Job, wasm: &[u8], seconds: u64) -> Option<Child> {
        let begun = if wasm.len() > MAX_SPARE { None } else { self.give(job, wasm, seconds).ok() };
        match begun {
            Some(()) => Some(self.child),
            None => {
                let _ = self.child.end();
                None
            }
        }
    }

    fn give(&mut self, job: &Job, wasm: &[u8], seconds: u64) -> io::Result<()> {
        let limit = Rlimit { current: Some(seconds), maximum: Some(seconds + 1) };
        rustix::process::prlimit(Some(self.child.pid), Resource::Cpu, limit)?;
        let job = postcard::to_stdvec(job).map_err(io::Error::other)?;
        // Both fit in the pipe, so this does not wait. A child that has ended makes it fail.
        self.job.write_all(&[&job, wasm].concat())
    }
}

/// An answer with its machine code, or the reason why it is missing.
type Done = Result<(Answer, Vec<u8>), Stopped>;

/// Returns job and module in memory that the child can read and no process can change.
fn input(job: &Job, wasm: &[u8]) -> io::Result<OwnedFd> {
    let job = postcard::to_stdvec(job).map_err(io::Error::other)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("flame-module", flags)?);
    file.write_all(&job)?;
    file.write_all(wasm)?;
    file.rewind()?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// A child that is killed when dropped.
#[derive(Debug)]
struct Child {
    pid: Pid,
    /// Refers to the child even after its id was reused.
    pidfd: OwnedFd,
    stdout: File,
    /// The child's standard error output: a file in memory, which need not be read while it runs.
    stderr: File,
}

impl Child {
    /// Starts a child that may use `seconds` of processor time.
    fn start(
        worker: &Worker,
        step: Step,
        of: (usize, Size),
        seconds: u64,
        input: OwnedFd,
    ) -> Result<Self, Stopped> {
        let fail = |what: &str, e: &dyn std::fmt::Display| Stopped::Start(format!("{what}: {e}"));
        let stderr =
            rustix::fs::memfd_create("flame-errors", MemfdFlags::CLOEXEC).map_err(|e| fail("memfd", &e))?;
        let stderr = File::from(stderr);
        let errors = stderr.try_clone().map_err(|e| fail("memfd", &e))?;
        let started = Command::new(&worker.program)
            .args(child::arguments(step, of, seconds))
            .env_clear()
            .stdin(Stdio::from(input))
            .stdout(Stdio::piped())
            .stderr(Stdio::from(errors))
            .spawn();
        let mut child = started.map_err(|e| {
            let remedy = if worker.program.starts_with("/proc") { " (mount /proc)" } else { "" };
            fail(&format!("{}{remedy}", worker.program.display()), &e)
        })?;
        let pid = Pid::from_child(&child);
        match (pidfd_open(pid, PidfdFlags::empty()), child.stdout.take()) {
            (Ok(pidfd), Some(stdout)) => {
                Ok(Self { pid, pidfd, stdout: OwnedFd::from(stdout).into(), stderr })
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(Stopped::Start("pidfd_open: Linux 5.9 or later is needed".to_owned()))
            }
        }
    }

    /// Reads until the child has closed its output and ended.
    fn read(&mut self, stop: &AtomicBool, limits: &Limits) -> Result<Vec<u8>, Stopped> {
        let mut answer = Vec::new();
        let (mut waited, mut last, mut open) = (Duration::ZERO, Instant::now(), true);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Stopped::Interrupted);
            }
            // Time during which this process was suspended does not count.
            waited += last.elapsed().min(2 * CHILD_CHECK);
            last = Instant::now();
            if waited >= limits.wall {
                return Err(Stopped::Deadline { seconds: limits.wall.as_secs() });
            }
            // The pipe comes first. After it is closed, the end of the process is awaited.
            let fd = if open { self.stdout.as_fd() } else { self.pidfd.as_fd() };
            let look = Timespec { tv_sec: 0, tv_nsec: CHILD_CHECK.subsec_nanos().into() };
            match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&look)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) if open => {
                    open = receive(&self.stdout, &mut answer)?;
                    if answer.len() > limits.answer {
                        return Err(Stopped::Answer("it is too long"));
                    }
                }
                Ok(_) => return Ok(answer),
                Err(e) => return Err(Stopped::Start(format!("poll: {e}"))),
            }
        }
    }

    /// Kills the child, and returns its status, the resources that it used and its error output.
    fn end(self) -> (io::Result<(ExitStatus, Usage)>, String) {
        // The child may have ended already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let waited = sys::wait(self.pid);
        let mut errors = [0; MAX_ERRORS];
        let n = self.stderr.read_at(&mut errors, 0).unwrap_or(0);
        let mut errors = String::from_utf8_lossy(&errors[..n]).trim().to_owned();
        report::clean(&mut errors);
        (waited, errors)
    }
}

/// Reads the available bytes. Returns false at the end.
fn receive(mut pipe: &File, into: &mut Vec<u8>) -> Result<bool, Stopped> {
    let mut part = [0; 1 << 16];
    match pipe.read(&mut part) {
        Ok(0) => Ok(false),
        Ok(n) => {
            into.extend_from_slice(&part[..n]);
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(e) => Err(Stopped::Start(format!("reading its answer: {e}"))),
    }
}

/// Returns the reason why an unsuccessful child ended.
fn reason(status: ExitStatus, used: Usage, errors: &str, limits: &Limits, size: Size) -> Stopped {
    let out_of_time = used.cpu >= Duration::from_secs(limits.cpu);
    match status.signal() {
        Some(libc::SIGXCPU) => Stopped::Cpu { seconds: limits.cpu, size },
        Some(libc::SIGKILL) if out_of_time => Stopped::Cpu { seconds: limits.cpu, size },
        Some(libc::SIGABRT) if errors.contains("memory allocation of") => {
            Stopped::Memory { mib: limits.memory >> 20, size }
        }
        Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP) => Stopped::Interrupted,
        Some(libc::SIGSYS) => Stopped::Ended("it made a system call that it has no use for".to_owned()),
        Some(signal) => Stopped::Ended(format!("signal {signal} {errors}")),
        None if status.code() == Some(child::NOT_CONFINED.into()) => {
            Stopped::Start(format!("it could not be confined: {errors}"))
        }
        None => Stopped::Ended(format!("{status} {errors}")),
    }
}
