//! The loop of a runner: commands, quanta for the modules with work, and sleep.

use crate::module::Installed;
use flame_block::Reader;
use flame_execute::{SLICE, Stop};
use flame_plan::{FaultReport, ModuleId};
use flame_remote::{ChannelError, Command, Install, Receiver, Report, Sender};
use flame_run::Engines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The maximum number of bytes of an encoded command: a plan contains machine code.
const MAX_COMMAND: usize = 1 << 30;

/// The sleep of a runner whose modules wait for their shares of time.
const SHARES: Duration = Duration::from_micros(500);
/// The sleep of a runner with accounts to report.
const REPORTS: Duration = Duration::from_millis(20);

/// Creates the engines.
pub fn engines() -> Result<Engines, String> {
    Engines::new().map_err(|e| format!("engine: {e}"))
}

/// Starts the thread that ends slices.
pub fn end_slices(engines: &Engines) -> Result<(), String> {
    let slices = engines.clone();
    let run = move || {
        loop {
            std::thread::sleep(SLICE);
            slices.end_slice();
        }
    };
    std::thread::Builder::new()
        .name("flame-slices".to_owned())
        .spawn(run)
        .map_err(|e| format!("thread: {e}"))?;
    Ok(())
}

/// Serves a worker until it closes the connection.
pub fn serve(socket: OwnedFd, engines: &Engines) -> Result<(), String> {
    let copy = socket.try_clone().map_err(|e| format!("socket: {e}"))?;
    let (mut receiver, mut sender) = (Receiver::new(socket), Sender::new(copy));
    let flag = AtomicBool::new(false);
    let runner = Runner { engines, flag: &flag, stop: Stop::new(&flag), modules: Vec::new() };
    match runner.work(&mut receiver, &mut sender) {
        Err(ChannelError::Closed) => Ok(()),
        // The worker does not wait for the last reports of a run that it ends.
        Err(ChannelError::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|e| e.to_string()),
    }
}

struct Runner<'a> {
    engines: &'a Engines,
    flag: &'a AtomicBool,
    stop: Stop<'a>,
    modules: Vec<Installed>,
}

impl Runner<'_> {
    fn work(mut self, receiver: &mut Receiver, sender: &mut Sender) -> Result<(), ChannelError> {
        // The worker waits for it: nothing is loaded before this process is confined.
        sender.send(&Report::Alive(0), &[])?;
        sender.flush()?;
        loop {
            while receiver.receive(false)? {
                self.commands(receiver, sender)?;
            }
            let mut at = 0;
            let mut is_reported = true;
            while at < self.modules.len() {
                if self.modules[at].step(&self.stop, sender)? {
                    self.modules.remove(at);
                    continue;
                }
                is_reported &= self.modules[at].report(sender)?;
                at += 1;
            }
            if self.modules.iter_mut().any(Installed::can_progress) {
                continue;
            }
            sender.flush()?;
            let timeout = match () {
                () if self.modules.iter_mut().any(Installed::is_busy) => Some(SHARES),
                () if !is_reported => Some(REPORTS),
                () => None,
            };
            self.sleep(receiver, timeout)?;
        }
    }

    fn commands(&mut self, receiver: &mut Receiver, sender: &mut Sender) -> Result<(), ChannelError> {
        while let Some((command, _)) = receiver.next(MAX_COMMAND)? {
            match command {
                Command::Install(install) => self.install(*install, sender)?,
                Command::Attach { module, worker, is_live } => {
                    let fds = receiver.take_fds(3)?;
                    self.attach(module, (worker, is_live), fds, sender)?;
                }
                Command::End { module, worker, now_ns } => {
                    let of_id = self.modules.iter_mut().find(|m| m.id() == module);
                    of_id.into_iter().for_each(|m| m.end(worker, now_ns));
                }
                Command::Evict { module, reason } => {
                    self.modules.iter().filter(|m| m.id() == module).for_each(|m| m.evict(reason.clone()));
                }
                Command::Stop => self.flag.store(true, Ordering::Relaxed),
                Command::Ping(number) => {
                    sender.send(&Report::Alive(number), &[])?;
                    sender.flush()?;
                }
            }
        }
        Ok(())
    }

    /// Loads a module. If that fails, reports the reason and the module's end.
    fn install(&mut self, install: Install, sender: &mut Sender) -> Result<(), ChannelError> {
        let (id, name) = (install.plan.id, install.plan.name.clone());
        match Installed::new(self.engines, install) {
            Ok(module) => self.modules.push(module),
            Err(text) => {
                sender.send(&Report::Fault(fault(id, name, text)), &[])?;
                sender.send(&Report::Ended { module: id, messages_lost: 0 }, &[])?;
            }
        }
        Ok(())
    }

    /// Starts a module's fast instance for a worker.
    fn attach(
        &mut self,
        id: ModuleId,
        at: (usize, bool),
        fds: Vec<OwnedFd>,
        sender: &mut Sender,
    ) -> Result<(), ChannelError> {
        let Some(module) = self.modules.iter_mut().find(|m| m.id() == id) else { return Ok(()) };
        let Ok([data, control, event]) = <[OwnedFd; 3]>::try_from(fds) else { return Ok(()) };
        match Reader::from_fds(data, control, event) {
            Ok(reader) => module.attach(at, reader, &self.stop, sender),
            Err(e) => sender.send(&Report::Fault(fault(id, String::new(), e.to_string())), &[]),
        }
    }

    /// Sleeps until a command, a block or a tick arrives, or for `timeout`.
    fn sleep(&mut self, receiver: &Receiver, timeout: Option<Duration>) -> Result<(), ChannelError> {
        let mut loops: Vec<_> = self.modules.iter_mut().flat_map(Installed::loops).collect();
        // Each is armed even if an earlier one is ready already, so that all are disarmed alike.
        let is_idle = loops.iter_mut().fold(true, |idle, batches| batches.arm() & idle);
        if is_idle {
            let events = loops.iter().filter_map(|batches| batches.event());
            let mut fds: Vec<_> = std::iter::once(receiver.fd())
                .chain(events)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(ChannelError::Io(e.into())),
            }
        }
        loops.iter_mut().for_each(|batches| batches.disarm());
        Ok(())
    }
}

fn fault(id: ModuleId, module: String, text: String) -> FaultReport {
    FaultReport { id, module, worker: None, packet: None, text, evicted: None, restarted: false }
}
