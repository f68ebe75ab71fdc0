//! The processes in which principals' modules run: which module runs where, and what happens when a process
//! ends by itself. It is started again after a while, which doubles with each end; after too many ends its
//! modules fail.

use crate::config::Scheduler;
use crate::engine::{By, Engine};
use crate::life::Works;
use crate::reconcile::Wish;
use crate::restarts::{Decision, ProcessKey};
use crate::source::SourceRun;
use crate::store::Owner;
use flame_api::{Reservation, Runs, State};
use flame_plan::ModuleId;
use flame_worker::LostModule;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The end of the names of processes whose modules have reserved processor time. Others of the same principal
/// have a process with the usual scheduling.
const RESERVED: &str = " (reserved)";

/// Returns the processor time that the kernel guarantees to a process, in millionths of one processor.
fn guaranteed(pid: u32) -> u64 {
    let slice = flame_confine::given_time(pid).ok().flatten();
    slice.map_or(0, |slice| slice.slice_ns.saturating_mul(1_000_000) / slice.period_ns.max(1))
}

impl Engine {
    /// Returns the name of the process in which modules of `owner` with such reservations run, or `None` for
    /// the node's own.
    pub(crate) fn process_for(&self, owner: &Owner, reserved: &Reservation) -> Option<String> {
        let config = self.config();
        let is_apart = !owner.is_operator()
            && config.has_processes()
            && !config.isolation.inline.contains(&owner.principal);
        let is_reserved = reserved.cpu_ppm > 0 && config.isolation.scheduler != Scheduler::Fair;
        let kind = if is_reserved { RESERVED } else { "" };
        is_apart.then(|| format!("{} {}{kind}", owner.root, owner.principal))
    }

    /// Returns for each source how many processes there are, and how many have ended by themselves.
    pub(crate) fn process_counts(&self) -> Vec<(String, u64, u64)> {
        let of = |(name, source): (&String, &SourceRun)| {
            let now = source.processes().len() as u64;
            (name.clone(), now, self.modules().restarts.total.get(name).copied().unwrap_or(0))
        };
        self.sources.iter().map(of).collect()
    }

    /// Returns what this process and its descendants may do, and what runs in them.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not show this process.
    pub fn security(&self) -> std::io::Result<flame_api::Security> {
        let mut security = crate::security::processes()?;
        for (source, run) in &self.sources {
            for of in run.processes() {
                let mut all = security.processes.iter_mut();
                let Some(process) = all.find(|process| i64::from(process.pid) == i64::from(of.pid)) else {
                    continue;
                };
                // The root is a key, which means little here.
                let principal = of.name.split_once(' ').map_or(of.name.as_str(), |(_, principal)| principal);
                let key = (source.clone(), of.name.clone());
                process.runs = Some(Runs {
                    principal: principal.to_owned(),
                    source: source.clone(),
                    modules: of.modules.len() as u64,
                    guaranteed_ppm: guaranteed(of.pid),
                    ended: self.modules().restarts.count(&key, Instant::now()),
                });
            }
        }
        Ok(security)
    }

    /// Notes on which workers each module of a source receives packets, and decides on the processes that
    /// have ended.
    pub(crate) fn look_at_instances(self: &Arc<Self>, source_name: &str, source: &SourceRun) {
        let (lost, halted) = (source.lost(), source.halted());
        let workers = source.config.workers.into();
        let works = |id: &ModuleId| {
            let lost = lost.iter().find(|lost| lost.id == *id);
            Works::of(lost, halted.iter().find(|halted| halted.id == *id), workers)
        };
        let mut modules = self.modules();
        let on_source = modules.values_mut().filter(|entry| entry.stored.source == source_name);
        on_source.for_each(|entry| entry.works(works));
        drop(modules);
        self.look_at_processes(source_name, lost);
    }

    /// Decides on the processes of a source that have ended, with the modules `lost`.
    fn look_at_processes(self: &Arc<Self>, source_name: &str, lost: Vec<LostModule>) {
        let mut ended: BTreeMap<String, Vec<LostModule>> = BTreeMap::new();
        for lost in lost {
            ended.entry(lost.process.clone()).or_default().push(lost);
        }
        for (process, modules) in ended {
            let key = (source_name.to_owned(), process);
            // Modules of the process that this one replaced may be among them.
            let pid = modules.iter().map(|lost| lost.pid).max().unwrap_or(0);
            let cause = modules.first().map(|lost| lost.cause.clone()).unwrap_or_default();
            let most = self.config().isolation.restarts;
            let decision = {
                let restarts = &mut self.modules().restarts;
                if restarts.starting.contains(&key) {
                    continue;
                }
                restarts.decide(&key, pid, most, Instant::now())
            };
            match decision {
                Decision::Wait(None) => {}
                Decision::Wait(Some(wait)) => {
                    let text = format!("{cause}; another one is started in {wait:?}");
                    let mut all = self.modules();
                    for lost in &modules {
                        let found = all.of_instance(source_name, lost.id);
                        found.into_iter().for_each(|(_, entry)| entry.note(text.clone()));
                    }
                }
                Decision::Start => self.start_again(key, modules),
                Decision::Fail(count) => {
                    let reason = format!("its process ended {count} times in ten minutes: {cause}");
                    for lost in &modules {
                        let reason = reason.clone();
                        let end = Wish::End { of: Some(lost.id), state: State::Failed, reason };
                        self.change_instance(source_name, lost.id, end);
                    }
                }
            }
        }
    }

    /// Starts a process again, in a thread of its own: other processes do not wait for it.
    fn start_again(self: &Arc<Self>, key: ProcessKey, modules: Vec<LostModule>) {
        self.modules().restarts.starting.insert(key.clone());
        let (engine, of) = (self.clone(), key.clone());
        let start = move || {
            let revived = modules.iter().map(|lost| engine.revive(&of.0, lost.id));
            // Each is tried: a module that does not start must not keep off the others.
            let is_running = revived.fold(true, |all, one| all & one);
            engine.modules().restarts.started(&of, is_running);
        };
        if std::thread::Builder::new().name("restart".to_owned()).spawn(start).is_err() {
            self.modules().restarts.started(&key, false);
        }
    }

    /// Starts a module again in a new process of its principal. Returns false if that failed.
    fn revive(&self, source: &str, id: ModuleId) -> bool {
        // It may have been changed meanwhile.
        let is_lost = |run: &SourceRun| run.lost().iter().any(|lost| lost.id == id);
        !self.sources.get(source).is_some_and(is_lost) || self.change_instance(source, id, Wish::RunAgain(id))
    }

    /// Reconciles the module that has the instance `id` on a source. Returns false if that failed. A module
    /// that is being changed is left to that change.
    fn change_instance(&self, source: &str, id: ModuleId, wish: Wish<'_>) -> bool {
        let key = self.modules().of_instance(source, id).map(|(key, _)| key.clone());
        let Some(key) = key else { return true };
        let Ok(_changing) = self.begin_by(By::Node, &key) else { return true };
        self.reconcile(&key, wish).is_ok()
    }
}
