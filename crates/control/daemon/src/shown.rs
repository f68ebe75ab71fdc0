//! The view that clients have of the node: modules, sources, status and health. All of it follows from the
//! lives of the modules and the accounts of the sources.

use crate::accounting::Amounts;
use crate::config::From;
use crate::engine::Engine;
use crate::life::{Entry, Key, label};
use crate::source::SourceRun;
use crate::spool::Spool;
use crate::store::{Owner, Stored};
use flame_api as api;
use flame_api::{Problem, State};
use flame_base::lock;
use flame_plan::{Account, Audience, ModuleClass, QueueAccount, Shed, Unsent};
use flame_quota::Used;
use flame_trust::Credential;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns a text for each subject with a reason.
pub(crate) fn texts(reasons: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    reasons.iter().map(|(subject, reason)| format!("{subject}: {reason}"))
}

impl Engine {
    /// Returns the modules with these keys, or all of them.
    pub fn list(&self, of: Option<&[Key]>, audience: Audience) -> Vec<api::Module> {
        let is_wanted = |(key, _): &(&Key, &Entry)| of.is_none_or(|of| of.contains(key));
        let sources: BTreeSet<String> =
            self.modules().iter().filter(is_wanted).map(|(_, entry)| entry.stored.source.clone()).collect();
        // Without the lock, because the workers answer between two blocks.
        let known = sources.iter().filter_map(|name| {
            let source = self.sources.get(name)?;
            let processes = if audience.is_operator() { source.processes() } else { Vec::new() };
            Some((name, (source.accounts(audience), processes)))
        });
        let known: BTreeMap<_, _> = known.collect();
        let modules = self.modules();
        let shown = |(_, entry): (&Key, &Entry)| {
            let known = known.get(&entry.stored.source);
            let id = entry.life.live().map(|live| live.module.plan.id);
            let mut processes = known.into_iter().flat_map(|(_, processes)| processes);
            let process = processes.find(|process| id.is_some_and(|id| process.modules.contains(&id)));
            let process = process.map(|process| process.pid);
            api::Module { process, ..self.shown(entry, known.map(|(accounts, _)| accounts), audience) }
        };
        modules.iter().filter(is_wanted).map(shown).collect()
    }

    /// Returns one module, for its owner.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub fn show(&self, owner: &Owner, name: &str) -> Result<api::Module, Problem> {
        self.show_to(owner, name, owner.audience())
    }

    /// Returns one module as `audience` sees it.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub fn show_to(&self, owner: &Owner, name: &str, audience: Audience) -> Result<api::Module, Problem> {
        let key = [(owner.clone(), name.to_owned())];
        self.list(Some(&key), audience).pop().ok_or_else(|| Self::missing(name))
    }

    /// Returns the spool of a module, which a reader may keep after the module's removal.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no module of this name.
    pub fn spool(&self, owner: &Owner, name: &str) -> Result<Arc<Spool>, Problem> {
        self.of_module(owner, name, |entry| entry.spool.clone())
    }

    /// Returns the credentials under which modules are installed, for the operator.
    pub fn credentials(&self) -> api::Credentials {
        let mut all: BTreeMap<(Owner, String), api::CredentialInUse> = BTreeMap::new();
        for ((owner, name), entry) in self.modules().iter() {
            let Some(proof) = &entry.stored.proof else { continue };
            let Ok(blocks) = Credential::parse(&proof.credential).and_then(|read| read.blocks()) else {
                continue;
            };
            let Some(last) = blocks.last() else { continue };
            let new = || api::CredentialInUse {
                principal: owner.shown().unwrap_or_default(),
                role: blocks[0].role.clone(),
                id: last.id.clone(),
                holder: blocks.iter().rev().find_map(|block| block.holder).map(|key| key.to_string()),
                expires: None,
                modules: Vec::new(),
                running: Vec::new(),
            };
            let known = all.entry((owner.clone(), last.id.clone())).or_insert_with(new);
            known.expires = [known.expires, entry.expires].into_iter().flatten().min();
            known.modules.push(name.clone());
            known.running.extend((entry.state() == State::Running).then(|| name.clone()));
        }
        api::Credentials { credentials: all.into_values().collect() }
    }

    /// Returns the sources, with totals for the operator only: they include packets that grants hide.
    pub fn sources(&self, audience: Audience) -> Vec<api::Source> {
        let operator = audience.is_operator();
        let of = |s: &SourceRun| {
            let totals = operator.then(|| s.snapshot().0);
            let (kind, from) = match &s.config.from {
                From::Interface { .. } => ("interface", Some(s.place.name().to_owned())),
                From::File { path, .. } => ("file", operator.then(|| path.display().to_string())),
            };
            api::Source {
                name: s.name.clone(),
                kind: kind.to_owned(),
                from,
                method: s.method(),
                workers: s.config.workers,
                running: s.failed().is_none(),
                // It may name files.
                reason: s.silent().filter(|_| operator),
                packets: totals.map(|totals| totals.packets),
                bytes: totals.map(|totals| totals.bytes),
                kernel_drops: totals.map(|totals| totals.kernel_drops),
            }
        };
        self.sources.values().map(of).collect()
    }

    /// Returns the state of the node for the operator, with the totals of its sources. The notes include
    /// present faults, and modules that have failed.
    pub fn status(&self) -> api::Status {
        let modules = self.modules();
        let running = modules.values().filter(|e| e.state() == State::Running).count() as u64;
        let (count, failed) = (modules.len() as u64, failed(&modules));
        drop(modules);
        let (mut notes, faults) = {
            let reports = lock(&self.reports);
            (reports.notes.clone(), texts(&reports.faults).collect::<Vec<_>>())
        };
        notes.extend(self.sources.values().flat_map(SourceRun::overloads));
        notes.extend(faults.into_iter().chain(failed));
        api::Status {
            name: lock(&self.node).as_ref().map(|node| node.policy().name.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            modules: count,
            running,
            sources: self.sources(Audience::Operator),
            notes,
        }
    }

    /// Returns what does not work at present, each with the reason: faults, and sources that have failed or
    /// whose interface is down.
    pub(crate) fn troubles(&self) -> BTreeMap<String, String> {
        let mut all = lock(&self.reports).faults.clone();
        all.extend(self.sources.values().filter_map(|s| Some((format!("source {}", s.name), s.silent()?))));
        all
    }

    /// Returns whether the node is healthy, and what does not work. A module that has failed is among the
    /// reasons, but leaves the node healthy: its principal must not decide that.
    pub fn health(&self) -> api::Health {
        let troubles = self.troubles();
        let reasons = texts(&troubles).chain(failed(&self.modules())).collect();
        api::Health { ok: troubles.is_empty(), reasons }
    }

    /// Returns a module as `audience` sees it, with its accounts for that audience. Under a grant, counts
    /// that the module chooses are rounded as in the reports of `flame run`.
    fn shown(
        &self,
        entry: &Entry,
        accounts: Option<&BTreeMap<String, Account>>,
        audience: Audience,
    ) -> api::Module {
        let Stored { owner, name, source, hash, settings, narrow, revision, installed, .. } = &entry.stored;
        // Queues of the present instance come first, so that they have their names.
        let (live, ending) = (entry.life.live().map(|live| &live.module.plan), entry.life.ending());
        let instance = live.map(|plan| &plan.name).or(ending.map(|ending| &ending.name));
        let now = instance.and_then(|name| accounts?.get(name));
        let mut account = match ending {
            Some(ending) => {
                // While it is removed, the source knows a part of its account.
                now.iter().filter(|_| audience.is_operator()).for_each(|now| ending.note(now));
                ending.account(audience)
            }
            None => now.cloned().unwrap_or_default(),
        };
        let (state, reason) = entry.shown(&account);
        entry.past.add_to(&mut account, audience);
        let class = live.map(|plan| match plan.class {
            ModuleClass::Bounded => "bounded".to_owned(),
            ModuleClass::Metered => "metered".to_owned(),
        });
        let place = live.map(|plan| if plan.process.is_some() { "process" } else { "inline" }.to_owned());
        let filled = entry.spool.filled();
        let cursor = |row| api::Cursor { epoch: entry.spool.epoch, row }.to_string();
        api::Module {
            name: name.clone(),
            principal: owner.shown(),
            root: (!owner.is_operator()).then(|| owner.root.clone()),
            source: source.clone(),
            state,
            reason,
            version: entry.version.clone(),
            hash: flame_trust::hex(hash),
            class,
            place,
            process: None,
            revision: *revision,
            installed: *installed,
            expires: entry.expires,
            settings: settings.iter().map(|(name, value)| (name.clone(), excerpt(value))).collect(),
            narrow: narrow.clone(),
            account: account_of(&account, !owner.is_operator()),
            usage: self.usage_of(entry, audience),
            reserved: entry.stored.reserved,
            spool: api::Spool {
                first: cursor(filled.first),
                next: cursor(filled.next),
                rows: filled.next - filled.first,
                bytes: filled.bytes,
                dropped: filled.dropped,
            },
            notes: entry.notes.clone(),
        }
    }

    fn usage_of(&self, entry: &Entry, audience: Audience) -> api::Usage {
        let now = entry.usage.used();
        let used = match audience {
            Audience::Operator => Amounts::between(&Used::default(), &now),
            Audience::Holder => self.accounting.shown(&entry.usage),
        };
        let is_exact = audience.is_operator();
        api::Usage {
            cpu_ns: used.cpu_ns,
            block_ns: used.block_ns,
            blocks: is_exact.then_some(now.blocks.now),
            memory: is_exact.then_some(now.memory.now),
            memory_byte_seconds: used.memory_byte_seconds,
            record_bytes: used.record_bytes,
            sent_bytes: used.sent_bytes,
            transmitted_bytes: used.transmitted_bytes,
        }
    }
}

/// Returns a text for each module that has failed, as the operator reads it.
fn failed(modules: &BTreeMap<Key, Entry>) -> Vec<String> {
    let failed = modules.iter().filter(|(_, entry)| entry.state() == State::Failed);
    let text = |(key, entry): (&Key, &Entry)| {
        format!("module {} has failed: {}", label(key), entry.reason().unwrap_or_default())
    };
    failed.map(text).collect()
}

/// Maximum number of bytes of a setting that are shown: a setting can have megabytes.
const SETTING_SHOWN: usize = 1024;

/// Returns a text, or its beginning and its size.
fn excerpt(text: &str) -> String {
    let Some(end) = (text.len() > SETTING_SHOWN).then(|| text.floor_char_boundary(SETTING_SHOWN)) else {
        return text.to_owned();
    };
    format!("{}... ({} bytes)", &text[..end], text.len())
}

fn account_of(account: &Account, granted: bool) -> api::Account {
    // The API has the account of the packets that a grant shows.
    let account = match granted {
        true => account.without_sampled().without_choices(),
        false => account.without_sampled(),
    };
    let shed = Shed::ALL.into_iter().map(|cause| (cause.name().to_owned(), account.shed_by(cause)));
    let of_cause = |cause: Unsent| (cause.name().to_owned(), account.unsent_by(cause));
    let unsent = Unsent::ALL.into_iter().map(of_cause);
    api::Account {
        offered: account.offered,
        processed: account.processed,
        filtered: account.filtered,
        shed: shed.filter(|(_, packets)| *packets > 0).collect(),
        cut: account.cut,
        records: account.records,
        records_lost: account.records_lost,
        messages_lost: account.messages_lost,
        withheld: account.withheld,
        sent: account.sent,
        unsent: unsent.filter(|(_, frames)| *frames > 0).collect(),
        calls: account.calls,
        calls_lost: account.calls_lost,
        replies: account.replies,
        replies_lost: account.replies_lost,
        faults: account.faults,
        adds_up: account.adds_up(),
        queues: account.queues.iter().map(queue_of).collect(),
    }
}

fn queue_of(queue: &QueueAccount) -> api::QueueAccount {
    let QueueAccount { name, packets, processed, overrun } = queue.clone();
    api::QueueAccount { name, packets, processed, overrun }
}
