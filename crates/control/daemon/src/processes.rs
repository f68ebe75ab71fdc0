//! The processes in which principals' modules run: which module runs where, and what happens when a process
//! ends by itself. It is started again after a while, which doubles with each end; after too many ends its
//! modules fail.

use crate::config::Scheduler;
use crate::engine::{By, Engine, Entry, Key};
use crate::error::of_source;
use crate::held;
use crate::restarts::{Decision, ProcessKey};
use crate::source::SourceRun;
use crate::store::Owner;
use flame_api::{Problem, Reservation, Runs, State};
use flame_plan::{ModuleId, ModulePlan};
use flame_worker::{LostModule, Module};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which processes are looked at.
const POLL: Duration = Duration::from_millis(100);
/// The number of further attempts to reserve processor time for a process that was started again.
const GUARANTEES: usize = 20;

/// The end of the names of processes whose modules have reserved processor time. Others of the same principal
/// have a process with the usual scheduling.
const RESERVED: &str = " (reserved)";

/// Returns the name of a process in the plans of its modules.
fn name_of(owner: &Owner, is_reserved: bool) -> String {
    format!("{} {}{}", owner.root, owner.principal, if is_reserved { RESERVED } else { "" })
}

/// Returns the processor time that the kernel guarantees to a process, in millionths of one processor.
fn guaranteed(pid: u32) -> u64 {
    let slice = flame_confine::given_time(pid).ok().flatten();
    slice.map_or(0, |slice| slice.slice_ns.saturating_mul(1_000_000) / slice.period_ns.max(1))
}

/// A process of the node in which modules run.
pub(crate) struct RunningProcess {
    pub source: String,
    pub name: String,
    pub pid: u32,
    pub modules: Vec<ModuleId>,
}

impl RunningProcess {
    /// Returns whether a module runs in this process.
    pub fn has(&self, entry: &Entry) -> bool {
        let id = entry.live.as_ref().map(|live| live.module.plan.id);
        entry.stored.source == self.source && id.is_some_and(|id| self.modules.contains(&id))
    }
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
        is_apart.then(|| name_of(owner, is_reserved))
    }

    /// Returns the processes in which modules run now.
    pub(crate) fn running_processes(&self) -> Vec<RunningProcess> {
        let of = |(source, run): (&String, &SourceRun)| {
            let source = source.clone();
            let running = run.processes().into_iter();
            running.map(move |p| RunningProcess {
                source: source.clone(),
                name: p.name,
                pid: p.pid,
                modules: p.modules,
            })
        };
        self.sources.iter().flat_map(of).collect()
    }

    /// Returns for each source how many processes there are, and how many have ended by themselves.
    pub(crate) fn process_counts(&self) -> Vec<(String, u64, u64)> {
        let running = self.running_processes();
        let restarts = held(&self.restarts);
        let of = |source: &String| {
            let now = running.iter().filter(|process| process.source == *source).count() as u64;
            (source.clone(), now, restarts.total.get(source).copied().unwrap_or(0))
        };
        self.sources.keys().map(of).collect()
    }

    /// Returns what this process and its descendants may do, and what runs in them.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not show this process.
    pub fn security(&self) -> std::io::Result<flame_api::Security> {
        let mut security = crate::security::processes()?;
        let running = self.running_processes();
        let restarts = held(&self.restarts);
        for process in &mut security.processes {
            let Some(of) = running.iter().find(|of| i64::from(of.pid) == i64::from(process.pid)) else {
                continue;
            };
            // The root is a key, which means little here.
            let principal = of.name.split_once(' ').map_or(of.name.as_str(), |(_, principal)| principal);
            process.runs = Some(Runs {
                principal: principal.to_owned(),
                source: of.source.clone(),
                modules: of.modules.len() as u64,
                guaranteed_ppm: guaranteed(of.pid),
                ended: restarts.count(&(of.source.clone(), of.name.clone()), Instant::now()),
            });
        }
        Ok(security)
    }

    /// Starts the thread that starts processes again until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn watch_processes(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let engine = self.clone();
        std::thread::Builder::new().name("processes".to_owned()).spawn(move || {
            while !engine.stopping.load(Ordering::SeqCst) {
                for (name, source) in &engine.sources {
                    engine.look_at_processes(name, source);
                }
                held(&engine.restarts).sweep(Instant::now());
                std::thread::park_timeout(POLL);
            }
        })
    }

    /// Decides on the processes of a source that have ended.
    fn look_at_processes(self: &Arc<Self>, source_name: &str, source: &SourceRun) {
        let mut ended: BTreeMap<String, Vec<LostModule>> = BTreeMap::new();
        for lost in source.lost() {
            ended.entry(lost.process.clone()).or_default().push(lost);
        }
        for (process, modules) in ended {
            let key = (source_name.to_owned(), process);
            if held(&self.restarts).starting.contains(&key) {
                continue;
            }
            let most = self.config().isolation.restarts;
            // Modules of the process that this one replaced may be among them.
            let pid = modules.iter().map(|lost| lost.pid).max().unwrap_or(0);
            let cause = modules.first().map(|lost| lost.cause.clone()).unwrap_or_default();
            let decision = held(&self.restarts).decide(&key, pid, most, Instant::now());
            match decision {
                Decision::Wait(None) => {}
                Decision::Wait(Some(wait)) => {
                    let text = format!("{cause}; another one is started in {wait:?}");
                    self.for_each(source_name, &modules, |entry| entry.note(text.clone()));
                }
                Decision::Start => self.start_again(key, modules),
                Decision::Fail(count) => {
                    let reason = format!("its process ended {count} times in ten minutes: {cause}");
                    for lost in &modules {
                        if let Some(key) = self.key_of(source_name, lost.id)
                            && let Ok(_changing) = self.begin_by(By::Node, &key)
                        {
                            self.end_as(&key, lost.id, State::Failed, reason.clone());
                        }
                    }
                }
            }
        }
    }

    /// Starts a process again. It has a thread for that: nobody else waits for a process that takes its time.
    fn start_again(self: &Arc<Self>, key: ProcessKey, modules: Vec<LostModule>) {
        held(&self.restarts).starting.insert(key.clone());
        let (engine, of) = (self.clone(), key.clone());
        let start = move || {
            let (source_name, _) = &of;
            let revived = modules.iter().map(|lost| match engine.sources.get(source_name) {
                Some(source) => engine.revive(source_name, source, lost.id),
                None => true,
            });
            // Each is tried: one that does not start must not keep off the others.
            let is_running = revived.fold(true, |all, one| all & one);
            held(&engine.restarts).started(&of, is_running);
        };
        if std::thread::Builder::new().name("restart".to_owned()).spawn(start).is_err() {
            held(&self.restarts).started(&key, false);
        }
    }

    fn key_of(&self, source: &str, id: ModuleId) -> Option<Key> {
        let modules = self.modules();
        let mut all = modules.iter();
        let is_it = |entry: &Entry| {
            let is_live =
                entry.live.as_ref().is_some_and(|live| live.module.plan.id == id && live.leaving.is_none());
            entry.stored.source == source && is_live
        };
        all.find(|(_, entry)| is_it(entry)).map(|(key, _)| key.clone())
    }

    fn for_each(&self, source: &str, lost: &[LostModule], mut then: impl FnMut(&mut Entry)) {
        let keys = lost.iter().filter_map(|lost| self.key_of(source, lost.id)).collect::<Vec<_>>();
        let mut modules = self.modules();
        keys.iter().for_each(|key| {
            if let Some(entry) = modules.get_mut(key) {
                then(entry);
            }
        });
    }

    /// Returns the module of a live instance with a number of its own and the meters that it has, and gives
    /// it the way of its rows. One that was evicted does not run anew.
    pub(crate) fn anew(&self, key: &Key, source: &SourceRun, id: ModuleId) -> Option<Module> {
        let new = source.number();
        let modules = self.modules();
        let entry = modules.get(key)?;
        let live = entry.live.as_ref().filter(|live| live.module.plan.id == id && live.stays())?;
        let name = format!("{}#{}", entry.stored.name, new.0);
        let plan = ModulePlan { id: new, name, ..live.module.plan.clone() };
        let module = Module {
            plan,
            meters: live.module.meters.clone(),
            keep: live.module.keep.clone(),
            areas: Vec::new(),
            time: None,
        };
        self.route(source, entry, &module, entry.known.now.as_ref());
        // A review finds it under this number from its first packet on.
        live.granted.iter().for_each(|granted| granted.begins_as(new));
        Some(module)
    }

    /// Lets the kernel guarantee a reservation in another process. The kernel gives up the time of the ended
    /// one a little later.
    fn guarantee_again(
        &self,
        source: &SourceRun,
        plan: &ModulePlan,
        reserved: &Reservation,
    ) -> Result<Option<String>, Problem> {
        let mut guaranteed = self.guarantee(source, plan, reserved);
        for _ in 0..GUARANTEES {
            if guaranteed.is_ok() {
                break;
            }
            std::thread::sleep(POLL);
            guaranteed = self.guarantee(source, plan, reserved);
        }
        guaranteed
    }

    /// Starts a module anew in a new process of its principal, with the meters that it has. Returns false if
    /// that failed. A module that is being changed is left to that change.
    fn revive(&self, source_name: &str, source: &SourceRun, id: ModuleId) -> bool {
        let Some(key) = self.key_of(source_name, id) else { return true };
        let Ok(_changing) = self.begin_by(By::Node, &key) else { return true };
        // It may have been changed before this change began.
        if !source.lost().iter().any(|lost| lost.id == id) {
            return true;
        }
        let Some(module) = self.anew(&key, source, id) else { return true };
        self.show_ending(&key);
        // Without the lock: the process may take its time to start.
        let replaced = source.replace(id, &module).map(|account| self.show_ended(&key, account));
        let reserved = self.modules().get(&key).map(|entry| entry.stored.reserved).unwrap_or_default();
        let guaranteed = match &replaced {
            Ok(_) => self.guarantee_again(source, &module.plan, &reserved),
            Err(_) => Ok(None),
        };
        let mut modules = self.modules();
        let Some(entry) = modules.get_mut(&key) else { return true };
        entry.ending = None;
        match replaced {
            Ok(account) => {
                let (new, mut lost_grant) = (module.plan.id, false);
                if let Some(live) = &mut entry.live {
                    source.routes.remove(&live.module.plan.name);
                    live.earlier.add(&account);
                    live.module = module;
                    live.granted.iter().for_each(|granted| granted.ended_as(id));
                    lost_grant = live.leaving.is_some();
                }
                entry.past.add(&account);
                entry.note("another process was started: a new instance runs in it, empty but for a state that it keeps");
                drop(modules);
                if lost_grant {
                    // Its eviction may have come before it ran here.
                    self.review_all();
                }
                if let Err(problem) = guaranteed {
                    let reason = format!("its reservation is refused in another process: {}", problem.cause);
                    self.end_as(&key, new, State::Failed, reason);
                }
                true
            }
            Err(e) => {
                source.routes.remove(&module.plan.name);
                let granted = entry.live.as_ref().and_then(|live| live.granted.as_ref());
                granted.iter().for_each(|granted| granted.ended_as(module.plan.id));
                // The detail names files of the node.
                entry.note(format!("no other process could be started: {}", of_source(&e).cause));
                false
            }
        }
    }
}
