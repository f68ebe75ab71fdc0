//! Decides again, while modules run, whether they may: policies change, credentials are revoked or expire.

use crate::engine::{AUDIT_LOG, Engine};
use crate::granted::Watched;
use crate::life::Live;
use crate::revoke::with_all;
use crate::stamps::{Stamp, stamps};
use flame_api::{Code, Problem};
use flame_base::{Backoff, lock};
use flame_node::{AdmittedModule, Node};
use flame_plan::limits::REVOCATION_MAX;
use flame_plan::{ModuleId, Reason};
use flame_trust::time;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The waits of a revocation for the ends of the instances that it concerns.
const REVOCATION_CHECK: Backoff = Backoff::every(Duration::from_millis(10));

/// A part of the decision on a grant.
type Part = fn(&Node, &AdmittedModule) -> Option<Reason>;

impl Engine {
    /// Reads the policy again if its files have changed since `seen`, and evicts modules that have lost their
    /// grant, once in each `second`. It waits for no worker and evaluates no checks, so that neither slow
    /// modules of one principal nor costly checks delay the end of another one's authority.
    pub(crate) fn review(&self, seen: &mut Vec<Stamp>, second: &mut u64) {
        let (stamps, now) = (lock(&self.node).as_ref().map(stamps).unwrap_or_default(), time::now());
        if stamps != *seen {
            *seen = stamps;
            self.reload_policy(None);
            self.evict_lost();
        } else if now != *second {
            *second = now;
            self.evict_lost();
            self.write_owed();
        }
    }

    /// Evicts the modules that a check ends.
    pub(crate) fn review_checks(&self) {
        self.evict_lost_by(Node::lost_by_checks, self.watched());
    }

    /// Reads the policy again, at `path` if it was moved. A policy that cannot be read leaves the earlier one
    /// in force.
    pub(crate) fn reload_policy(&self, path: Option<&Path>) {
        // Revocations come before the list is read, or after the new policy is in force.
        let revocations = lock(&self.revocations);
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

    /// Replaces the policy by the policy of a node which was read. The caller holds the revocations.
    pub(crate) fn put_in_force(&self, node: Node) {
        *lock(&self.node) = Some(node);
        self.end_decisions();
        self.fault("policy", None);
    }

    /// Returns the node as it is, so that it need not stay locked.
    pub(crate) fn present_node(&self) -> Option<Node> {
        lock(&self.node).clone()
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
            let all = &mut self.modules().watched;
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
        self.modules().watched.iter().filter_map(Weak::upgrade).collect()
    }

    /// Evicts the modules that have lost their grant under the policy that is in force, takes them down, and
    /// writes that.
    pub(crate) fn review_all(&self) {
        self.evict_lost();
        self.take_down_leaving();
        self.write_rows();
    }

    /// Evicts modules that have lost their grant under the policy that is in force. Datalog checks are left
    /// to [`Engine::review_checks`], because they are slow. The modules are taken down later, since that
    /// waits for workers. They are locked to mark which of them leave, not while their grants are decided.
    pub(crate) fn evict_lost(&self) {
        // First, since it takes a moment for each.
        self.evict_lost_by(Node::lost_by_revocation, self.watched());
        self.evict_lost_by(Node::lost_by_fields, self.watched());
    }

    /// Evicts the instances among `watched` that have lost their grant, as far as a part of the decision
    /// shows it.
    pub(crate) fn evict_lost_by(&self, part: Part, watched: Vec<Arc<Watched>>) {
        let mut evicted = Vec::new();
        for (watched, admitted, reason) in self.lost(part, watched) {
            // Otherwise it was renewed meanwhile.
            if let Some(is_first) = self.mark_leaving(&watched, &admitted, &reason) {
                // However far the change is that begins or ends it.
                self.evict(&watched, &reason);
                evicted.extend(is_first.then_some((watched, admitted, reason)));
            }
        }
        // Entries of the audit log wait for the disk.
        for (watched, admitted, reason) in evicted {
            if let Some(node) = self.present_node()
                && let Err(e) = node.note_eviction(&admitted, &reason)
            {
                self.fault(AUDIT_LOG, Some(e.to_string()));
            }
            watched.logged();
        }
    }

    /// Drops an instance before its next call, under each number that it may have.
    fn evict(&self, watched: &Watched, reason: &Reason) {
        let Some(source) = self.sources.get(&watched.source) else { return };
        watched.ids().into_iter().for_each(|id| source.evict(id, reason.clone()));
    }

    /// Returns the instances that have lost their grant under the policy that is in force, as far as a `part`
    /// of the decision shows it: each before the next is decided, with the decision that it lost and the
    /// reason.
    fn lost(
        &self,
        part: Part,
        watched: Vec<Arc<Watched>>,
    ) -> impl Iterator<Item = (Arc<Watched>, Arc<AdmittedModule>, Reason)> {
        let node = self.present_node();
        watched.into_iter().filter_map(move |watched| {
            let admitted = watched.decided();
            let reason = part(node.as_ref()?, &admitted)?;
            Some((watched, admitted, reason))
        })
    }

    /// Marks an instance that lost its grant as evicted, and its module as leaving, unless a change is in
    /// progress that takes it out or has not entered it yet. Returns whether it was not evicted before, or
    /// nothing if the decision on it is another one now.
    fn mark_leaving(
        &self,
        watched: &Arc<Watched>,
        admitted: &Arc<AdmittedModule>,
        reason: &Reason,
    ) -> Option<bool> {
        let mut modules = self.modules();
        let is_it = |live: &Live| live.granted.as_ref().is_some_and(|granted| granted.is(watched, admitted));
        match modules.values_mut().filter_map(|entry| entry.life.live_mut()).find(|live| is_it(live)) {
            Some(live) => live.leave(reason.to_string()),
            None if Arc::ptr_eq(&watched.decided(), admitted) => {}
            None => return None,
        }
        // While the modules are locked: a module that is entered later leaves at once.
        Some(watched.evict(&reason.to_string()))
    }

    /// Marks the modules that workers evicted, for example because a bound was violated, as leaving.
    pub(crate) fn mark_evicted_by_workers(&self) {
        for source in self.sources.values() {
            for (id, reason) in source.routes.take_evicted() {
                // Asked first: a change that has ended has entered its module.
                let is_changing = !self.modules().changing.is_empty();
                let is_marked = self.mark_evicted(&source.name, id, &reason);
                // Otherwise it has ended.
                if !is_marked && is_changing {
                    source.routes.put_back(id, reason);
                }
            }
        }
    }

    /// Marks the module that has the instance `id` on a source as leaving, so that it is not renewed while it
    /// waits for a change in progress. Returns whether there is one.
    fn mark_evicted(&self, source: &str, id: ModuleId, reason: &Reason) -> bool {
        let mut modules = self.modules();
        let found =
            modules.of_instance(source, id).and_then(|(key, entry)| Some((key, entry.life.live_mut()?)));
        let Some((key, live)) = found else { return false };
        live.leave(match key.0.is_operator() {
            true => reason.to_string(),
            false => reason.without_measurements(),
        });
        true
    }

    /// Waits until no instance runs that has lost its grant, but for checks. An instance that a change begins
    /// at the moment may come to its source only now.
    pub(crate) fn wait_for_lost(&self) {
        let begun = Instant::now();
        REVOCATION_CHECK.sleep_until(|| {
            let is_left = begun.elapsed() < REVOCATION_MAX && {
                let lost = self.lost(Node::lost_by_fields, self.watched());
                lost.inspect(|(watched, _, reason)| self.evict(watched, reason)).count() > 0
            };
            (!is_left).then_some(())
        });
    }

    /// Writes the entries of the audit log that could not be written when they were due.
    fn write_owed(&self) {
        match self.present_node().map(|node| node.write_owed()) {
            Some(Ok(true)) => self.fault(AUDIT_LOG, None),
            Some(Err(e)) => self.fault(AUDIT_LOG, Some(e.to_string())),
            Some(Ok(false)) | None => {}
        }
    }
}
