use crate::lane::Outlet;
use crate::report::FaultReport;
use crate::run::RunError;
use flame_plan::{Account, Eviction, Plan, coarse};
use flame_record::{Frame, Gate, Rows, Sink, frames};
use flame_run::{Fault, Instance, Loaded, Output, Role};
use std::sync::atomic::{AtomicBool, Ordering};

/// The end of the way: messages go to the slow instances, rows to the sink.
///
/// Slow instances tick only when every worker has passed the tick, so that what they report does not
/// depend on how workers are scheduled.
pub struct Collector<'a> {
    modules: Vec<Collected>,
    sink: &'a mut dyn Sink,
    /// Set when nobody reads the output any more.
    stop: &'a AtomicBool,
    pub faults: Vec<FaultReport>,
    /// Per worker: the last tick it passed.
    passed: Vec<u64>,
    ticked: u64,
}

struct Collected {
    name: String,
    rows: Rows,
    gate: Gate,
    eviction: Eviction,
    resolution_ns: u64,
    /// The last tick it was told of.
    ticked: u64,
    slow: Option<Instance>,
    granted: bool,
    account: Account,
}

impl<'a> Collector<'a> {
    pub fn new(
        plan: &Plan,
        loaded: &[Loaded],
        sink: &'a mut dyn Sink,
        stop: &'a AtomicBool,
    ) -> Result<Self, RunError> {
        let mut collector = Self {
            modules: Vec::new(),
            sink,
            stop,
            faults: Vec::new(),
            passed: vec![0; plan.workers],
            ticked: 0,
        };
        for (p, loaded) in plan.modules.iter().zip(loaded) {
            let rows = Rows::new(p);
            let mut module = Collected {
                name: p.name.clone(),
                rows,
                gate: Gate::new(&p.manifest, &p.terms),
                eviction: p.terms.eviction.clone(),
                resolution_ns: p.view.resolution_ns,
                ticked: 0,
                slow: None,
                granted: p.terms.meters.granted(),
                account: Account::default(),
            };
            if loaded.has_slow_path() {
                let made = Instance::new(loaded, &[], false).and_then(|mut slow| {
                    slow.start(Role::Slow, plan.workers, plan.tick_ns(), plan.interval_ns)?;
                    Ok(slow)
                });
                match made {
                    Ok(slow) => module.slow = Some(slow),
                    Err(fault) => collector.faults.push(module.ended(&fault)),
                }
            }
            collector.modules.push(module);
        }
        Ok(collector)
    }

    /// Takes checked output of a fast instance.
    pub fn output(&mut self, module: usize, bytes: &[u8]) -> Result<(), RunError> {
        let m = &mut self.modules[module];
        for frame in frames(bytes) {
            let Frame::Message(message) = frame else {
                m.take(frame, self.sink)?;
                continue;
            };
            let Some(mut slow) = m.slow.take().filter(|_| m.eviction.reason().is_none()) else { continue };
            match slow.message(message) {
                Ok(reply) => {
                    m.rows_of(reply, self.sink)?;
                    m.slow = Some(slow);
                }
                Err(fault) => self.faults.push(m.ended(&fault)),
            }
        }
        Ok(())
    }

    /// Worker `worker` has passed the tick at `now_ns`.
    pub fn tick(&mut self, worker: usize, now_ns: u64) -> Result<(), RunError> {
        self.passed[worker] = now_ns;
        let all = self.passed.iter().copied().min().unwrap_or(0);
        if all > self.ticked {
            self.modules.iter_mut().for_each(|m| m.gate.tick(all));
            self.ticked = all;
            self.slow(all, true, |slow, now_ns, each| slow.tick(now_ns, each))?;
            for m in &mut self.modules {
                m.flush(self.sink)?;
            }
            self.sink.flush()?;
            if self.sink.closed() {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Ends the slow instances and gives out the records and losses of each module.
    pub fn end(mut self, now_ns: u64) -> Result<(Vec<Account>, Vec<FaultReport>), RunError> {
        self.slow(now_ns, false, |slow, now_ns, each| slow.end(now_ns, each))?;
        for m in &mut self.modules {
            m.flush(self.sink)?;
        }
        Ok((self.modules.into_iter().map(|m| m.account).collect(), self.faults))
    }

    fn slow(
        &mut self,
        now_ns: u64,
        is_tick: bool,
        call: impl Fn(&mut Instance, u64, &mut dyn FnMut(Output<'_>)) -> Result<(), Fault>,
    ) -> Result<(), RunError> {
        for m in &mut self.modules {
            let now_ns = coarse(now_ns, m.resolution_ns);
            if is_tick && now_ns <= std::mem::replace(&mut m.ticked, now_ns) {
                continue;
            }
            let Some(mut slow) = m.slow.take().filter(|_| m.eviction.reason().is_none()) else { continue };
            let mut taken = Ok(());
            let called = call(&mut slow, now_ns, &mut |output| {
                if taken.is_ok() {
                    taken = m.rows_of(output, self.sink);
                }
            });
            taken?;
            match called {
                Ok(()) => m.slow = Some(slow),
                Err(fault) => self.faults.push(m.ended(&fault)),
            }
        }
        Ok(())
    }
}

impl Collected {
    fn take(&mut self, frame: Frame<'_>, sink: &mut dyn Sink) -> Result<(), RunError> {
        match frame {
            Frame::Lost(records) => {
                self.account.records_lost = self.account.records_lost.saturating_add(records)
            }
            Frame::Packet(packet) if self.gate.lets_packet(packet.bytes.len() as u64) => {
                self.account.written += 1;
                sink.packet(packet)?;
            }
            Frame::Record { table, row } if self.gate.lets(table, row) => {
                self.account.records += 1;
                if let Some((table, batch)) = self.rows.push(table, row) {
                    sink.write(&self.name, table, &batch)?;
                }
            }
            Frame::Packet(_) | Frame::Record { .. } => self.account.withheld += 1,
            // The slow path has nobody to send messages to.
            Frame::Message(_) => {}
        }
        Ok(())
    }

    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), RunError> {
        for (table, batch) in self.rows.drain() {
            sink.write(&self.name, table, &batch)?;
        }
        Ok(())
    }

    fn rows_of(&mut self, output: Output<'_>, sink: &mut dyn Sink) -> Result<(), RunError> {
        frames(output.bytes).try_for_each(|frame| self.take(frame, sink))
    }

    /// The slow instance is gone; what the fast ones send it from now on is not merged.
    fn ended(&mut self, fault: &Fault) -> FaultReport {
        self.slow = None;
        self.account.faults += 1;
        let text = fault.text(self.granted);
        FaultReport { module: self.name.clone(), worker: None, packet: None, text, restarted: false }
    }
}

/// For one worker: the lane's output needs no queue.
impl Outlet for Collector<'_> {
    fn output(&mut self, module: usize, output: Output<'_>) -> Result<(), RunError> {
        Collector::output(self, module, output.bytes)
    }

    fn fault(&mut self, _: usize, report: FaultReport) -> Result<(), RunError> {
        self.faults.push(report);
        Ok(())
    }
}
