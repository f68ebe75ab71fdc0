//! Decides again, while modules run, whether they may: policies change, credentials are revoked or expire.

use crate::change::end_of;
use crate::engine::{Engine, Key, held};
use flame_api::{Code, Problem, RevokeRequest, State};
use flame_trust::{Credential, PublicKey, Revoked, time};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// The interval at which files and clock are checked. Changes take effect within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl Engine {
    /// Starts the thread that reviews the modules until the node stops.
    pub fn review(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let engine = self.clone();
        std::thread::Builder::new().name("review".to_owned()).spawn(move || {
            let (mut seen, mut second) = (engine.stamps(), 0);
            while !engine.stopping.load(Ordering::SeqCst) {
                let (stamps, now) = (engine.stamps(), time::now());
                if stamps != seen {
                    seen = stamps;
                    engine.reload_policy(None);
                    engine.review_all();
                } else if now != second {
                    second = now;
                    engine.review_all();
                }
                std::thread::park_timeout(POLL_INTERVAL);
            }
        })
    }

    fn stamps(&self) -> Vec<Stamp> {
        held(&self.node)
            .as_ref()
            .map(|node| node.files().into_iter().map(stamp).collect())
            .unwrap_or_default()
    }

    /// Reads the policy again, at `path` if it was moved. A policy that cannot be read leaves the earlier one
    /// in force.
    pub(crate) fn reload_policy(&self, path: Option<&Path>) {
        let mut base = held(&self.node);
        let Some(node) = base.as_ref() else { return };
        let path = path.map_or_else(|| node.files()[0].to_owned(), Path::to_owned);
        match node.reopened(&path) {
            Ok(node) => {
                let mut modules = self.modules();
                for granted in modules.values_mut().filter_map(|e| e.live.as_mut()?.granted.as_mut()) {
                    granted.node.take_policy_of(&node);
                }
                *base = Some(node);
                drop((modules, base));
                self.fault("policy", None);
            }
            Err(e) => {
                drop(base);
                self.fault("policy", Some(format!("{e}; the policy as it was before stays in force")));
            }
        }
    }

    /// Evicts the modules that have lost their grant.
    pub(crate) fn review_all(&self) {
        let mut evicted = Vec::new();
        for (key, entry) in self.modules().iter() {
            let Some(live) = &entry.live else { continue };
            let Some(granted) = &live.granted else { continue };
            let Some((reason, unwritten)) = granted.node.review(&granted.admitted) else { continue };
            if let Some(e) = unwritten {
                self.fault("audit log", Some(e.to_string()));
            }
            if let Some(source) = self.sources.get(&entry.stored.source) {
                source.evict(live.module.plan.id, reason.clone());
            }
            evicted.push((key.clone(), live.module.plan.id, reason.to_string()));
        }
        for (key, id, reason) in evicted {
            self.evicted(&key, id, reason);
        }
    }

    /// Takes down a module that was evicted, unless it was changed meanwhile.
    fn evicted(&self, key: &Key, id: flame_plan::ModuleId, reason: String) {
        let (live, source) = {
            let mut modules = self.modules();
            let Some(entry) = modules.get_mut(key) else { return };
            let Some(live) = entry.live.take_if(|live| live.module.plan.id == id) else { return };
            entry.stored.state = State::Evicted;
            entry.stored.reason = Some(reason.clone());
            entry.stored.revision += 1;
            entry.note(format!("evicted: {reason}"));
            // A module that cannot be stored as evicted is denied again at the next start.
            let _ = self.stored(self.store.put(&entry.stored, None));
            (live, entry.stored.source.clone())
        };
        let Some(source) = self.sources.get(&source) else { return };
        let account = source.remove(live.module.plan.id);
        end_of(&live, &account, source);
        if let Some(entry) = self.modules().get_mut(key) {
            entry.past.add(&account);
        }
    }

    /// Adds a revocation to the policy's list and evicts what it concerns.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no list, or the list or the storage cannot be written.
    pub fn revoke(&self, request: &RevokeRequest) -> Result<(), Problem> {
        let invalid = |reason: String| Problem::new(Code::Invalid, reason, "give one credential or one key");
        let line = match (&request.credential, &request.key) {
            (Some(text), None) => {
                let blocks =
                    Credential::parse(text).and_then(|c| c.blocks()).map_err(|e| invalid(e.to_string()))?;
                let last = blocks.last().ok_or_else(|| invalid("the credential has no block".to_owned()))?;
                format!("id {}", last.id)
            }
            (None, Some(key)) => {
                format!("key {}", PublicKey::parse(key).map_err(|e| invalid(e.to_string()))?)
            }
            _ => return Err(invalid("neither or both of credential and key are given".to_owned())),
        };
        let list = held(&self.node).as_ref().and_then(|node| node.policy().revocations.clone());
        let list = list.ok_or_else(|| {
            Problem::new(
                Code::Unavailable,
                "the policy names no list of revocations",
                "add revocations = \"revoked\" to [node] of the policy, and create the file",
            )
        })?;
        self.stored(self.store.revoked(&line, time::now()))?;
        Revoked::append(&list, &line).map_err(|e| {
            Problem::new(Code::Storage, e.to_string(), "make the list writable to the node's user")
        })?;
        self.reload_policy(None);
        self.review_all();
        Ok(())
    }
}
