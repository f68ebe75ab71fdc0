//! The pipeline of one worker: computes every view once, and then runs the fast instances that share it.

use crate::error::RunError;
use crate::packets::batches::{Batches, PROCESS_CHECK};
use crate::packets::commands::Command;
use crate::packets::read::Packets;
use crate::packets::regulator::Regulator;
use crate::packets::stage::{PipelineOptions, ViewStage, has_own_blocks};
use crate::process::RemoteBatches;
use crate::records::event::Removed;
use crate::records::outlet::PipelineOutlet;
use crate::records::placed::Placed;
use crossbeam_channel::Sender;
use flame_execute::Conditions;
use flame_plan::{Account, FaultReport, ModuleId, Shed};

pub(crate) struct Pipeline<'a> {
    views: Vec<ViewStage>,
    /// The modules that were removed and have not ended yet. They receive no more packets.
    leaving: Vec<Leaving>,
    options: PipelineOptions<'a>,
    /// The control of overload on a live source.
    regulator: Option<Regulator>,
    /// Whether a module has not begun.
    has_awaited: bool,
}

/// A module that is being removed, alone in its view.
struct Leaving {
    view: ViewStage,
    now_ns: u64,
    reply: Sender<Account>,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(
        modules: &[Placed],
        options: PipelineOptions<'a>,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<Self, RunError> {
        let options = PipelineOptions { batch: options.batch.clamp(1, flame_abi::MAX_BATCH), ..options };
        let regulator = Regulator::new(options.overload).filter(|_| options.is_regulated());
        let (views, leaving) = Default::default();
        let mut pipeline = Self { views, leaving, options, regulator, has_awaited: false };
        modules.iter().try_for_each(|module| pipeline.add(module, outlet))?;
        Ok(pipeline)
    }

    fn add(&mut self, module: &Placed, outlet: &mut dyn PipelineOutlet) -> Result<(), RunError> {
        let shares = |view: &ViewStage| view.has_room_for(module);
        let at = match self.views.iter().position(shares).filter(|_| !has_own_blocks(module, &self.options)) {
            Some(at) => at,
            None => {
                self.views.push(ViewStage::new(module, &self.options)?);
                self.views.len() - 1
            }
        };
        self.views[at].add(module, &self.options, outlet)?;
        self.has_awaited |= module.onset.is_some();
        if let Some(regulator) = &mut self.regulator {
            regulator.add(module.plan().id, module.plan().terms.priority, &mut self.views);
        }
        Ok(())
    }

    /// Adds a module when packet time is `now_ns`.
    fn add_at(
        &mut self,
        module: &Placed,
        now_ns: u64,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<(), RunError> {
        self.add(module, outlet)?;
        self.report_time(now_ns);
        Ok(())
    }

    /// Reports a time to the other workers on which modules begin. It is 0 before the first packet.
    pub(crate) fn report_time(&mut self, now_ns: u64) {
        if self.has_awaited {
            self.loops().for_each(|batches| batches.report_time(now_ns));
        }
    }

    /// Begins a block of the source, of whose buffer `fill` thousandths wait, or records that none waits.
    /// Modules of low priorities may receive nothing of it.
    pub(crate) fn regulate(
        &mut self,
        fill: Option<u32>,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<(), RunError> {
        let Some(regulator) = &mut self.regulator else { return Ok(()) };
        match fill {
            Some(fill) => regulator.block(fill, &mut self.views),
            None => regulator.idle(&mut self.views),
        }
        while let Some(change) = regulator.take_change() {
            outlet.overload(self.options.worker, change)?;
        }
        Ok(())
    }

    /// Returns whether any view shows flow hashes. That changes with a command only.
    pub(crate) fn reads_hash(&self) -> bool {
        self.views.iter().any(ViewStage::reads_hash)
    }

    /// Executes a command, between two blocks. Packet time is `now_ns`.
    pub(crate) fn command(
        &mut self,
        command: Command,
        now_ns: u64,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<(), RunError> {
        match command {
            Command::Add(module) => match self.add_at(&module, now_ns, outlet) {
                // No memory or descriptor is left for its blocks. It does not run here; the others continue.
                Err(RunError::Block(e)) => {
                    module.abandon(self.options.worker);
                    let (id, name) = (module.plan().id, module.plan().name.clone());
                    let report = FaultReport::new(id, name, e.to_string());
                    outlet.fault(FaultReport { worker: Some(self.options.worker), ..report })
                }
                added => added,
            },
            Command::Remove(id, reply) => self.remove(id, now_ns, reply, outlet),
            Command::Replace(module, old, reply) => {
                self.remove(old, now_ns, reply, outlet)?;
                self.command(Command::Add(module), now_ns, outlet)
            }
            Command::Accounts(reply) => {
                let leaving = self.leaving.iter().map(|l| &l.view);
                let loops = self.views.iter().chain(leaving).flat_map(|v| &v.loops);
                let accounts = loops.map(|l| (l.module(), l.account())).collect();
                // This fails only if nobody waits for the reply any more.
                let _ = reply.send(accounts);
                Ok(())
            }
            // The collector of this thread has it.
            Command::Ask(..) => Ok(()),
        }
    }

    fn remove(
        &mut self,
        id: ModuleId,
        now_ns: u64,
        reply: Sender<Account>,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<(), RunError> {
        if let Some(regulator) = &mut self.regulator {
            regulator.remove(id, &mut self.views);
        }
        let conditions = self.options.conditions();
        let place =
            self.views.iter().enumerate().find_map(|(at, view)| {
                Some((at, view.loops.iter().position(|batches| batches.module() == id)?))
            });
        let Some((at, place)) = place else {
            // It could not be added on this worker.
            return outlet.removed(Removed { module: id, account: Account::default(), now_ns, reply });
        };
        if self.views[at].loops.len() == 1 {
            self.views[at].flush(conditions, outlet)?;
            let mut view = self.views.remove(at);
            view.loops.iter_mut().filter_map(Batches::remote_mut).for_each(RemoteBatches::remove);
            self.leaving.push(Leaving { view, now_ns, reply });
            return self.drain_leaving(false, outlet);
        }
        // It gives up the block that is being filled, which must not end for the others because this one
        // leaves.
        let view = &mut self.views[at];
        let staged = view.staged_packets();
        let batches = &mut view.loops[place];
        batches.shed(Shed::Stopped, staged);
        // Others do not wait for its last calls, where packets would get lost meanwhile, and nobody here for
        // another process.
        if self.options.discipline.loses_late_packets() || batches.is_remote() {
            batches.retire(&mut view.pool, now_ns, reply);
            return self.drain_leaving(false, outlet);
        }
        let conditions = Conditions { is_last: true, ..conditions };
        while !batches.leave(now_ns, conditions, outlet)? {}
        let account = view.remove(place).into_account();
        outlet.removed(Removed { module: id, account, now_ns, reply })
    }

    /// Gives one quantum to each module that is being removed. Its share of time limits its last calls as it
    /// limits others: a removal is not the end of the source.
    fn drain_leaving(&mut self, is_last: bool, outlet: &mut dyn PipelineOutlet) -> Result<(), RunError> {
        let conditions = Conditions { is_last, ..self.options.conditions() };
        let mut at = 0;
        while at < self.leaving.len() {
            let Leaving { view, now_ns, .. } = &mut self.leaving[at];
            if !view.hand_over_last(conditions, outlet)? {
                at += 1;
                continue;
            }
            let Some(batches) = view.loops.first_mut() else { break };
            if !batches.leave(*now_ns, conditions, outlet)? {
                at += 1;
                continue;
            }
            let Leaving { mut view, now_ns, reply } = self.leaving.remove(at);
            let batches = view.remove(0);
            let (module, account) = (batches.module(), batches.into_account());
            outlet.removed(Removed { module, account, now_ns, reply })?;
        }
        for view in &mut self.views {
            let removed = view.take_retired(conditions, outlet)?;
            removed.into_iter().try_for_each(|removed| outlet.removed(removed))?;
        }
        self.views.retain(|view| !view.loops.is_empty());
        Ok(())
    }

    /// Returns whether a module in a process is being removed. Its end comes without an event here.
    pub(crate) fn awaits_process(&self) -> bool {
        self.leaving.iter().any(|leaving| leaving.view.loops.iter().any(Batches::is_remote))
            || self.views.iter().flat_map(|view| &view.loops).any(|b| b.is_remote() && b.leaving().is_some())
    }

    pub(crate) fn packets(
        &mut self,
        packets: Packets<'_>,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<(), RunError> {
        let conditions = self.options.conditions();
        if self.has_awaited {
            let latest = packets.descriptors.iter().map(|d| d.ts_ns).max();
            self.report_time(latest.unwrap_or(0));
        }
        for view in &mut self.views {
            match () {
                () if self.has_awaited && view.is_awaited() => {}
                () if view.is_sorted() => view.sort(packets, conditions, outlet)?,
                () if view.confined => view.stage(packets, conditions, outlet)?,
                () if view.gathers() => view.gather(packets, conditions, outlet)?,
                () => view.chunk(packets, conditions, outlet)?,
            }
        }
        self.drain_leaving(false, outlet)
    }

    fn loops(&mut self) -> impl Iterator<Item = &mut Batches> {
        self.views.iter_mut().flat_map(|v| &mut v.loops)
    }

    /// Returns the accounts of the modules so far.
    pub(crate) fn accounts(&self) -> Vec<(ModuleId, Account)> {
        self.views.iter().flat_map(|view| &view.loops).map(|l| (l.module(), l.account())).collect()
    }

    /// Returns the accounts as of the tick that was just passed, on a live source: of a capture, the times of
    /// packets show in nothing that is read before the end.
    pub(crate) fn released(&self) -> Vec<(ModuleId, Account)> {
        if self.options.discipline.releases_by_interval() { self.accounts() } else { Vec::new() }
    }

    /// Returns whether no module has an instance any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.views.iter().flat_map(|view| &view.loops).all(Batches::is_gone)
    }

    /// Returns whether all processes have reported what became of the packets that they got.
    pub(crate) fn is_settled(&self) -> bool {
        let loops = self.views.iter().flat_map(|view| &view.loops);
        loops.filter_map(Batches::remote).all(RemoteBatches::is_settled)
    }

    /// Limits the time for which somebody waits for the reports of processes.
    pub(crate) fn await_reports(&mut self) {
        let stop = self.options.stop;
        for ViewStage { loops, pool, .. } in &mut self.views {
            let remote = loops.iter_mut().filter_map(Batches::remote_mut);
            remote.for_each(|remote| remote.await_decision(pool, stop));
        }
    }

    /// Records that nobody waits for processes.
    pub(crate) fn rest(&mut self) {
        self.loops().filter_map(Batches::remote_mut).for_each(RemoteBatches::rest);
    }

    /// Returns whether a call waits, or packets that gather for a process.
    pub(crate) fn is_busy(&self) -> bool {
        self.views.iter().any(|view| view.has_gathered() || view.loops.iter().any(Batches::is_busy))
    }

    /// Returns whether another quantum would advance a paused call, or hand over what has gathered.
    pub(crate) fn can_progress(&mut self) -> bool {
        let can_leave = |leaving: &mut Leaving| leaving.view.loops.iter_mut().any(Batches::can_leave);
        self.leaving.iter_mut().any(can_leave)
            || self.loops().any(Batches::can_progress)
            || self.views.iter_mut().any(ViewStage::can_hand_over)
    }

    /// Gives one quantum to each loop with waiting work.
    pub(crate) fn resume(&mut self, is_last: bool, outlet: &mut dyn PipelineOutlet) -> Result<(), RunError> {
        let conditions = Conditions { is_last, ..self.options.conditions() };
        self.views.iter_mut().try_for_each(|view| view.resume(conditions, outlet))?;
        self.drain_leaving(is_last, outlet)
    }

    /// Publishes the blocks that are being filled.
    fn flush(&mut self, outlet: &mut dyn PipelineOutlet) -> Result<(), RunError> {
        let conditions = self.options.conditions();
        self.views.iter_mut().try_for_each(|view| view.flush(conditions, outlet))
    }

    pub(crate) fn tick(&mut self, now_ns: u64, outlet: &mut dyn PipelineOutlet) -> Result<(), RunError> {
        self.flush(outlet)?;
        let conditions = self.options.conditions();
        for view in &mut self.views {
            view.tick(now_ns, conditions, outlet)?;
            for batches in &mut view.loops {
                batches.go(conditions, outlet)?;
                batches.end_interval();
            }
        }
        if self.has_awaited {
            let waiting = self.views.iter_mut().filter_map(|view| view.begin(now_ns).then_some(()));
            self.has_awaited = waiting.count() > 0;
        }
        Ok(())
    }

    /// Makes the last calls, drops the instances and returns the account of each module.
    pub(crate) fn end(
        &mut self,
        now_ns: u64,
        outlet: &mut dyn PipelineOutlet,
    ) -> Result<Vec<(ModuleId, Account)>, RunError> {
        let conditions = self.options.conditions();
        self.views.iter_mut().try_for_each(|view| view.wait_until_handed_over(conditions, outlet))?;
        self.flush(outlet)?;
        while !self.leaving.is_empty() || self.awaits_process() || self.loops().any(|m| m.is_busy()) {
            self.resume(true, outlet)?;
            if self.awaits_process() {
                outlet.wait()?;
                std::thread::sleep(PROCESS_CHECK.first);
            }
        }
        let stop = self.options.stop;
        self.loops().for_each(|batches| batches.begin_end(now_ns, stop));
        let mut accounts = Vec::new();
        let all = self.views.drain(..).flat_map(|v| v.loops);
        let (remote, local): (Vec<_>, Vec<_>) = all.partition(Batches::is_remote);
        let mut end = |batches: Vec<Batches>, outlet: &mut dyn PipelineOutlet| {
            batches.into_iter().try_for_each(|mut batches| {
                batches.end(now_ns, stop, outlet)?;
                accounts.push((batches.module(), batches.into_account()));
                Ok::<_, RunError>(())
            })
        };
        end(local, outlet)?;
        // Those in processes may wait for the outcomes of calls, which the fast instances here may make.
        outlet.ending()?;
        end(remote, outlet)?;
        Ok(accounts)
    }
}
