//! The way of rows and events from a source's workers to the modules that they concern.
//!
//! Workers never wait for requests: a route has locks of its own, which are held for a moment.

use crate::log::Log;
use crate::reach::{Made, Reach};
use crate::spool::Spool;
use flame_abi::manifest::Table;
use flame_base::lock;
use flame_plan::{Account, Audience, CatalogEntry, FaultReport, ModuleId, Reason};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_source::{Notice, Progress};
use flame_worker::Observer;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

/// The destinations of one module's output.
#[derive(Clone)]
pub struct Route {
    pub spool: Arc<Spool>,
    pub log: Arc<Log>,
    /// The module's tables, under the name that its principal gave it.
    pub entry: Arc<CatalogEntry>,
    /// The rights under which the module runs, and so everything is made that comes of it.
    pub made: Made,
    /// The owner of the module. The operator may read causes that name files of the node.
    pub audience: Audience,
}

impl Route {
    /// Lets the holder of a grant have the rows and lines so far, and the use.
    fn release(&self) {
        self.spool.release();
        self.log.release();
        if !self.audience.is_operator() {
            self.spool.usage.release();
        }
    }

    /// Returns the rights of the module, or `None` of one of the operator.
    fn reach(&self) -> Option<&Arc<Reach>> {
        self.made.first()
    }

    /// Lets the operator have what came of its own module: it waits for no tick.
    fn came(&self) {
        if self.audience.is_operator() {
            self.release();
        }
    }
}

/// The routes of a source's modules, by the modules' names in the plan, and the evictions by its workers.
#[derive(Clone, Default)]
pub struct Routes(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    routes: HashMap<String, Route>,
    /// The accounts of the present run's modules under a grant as of their last tick.
    released: BTreeMap<String, Account>,
    evicted: Vec<(ModuleId, Reason)>,
    /// The modules that lose packets to an overload, each with the worker and the time of its beginning in
    /// seconds since 1970.
    overloaded: BTreeMap<(String, usize), u64>,
    /// The report that the source's interface is down, until it is up again.
    down: Option<String>,
}

impl Inner {
    fn evict(&mut self, id: ModuleId, reason: Reason) {
        if !self.evicted.iter().any(|(other, _)| *other == id) {
            self.evicted.push((id, reason));
        }
    }
}

impl Routes {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    pub fn insert(&self, module: &str, route: Route) {
        if !route.audience.is_operator() {
            route.spool.usage.begin();
        }
        self.inner().routes.insert(module.to_owned(), route);
    }

    /// Removes the route of a module that has ended, with everything that came of it.
    pub fn remove(&self, module: &str) {
        let mut inner = self.inner();
        inner.overloaded.retain(|(name, _), _| name != module);
        inner.released.remove(module);
        let Some(route) = inner.routes.remove(module) else { return };
        route.release();
        // Of an update, the next instance runs already.
        if !inner.routes.values().any(|other| Arc::ptr_eq(&other.spool, &route.spool)) {
            route.spool.usage.rest();
        }
    }

    /// Makes the copy of everything that holders learn of packets until the next tick: these accounts, by
    /// the modules' names in the plan, and their rows, lines and use so far.
    fn release(&self, accounts: &[(&str, Account)]) {
        let mut inner = self.inner();
        for (module, account) in accounts {
            if let Some(route) = inner.routes.get(*module) {
                route.release();
                inner.released.insert((*module).to_owned(), account.clone());
            }
        }
    }

    /// Adds the accounts of the present run as of their last tick.
    pub fn add_released(&self, to: &mut BTreeMap<String, Account>) {
        for (module, account) in &self.inner().released {
            to.entry(module.clone()).or_default().add(account);
        }
    }

    /// Returns the modules that lose packets to an overload: the name in the plan, the worker, and the time
    /// of the beginning in seconds since 1970.
    pub fn overloaded(&self) -> Vec<(String, usize, u64)> {
        let inner = self.inner();
        let all = inner.overloaded.iter();
        all.map(|((module, worker), since)| (module.clone(), *worker, *since)).collect()
    }

    /// Returns the report that the source's interface is down, if it is.
    pub fn down(&self) -> Option<String> {
        self.inner().down.clone()
    }

    /// Forgets what the workers reported, because they have ended, and releases what came last.
    pub fn forget_run(&self) {
        let mut inner = self.inner();
        inner.overloaded.clear();
        inner.down = None;
        inner.released.clear();
        inner.routes.values().for_each(Route::release);
    }

    fn get(&self, module: &str) -> Option<Route> {
        self.inner().routes.get(module).cloned()
    }

    /// Adds a line to the logs of all modules. Those of the operator have `detail`, too.
    pub fn tell_all(&self, text: &str, detail: Option<&str>) {
        let routes: Vec<Route> = self.inner().routes.values().cloned().collect();
        for route in &routes {
            match detail.filter(|_| route.audience.is_operator()) {
                Some(detail) => route.log.change(&format!("{text}: {detail}")),
                None => route.log.change(text),
            }
        }
    }

    /// Returns the modules that workers evicted since the last call of this function.
    pub fn take_evicted(&self) -> Vec<(ModuleId, Reason)> {
        std::mem::take(&mut self.inner().evicted)
    }

    /// Keeps an eviction whose module a change in progress has not entered yet, for the next call.
    pub fn put_back(&self, id: ModuleId, reason: Reason) {
        self.inner().evict(id, reason);
    }
}

/// The sink of a source, which gives rows to the modules' spools.
pub struct ToSpools(pub Routes);

impl Sink for ToSpools {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        if let Some(route) = self.0.get(module) {
            // Clients and archives read addresses as text.
            route.spool.push((&route.entry, &route.made), table, &flame_record::readable(batch));
            route.came();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The observer of a source, which gives events to the modules' logs.
pub struct ToLogs(pub Routes);

impl Observer for ToLogs {
    fn progress(&mut self, _: u64, _: Progress) {}

    fn log(&mut self, module: &str, text: &str) {
        if let Some(route) = self.0.get(module) {
            route.log.text(text, route.reach());
            route.came();
        }
    }

    fn source(&mut self, notice: &Notice) {
        match notice {
            Notice::Down(text) => self.0.inner().down = Some(text.clone()),
            Notice::Up(_) => self.0.inner().down = None,
            Notice::Way(_) => {}
        }
        self.0.tell_all("the source has changed its state", Some(notice.text()));
    }

    fn overload(&mut self, module: &str, worker: usize, begins: bool) {
        let Some(route) = self.0.get(module) else { return };
        let (key, mut inner) = ((module.to_owned(), worker), self.0.inner());
        let text = match begins {
            true => {
                inner.overloaded.insert(key, flame_trust::time::now());
                "overload: it loses packets, because others have a higher priority"
            }
            false => {
                inner.overloaded.remove(&key);
                "overload: it receives all packets again"
            }
        };
        drop(inner);
        route.log.caused(&format!("{text} (worker {worker})"), route.reach());
        route.came();
    }

    fn fault(&mut self, report: &FaultReport) -> bool {
        match &report.evicted {
            // Each worker reports it. The log has it once, with the module's new state.
            Some(reason) => {
                self.0.inner().evict(report.id, reason.clone());
            }
            None => {
                if let Some(route) = self.0.get(&report.module) {
                    route.log.fault(report, route.reach());
                    route.came();
                }
            }
        }
        true
    }

    fn released(&mut self, accounts: &[(&str, Account)]) {
        self.0.release(accounts);
    }

    fn left(&mut self, _: &str, _: &Account) -> bool {
        // The change that removed it has the account.
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::MANIFEST;
    use flame_abi::manifest::Manifest;
    use flame_quota::Usage;

    /// Its holder has the use as of ticks while an instance runs, the operator has it as it is.
    #[test]
    fn the_use_of_a_module_is_released_with_its_ticks() {
        let manifest = Arc::new(Manifest::parse(MANIFEST.as_bytes()).unwrap());
        let entry = Arc::new(CatalogEntry { name: "m".to_owned(), hash: [0; 32], manifest });
        for (audience, expected) in
            [(Audience::Operator, [3, 3, 7, 15, 31, 63]), (Audience::Holder, [1, 3, 3, 15, 15, 63])]
        {
            let (routes, usage) = (Routes::default(), Arc::<Usage>::default());
            let spool = Arc::new(Spool::new(1000, usage.clone()));
            let (log, made) = (Arc::default(), [].into());
            let route = Route { spool, log, entry: entry.clone(), made, audience };
            let add = |packets| {
                usage.add_packets(packets);
                usage.shown().packets
            };
            usage.add_packets(1);
            routes.insert("m#1", route.clone());
            let begun = add(2);
            ToLogs(routes.clone()).released(&[("m#1", Account::default())]);
            let ticked = add(0);
            // An update: the next instance begins before this one has ended.
            routes.insert("m#2", route);
            let updating = add(4);
            usage.add_packets(8);
            routes.remove("m#1");
            let updated = add(0);
            let running = add(16);
            routes.remove("m#2");
            let ended = add(32);
            assert_eq!([begun, ticked, updating, updated, running, ended], expected, "{audience:?}");
        }
    }
}
