//! The loop of a runner: commands, quanta for the modules with work, and sleep.

use crate::grants::Grants;
use crate::module::Installed;
use flame_block::Reader;
use flame_execute::{Attachment, BatchLoop, Slices, Stop};
use flame_plan::limits::{LONG_SLICE, RUNNER_COMMANDS_MAX, RUNNER_REPORT, SLICE};
use flame_plan::{FaultReport, ModuleId};
use flame_remote::{BodyWriter, ChannelError, Command, FdReceiver, Install, Report, Sender};
use flame_run::Engines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The maximum number of bytes of an encoded command: a plan contains machine code.
const MAX_COMMAND: usize = 1 << 30;

/// Longest sleep of a runner whose modules wait for their shares of time.
const SHARE_CHECK: Duration = Duration::from_micros(500);
/// Time that a runner which reads captures naps before it sleeps. Packets need not be processed at once, and
/// a wake-up for each block would cost as much as many packets.
const NAP: Duration = Duration::from_millis(10);

/// Creates the engines.
pub fn engines() -> Result<Engines, String> {
    Engines::new().map_err(|e| format!("engine: {e}"))
}

/// Starts the watchdog, and the thread that ends slices.
pub fn start_threads(engines: &Engines) -> Result<Slices, String> {
    let error = |e: std::io::Error| format!("thread: {e}");
    engines.watchdog().start().map_err(error)?;
    let slices = Slices::default();
    // It ends with the process.
    std::mem::forget(slices.start(engines, || ()).map_err(error)?);
    Ok(slices)
}

/// Sets how the slices of these modules have to be ended, of a process that works.
fn set_slices(slices: &Slices, modules: &[Installed]) {
    let is_long = matches!(modules, [module] if module.keeps_nobody());
    slices.set_length(if is_long { LONG_SLICE } else { SLICE });
    slices.need(modules.iter().any(Installed::is_metered));
}

/// Serves a worker until it closes the connection.
pub fn serve(socket: OwnedFd, engines: &Engines, slices: &Slices) -> Result<(), String> {
    let copy = socket.try_clone().map_err(|e| format!("socket: {e}"))?;
    let (mut receiver, mut sender) = (FdReceiver::new(socket), Sender::new(copy));
    let flag = AtomicBool::new(false);
    let runner = Runner {
        engines,
        slices,
        flag: &flag,
        stop: Stop::new(&flag),
        stopped: Arc::default(),
        modules: Vec::new(),
        grants: Grants::default(),
        has_napped: false,
        flushed: Instant::now(),
    };
    match runner.work(&mut receiver, &mut sender) {
        Err(ChannelError::Closed) => Ok(()),
        // The worker does not wait for the last reports of a run that it ends.
        Err(ChannelError::Io(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|e| e.to_string()),
    }
}

struct Runner<'a> {
    engines: &'a Engines,
    slices: &'a Slices,
    flag: &'a AtomicBool,
    stop: Stop<'a>,
    /// The time when the run was found to be stopped, from which on all modules have theirs.
    stopped: Arc<OnceLock<Instant>>,
    modules: Vec<Installed>,
    grants: Grants,
    /// Whether the last sleep was a nap, during which nothing came.
    has_napped: bool,
    /// The time when reports were written last.
    flushed: Instant,
}

impl Runner<'_> {
    fn work(mut self, receiver: &mut FdReceiver, sender: &mut Sender) -> Result<(), ChannelError> {
        // The worker waits for it: nothing is loaded before this process is confined.
        sender.send(&Report::Alive(0), &[])?;
        sender.flush()?;
        loop {
            self.receive(receiver, sender)?;
            let mut received = Instant::now();
            // Calls of others must not cost packets of those who are called.
            let serves = !self.modules.iter_mut().any(Installed::has_urgent_blocks);
            let mut at = 0;
            let mut is_reported = true;
            while at < self.modules.len() {
                if received.elapsed() > RUNNER_COMMANDS_MAX {
                    self.receive(receiver, sender)?;
                    received = Instant::now();
                }
                if self.modules[at].step(serves, &self.stop, sender)? {
                    self.modules.remove(at);
                    set_slices(self.slices, &self.modules);
                    continue;
                }
                is_reported &= self.modules[at].report(sender)?;
                at += 1;
            }
            if self.modules.iter_mut().any(Installed::can_progress) {
                continue;
            }
            let naps = self.may_nap();
            if !naps || self.flushed.elapsed() >= NAP {
                sender.flush()?;
                self.flushed = Instant::now();
            }
            let timeout = match () {
                () if self.modules.iter_mut().any(Installed::is_waiting) => Some(SHARE_CHECK),
                () if !is_reported => Some(RUNNER_REPORT),
                () => None,
            };
            self.sleep(receiver, timeout, naps)?;
        }
    }

    /// Returns whether the next sleep is a nap, because no packet has to be processed at once.
    fn may_nap(&mut self) -> bool {
        !self.has_napped && !self.modules.is_empty() && self.modules.iter_mut().all(Installed::may_wait)
    }

    /// Executes the commands that have arrived.
    fn receive(&mut self, receiver: &mut FdReceiver, sender: &mut Sender) -> Result<(), ChannelError> {
        while receiver.receive(false)? {
            self.commands(receiver, sender)?;
        }
        Ok(())
    }

    fn commands(&mut self, receiver: &mut FdReceiver, sender: &mut Sender) -> Result<(), ChannelError> {
        while let Some((command, _)) = receiver.next(MAX_COMMAND)? {
            match command {
                Command::Bodies => {
                    if let Ok([file, read]) = <[OwnedFd; 2]>::try_from(receiver.take_fds(2)?) {
                        // The worker created it for this process, which cannot work without memory.
                        let bodies = BodyWriter::open(file, read).map_err(std::io::Error::other)?;
                        sender.place_bodies(bodies);
                    }
                }
                Command::Install(install) => {
                    let fds = receiver.take_fds(1)?;
                    self.install(*install, fds, sender)?;
                }
                Command::Attach { module, worker, discipline } => {
                    let fds = receiver.take_fds(3)?;
                    self.attach(module, Attachment { worker, discipline }, fds, sender)?;
                }
                Command::End { module, worker, now_ns, hands_over } => {
                    let of_id = self.modules.iter_mut().find(|m| m.id() == module);
                    of_id.into_iter().for_each(|m| m.end(worker, now_ns, hands_over));
                }
                Command::EndSlow { module } => {
                    let of_id = self.modules.iter_mut().find(|m| m.id() == module);
                    of_id.into_iter().for_each(Installed::end_slow);
                }
                Command::Import { module, worker, state } => {
                    let of_id = self.modules.iter().find(|m| m.id() == module);
                    of_id.into_iter().for_each(|m| m.import(worker, state.as_deref()));
                }
                Command::Serve { module, call, bytes } => {
                    if let Some(m) = self.modules.iter_mut().find(|m| m.id() == module) {
                        m.serve(call, bytes);
                    }
                }
                Command::Done { module, bytes } => {
                    if let Some(m) = self.modules.iter_mut().find(|m| m.id() == module) {
                        m.done(bytes);
                    }
                }
                Command::Evict { module, reason } => {
                    self.modules.iter().filter(|m| m.id() == module).for_each(|m| m.evict(reason.clone()));
                }
                Command::Renew { module, links } => {
                    let of_id = self.modules.iter().find(|m| m.id() == module);
                    of_id.into_iter().for_each(|m| m.renew(&self.grants.meters(&links)));
                }
                Command::Hold { module, holds } => {
                    let of_id = self.modules.iter_mut().find(|m| m.id() == module);
                    of_id.into_iter().for_each(|m| m.hold(holds));
                }
                Command::Stop => {
                    self.stopped.get_or_init(Instant::now);
                    self.flag.store(true, Ordering::Relaxed);
                }
                Command::Ping(number) => {
                    sender.send(&Report::Alive(number), &[])?;
                    sender.flush()?;
                }
            }
        }
        Ok(())
    }

    /// Loads a module. If that fails, reports the reason and the module's end.
    fn install(
        &mut self,
        install: Install,
        fds: Vec<OwnedFd>,
        sender: &mut Sender,
    ) -> Result<(), ChannelError> {
        let Ok([region]) = <[OwnedFd; 1]>::try_from(fds) else { return Ok(()) };
        let (id, name) = (install.plan.id, install.plan.name.clone());
        match Installed::new(self.engines, &mut self.grants, install, region, &self.stopped) {
            Ok(module) => {
                self.modules.push(module);
                set_slices(self.slices, &self.modules);
            }
            Err(text) => {
                sender.send(&Report::Fault(FaultReport::new(id, name, text)), &[])?;
                sender.send(&Report::Ended { module: id, messages_lost: 0 }, &[])?;
            }
        }
        Ok(())
    }

    /// Starts a module's fast instance for a worker.
    fn attach(
        &mut self,
        id: ModuleId,
        at: Attachment,
        fds: Vec<OwnedFd>,
        sender: &mut Sender,
    ) -> Result<(), ChannelError> {
        let Some(module) = self.modules.iter_mut().find(|m| m.id() == id) else { return Ok(()) };
        let Ok([data, control, event]) = <[OwnedFd; 3]>::try_from(fds) else { return Ok(()) };
        // Without its blocks the module cannot run, and the worker would wait for its reader.
        let reader = Reader::from_fds(data, control, event).map_err(std::io::Error::other)?;
        module.attach(at, reader, &self.stop, sender)?;
        set_slices(self.slices, &self.modules);
        Ok(())
    }

    /// Sleeps until a command, a block or a tick arrives, or for `timeout`. If it `naps`, several blocks must
    /// arrive.
    fn sleep(
        &mut self,
        receiver: &FdReceiver,
        timeout: Option<Duration>,
        naps: bool,
    ) -> Result<(), ChannelError> {
        let mut loops: Vec<&mut BatchLoop> = Vec::new();
        let mut timeout = timeout;
        self.has_napped = false;
        if naps {
            timeout = Some(timeout.map_or(NAP, |timeout| timeout.min(NAP)));
        }
        for module in &mut self.modules {
            let is_held = module.is_held();
            for batches in module.present() {
                // Work that waits for a share must not keep the process awake.
                match batches.is_busy() && !batches.can_progress() {
                    true if is_held => {}
                    true => timeout = Some(SHARE_CHECK),
                    false => loops.push(batches),
                }
            }
        }
        // Each is armed even if an earlier one is ready already, so that all are disarmed alike.
        let arm = |batches: &mut &mut BatchLoop| if naps { batches.arm_for_much() } else { batches.arm() };
        let is_idle = loops.iter_mut().fold(true, |idle, batches| arm(batches) & idle);
        if is_idle {
            let events = loops.iter().filter_map(|batches| batches.event());
            let mut fds: Vec<_> = std::iter::once(receiver.fd())
                .chain(events)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
            self.slices.work(false);
            let polled = poll(&mut fds, timeout.as_ref());
            self.slices.work(true);
            match polled {
                Ok(0) if naps => self.has_napped = !loops.iter().any(|batches| batches.is_busy()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(ChannelError::Io(e.into())),
            }
        }
        loops.iter_mut().for_each(|batches| batches.disarm());
        Ok(())
    }
}
