//! Decides again, while modules run, whether they may: policies change, credentials are revoked or expire.

use crate::engine::{AUDIT_LOG, By, Engine, Entry, Key, Live};
use crate::granted::{Granted, Watched};
use crate::held;
use crate::revoke::with_all;
use crate::source::SourceRun;
use crate::stamps::{Stamp, stamps};
use flame_api::{Code, Problem, State};
use flame_node::{AdmittedModule, Node};
use flame_plan::{ModuleId, Reason};
use flame_trust::time;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval at which files and clock are checked. Changes take effect within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The interval at which evicted modules are taken down.
const TAKE_DOWN: Duration = Duration::from_millis(50);

/// The time that a revocation waits for the ends of the instances that it concerns, and the interval at which
/// it looks.
const EVICTION: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// An instance that was marked as evicted.
struct Marked {
    /// Whether it was not evicted before.
    is_first: bool,
    /// The module that has it, unless that leaves already.
    key: Option<Key>,
}

/// The least time between two evaluations of all checks. Each takes at most half of the time.
const CHECKS: Duration = Duration::from_secs(1);

/// A part of the decision on a grant.
type Part = fn(&Node, &AdmittedModule) -> Option<Reason>;

impl Engine {
    /// Starts the thread that reviews the modules until the node stops. It waits for no worker and evaluates
    /// no checks, so that neither slow modules of one principal nor costly checks delay the end of anybody
    /// else's authority.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn review(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let engine = self.clone();
        std::thread::Builder::new().name("review".to_owned()).spawn(move || {
            let (mut seen, mut second) = (std::mem::take(&mut *held(&engine.read_at)), 0);
            while !engine.stopping.load(Ordering::SeqCst) {
                let (stamps, now) = (engine.stamps(), time::now());
                if stamps != seen {
                    seen = stamps;
                    engine.reload_policy(None);
                    engine.evict_lost();
                } else if now != second {
                    second = now;
                    engine.evict_lost();
                    engine.write_owed();
                }
                std::thread::park_timeout(POLL_INTERVAL);
            }
        })
    }

    /// Starts the thread that evaluates the checks of running modules until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn review_checks(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let engine = self.clone();
        std::thread::Builder::new().name("checks".to_owned()).spawn(move || {
            while !engine.stopping.load(Ordering::SeqCst) {
                let begun = Instant::now();
                engine.evict_lost_by(Node::lost_by_checks, engine.watched());
                std::thread::park_timeout(begun.elapsed().max(CHECKS));
            }
        })
    }

    /// Starts the thread that takes evicted modules down until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn take_down_all(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.every("evictions", TAKE_DOWN, |engine| {
            engine.take_down_evicted();
            engine.take_down_waiting();
        })
    }

    /// Starts the thread that ends the intervals of the accounting until the node stops.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn account(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        self.every("accounting", self.config().accounting, |engine| {
            engine.sources.values().for_each(SourceRun::settle);
            engine.accounting.end_interval();
        })
    }

    /// Starts a thread that does `work` once in each interval until the node stops. Intervals that were
    /// missed, because the machine slept, are one.
    pub(crate) fn every(
        self: &Arc<Self>,
        name: &str,
        interval: Duration,
        work: impl Fn(&Self) + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let engine = self.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut next = Instant::now() + interval;
            while !engine.stopping.load(Ordering::SeqCst) {
                let now = Instant::now();
                if now < next {
                    std::thread::park_timeout(next - now);
                    continue;
                }
                next = now.max(next + interval);
                work(&engine);
            }
        })
    }

    fn stamps(&self) -> Vec<Stamp> {
        held(&self.node).as_ref().map(stamps).unwrap_or_default()
    }

    /// Reads the policy again, at `path` if it was moved. A policy that cannot be read leaves the earlier one
    /// in force.
    pub(crate) fn reload_policy(&self, path: Option<&Path>) {
        // Revocations come before the list is read, or after the new policy is in force.
        let revocations = held(&self.revocations);
        let Some(node) = self.present_node() else { return };
        let path = path.map_or_else(|| node.files()[0].to_owned(), Path::to_owned);
        let replaced = node
            .reopened(&path)
            .map_err(|e| e.to_string())
            .and_then(|node| with_all(node, &revocations).map_err(|e| format!("{}: {e}", path.display())));
        match replaced {
            Ok(node) => self.put_in_force(node),
            Err(e) => {
                self.fault("policy", Some(format!("{e}; the policy as it was before stays in force")));
            }
        }
    }

    /// Replaces the policy by that of a node which was read. The caller holds the revocations.
    pub(crate) fn put_in_force(&self, node: Node) {
        *held(&self.node) = Some(node);
        self.decide_anew();
        self.fault("policy", None);
    }

    /// Returns the node as it is, so that it need not stay locked.
    pub(crate) fn present_node(&self) -> Option<Node> {
        held(&self.node).clone()
    }

    /// Reviews the instance `id` on a source from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if it has lost its grant since that was decided, while the module was compiled, for
    /// instance: a revocation waits for the instances that are reviewed only.
    pub(crate) fn watch(
        &self,
        at: (&str, ModuleId),
        decided: Arc<AdmittedModule>,
    ) -> Result<Arc<Watched>, Problem> {
        let watched = Watched::new(at, decided);
        {
            let mut all = held(&self.watched);
            all.retain(|other| other.strong_count() > 0);
            all.push(Arc::downgrade(&watched));
        }
        match self.why_lost(&watched) {
            None => Ok(watched),
            Some(problem) => Err(problem),
        }
    }

    /// Returns why an instance has lost its grant since that was decided, if it has.
    pub(crate) fn why_lost(&self, watched: &Watched) -> Option<Problem> {
        let reason = self.present_node()?.lost(&watched.decided())?;
        Some(Problem::new(
            Code::Forbidden,
            format!("the module lost its grant before the change was made: {reason}"),
            "ask the operator what has changed, or use another credential",
        ))
    }

    /// Returns the grants of all instances, those that begin and end at the moment included.
    pub(crate) fn watched(&self) -> Vec<Arc<Watched>> {
        held(&self.watched).iter().filter_map(Weak::upgrade).collect()
    }

    /// Evicts the modules that have lost their grant under the policy that is in force, takes them down, and
    /// writes that.
    pub(crate) fn review_all(&self) {
        self.evict_lost();
        self.take_down_waiting();
        self.write_rows();
    }

    /// Evicts the modules that have lost their grant under the policy that is in force, but for those that
    /// checks end: only [`Engine::review_checks`] evaluates everybody's, since no change and nobody's end may
    /// wait for that. They are taken down later, since that waits for workers. The modules are locked to mark
    /// those that leave, but not while their grants are decided.
    pub(crate) fn evict_lost(&self) {
        // First, since it takes a moment for each.
        self.evict_lost_by(Node::lost_by_revocation, self.watched());
        self.evict_lost_by(Node::lost_by_fields, self.watched());
    }

    /// Evicts those of `watched` that have lost their grant as far as a part of the decision shows it.
    pub(crate) fn evict_lost_by(&self, part: Part, watched: Vec<Arc<Watched>>) {
        let mut evicted = Vec::new();
        self.find_lost(part, watched, |watched, admitted, reason| {
            // Otherwise it was renewed meanwhile.
            if let Some(marked) = self.mark_leaving(watched, admitted, &reason) {
                // However far the change is that begins or ends it.
                self.evict(watched, &reason);
                evicted.push((marked, admitted.clone(), reason));
            }
        });
        // Entries of the audit log wait for the disk.
        for (Marked { is_first, key }, admitted, reason) in evicted {
            if is_first
                && let Some(node) = self.present_node()
                && let Err(e) = node.note_eviction(&admitted, &reason)
            {
                self.fault(AUDIT_LOG, Some(e.to_string()));
            }
            held(&self.evictions).extend(key);
        }
    }

    /// Drops an instance before its next call, under each number that it may have.
    fn evict(&self, watched: &Watched, reason: &Reason) {
        let Some(source) = self.sources.get(&watched.source) else { return };
        watched.ids().into_iter().for_each(|id| source.evict(id, reason.clone()));
    }

    /// Finds the instances that have lost their grant under the policy that is in force, as far as a `part`
    /// of the decision shows it. `found` gets each at once, before the next is decided, with the decision
    /// that it lost and the reason.
    fn find_lost(
        &self,
        part: Part,
        watched: Vec<Arc<Watched>>,
        mut found: impl FnMut(&Arc<Watched>, &Arc<AdmittedModule>, Reason),
    ) {
        let Some(node) = self.present_node() else { return };
        for watched in watched {
            let admitted = watched.decided();
            if let Some(reason) = part(&node, &admitted) {
                found(&watched, &admitted, reason);
            }
        }
    }

    /// Marks an instance that lost its grant as evicted, and its module as one that leaves, unless a change
    /// is in progress that takes it out or has not entered it yet. Returns nothing if the decision on it is
    /// another one now.
    fn mark_leaving(
        &self,
        watched: &Arc<Watched>,
        admitted: &Arc<AdmittedModule>,
        reason: &Reason,
    ) -> Option<Marked> {
        let mut modules = self.modules();
        let is_it = |live: &Live| live.granted.as_ref().is_some_and(|granted| granted.is(watched, admitted));
        let mut found = modules.iter_mut().filter_map(|(key, entry)| Some((key, entry.live.as_mut()?)));
        let key = match found.find(|(_, live)| is_it(live)) {
            Some((key, live)) => {
                let was_leaving = live.leaving.is_some();
                live.leaving.get_or_insert_with(|| reason.to_string());
                (!was_leaving).then(|| key.clone())
            }
            None if Arc::ptr_eq(&watched.decided(), admitted) => None,
            None => return None,
        };
        // While the modules are locked: a module that is entered later leaves at once.
        Some(Marked { is_first: watched.evict(&reason.to_string()), key })
    }

    /// Makes a module one of the node's.
    pub(crate) fn enter(&self, key: Key, mut entry: Entry) {
        let mut modules = self.modules();
        self.leave_if_evicted(&key, &mut entry);
        modules.insert(key, entry);
    }

    /// Lets a module leave if its instance was evicted before the module had it. The caller has locked the
    /// modules.
    pub(crate) fn leave_if_evicted(&self, key: &Key, entry: &mut Entry) {
        if let Some(live) = &mut entry.live
            && let Some(reason) = live.granted.as_ref().and_then(Granted::evicted)
        {
            live.leaving.get_or_insert(reason);
            held(&self.evictions).insert(key.clone());
        }
    }

    /// Takes down the modules that workers evicted, for example because a bound was violated.
    pub(crate) fn take_down_evicted(&self) {
        for source in self.sources.values() {
            for (id, reason) in source.routes.take_evicted() {
                // Asked first: a change that has ended has entered its module.
                let is_changing = !held(&self.changing).is_empty();
                match self.mark_evicted(&source.name, id, &reason) {
                    Some(key) => self.evicted(key),
                    None if is_changing => source.routes.put_back(id, reason),
                    // It has ended, or leaves already.
                    None => {}
                }
            }
        }
    }

    /// Marks the module that has the instance `id` on a source as one that leaves, so that it is not renewed
    /// while it waits for a change in progress. Returns nothing if there is none, or if it leaves already.
    fn mark_evicted(&self, source: &str, id: ModuleId, reason: &Reason) -> Option<Key> {
        let mut modules = self.modules();
        let mut on_source = modules.iter_mut().filter(|(_, entry)| entry.stored.source == source);
        on_source.find_map(|(key, entry)| {
            let is_it = |live: &&mut Live| live.module.plan.id == id && live.leaving.is_none();
            let live = entry.live.as_mut().filter(is_it)?;
            live.leaving = Some(match key.0.is_operator() {
                true => reason.to_string(),
                false => reason.without_measurements(),
            });
            Some(key.clone())
        })
    }

    /// Takes down a module that was evicted. If a change of it is in progress, it is taken down after that,
    /// unless it runs anew then.
    fn evicted(&self, key: Key) {
        // The module is the holder's of this value alone. Its end gives up the module's reservation.
        let Ok(_changing) = self.begin_by(By::Node, &key) else {
            held(&self.evictions).insert(key);
            return;
        };
        self.end_leaving(&key);
    }

    /// Ends a module that leaves, for the reason that its clients see already. Returns whether it was one.
    /// The caller has begun the change.
    pub(crate) fn end_leaving(&self, key: &Key) -> bool {
        self.end_live_as(key, |live| Some((State::Evicted, live.leaving.clone()?)))
    }

    /// Ends the instance `id` of a module, which its owner did not stop, unless the module was changed
    /// meanwhile. The caller has begun the change.
    pub(crate) fn end_as(&self, key: &Key, id: ModuleId, state: State, reason: String) {
        // One that leaves may have been started in another process meanwhile.
        self.end_live_as(key, |live| match &live.leaving {
            Some(leaving) => Some((State::Evicted, leaving.clone())),
            None => (live.module.plan.id == id).then_some((state, reason)),
        });
    }

    /// Ends an instance, if `as_what` has a state and a reason for it. Its row is written later: one that
    /// cannot be written must hold up nobody's end.
    pub(crate) fn end_live_as(
        &self,
        key: &Key,
        as_what: impl FnOnce(&Live) -> Option<(State, String)>,
    ) -> bool {
        let account = self.present_account(key);
        let (live, source, log) = {
            let mut modules = self.modules();
            let Some(entry) = modules.get_mut(key) else { return false };
            let Some((state, reason)) = entry.live.as_ref().and_then(as_what) else { return false };
            let Some(live) = entry.take_live(account, |_| true) else { return false };
            entry.note(format!("{}: {reason}", state.name()));
            entry.end(state, reason);
            self.is_behind.store(true, Ordering::SeqCst);
            (live, entry.stored.source.clone(), entry.log.clone())
        };
        let ended = self.end_live(key, live, &source, &log);
        if let Some(entry) = self.modules().get_mut(key) {
            entry.past.add(&ended.unwrap_or_default());
            entry.ending = None;
        }
        true
    }

    /// Waits until no instance runs that has lost its grant, but for checks. One that a change begins at the
    /// moment may come to its source only now.
    pub(crate) fn wait_for_lost(&self) {
        let begun = Instant::now();
        while begun.elapsed() < EVICTION {
            let mut is_any = false;
            self.find_lost(Node::lost_by_fields, self.watched(), |watched, _, reason| {
                self.evict(watched, &reason);
                is_any = true;
            });
            if !is_any {
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Writes the entries of the audit log that could not be written when they were due.
    fn write_owed(&self) {
        match self.present_node().map(|node| node.write_owed()) {
            Some(Ok(true)) => self.fault(AUDIT_LOG, None),
            Some(Err(e)) => self.fault(AUDIT_LOG, Some(e.to_string())),
            Some(Ok(false)) | None => {}
        }
    }

    /// Takes down the evicted modules that waited for another change.
    pub(crate) fn take_down_waiting(&self) {
        let waiting = std::mem::take(&mut *held(&self.evictions));
        waiting.into_iter().for_each(|key| self.evicted(key));
    }
}
