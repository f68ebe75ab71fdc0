//! The state that modules keep beyond their instances: carried by updates, written to the store at intervals
//! and at the end of the node, and given back to the instances that follow.
//!
//! A state may be made of everything that the module saw. So another instance gets it only if it has the same
//! rights, and only the module reads it.

use crate::build::Prepared;
use crate::engine::Engine;
use crate::error::problem;
use crate::granted::Granted;
use crate::kept::{Before, Beginning, Kept};
use crate::life::{Entry, Key, Live};
use crate::log::Log;
use crate::source::SourceRun;
use crate::store::states::StateTerms;
use crate::store::{StoreError, Stored};
use flame_api::{Code, Problem};
use flame_plan::ModulePlan;
use flame_plan::limits::BEGUN_MAX;
use flame_trust::Rights;
use flame_worker::{Begun, Keep, News, OnNews, Place, State};
use std::sync::Arc;
use std::time::Duration;

/// The beginning of notes about states.
const STATE: &str = "state";

/// Returns the rights on which a state depends, which decide what the module saw or what it gives to others.
/// Different rights have different texts.
fn rights_in_state(rights: &Rights) -> String {
    let Rights {
        select,
        stages,
        select_shown,
        expose,
        transforms,
        resolution_ns,
        ticks_ns,
        sample,
        sampled,
        calls,
        records_per_second,
        bytes_per_second,
        transmit,
        send,
        call,
        serve,
        read,
        write,
        group,
        code,
        memory: _,
        packet_budget: _,
        cpu: _,
        compile: _,
        buffer: _,
        priority: _,
        not_before: _,
        expires: _,
        nodes: _,
        interfaces: _,
        capsule: _,
        capsule_instructions: _,
        capsule_bytes: _,
        capsule_copies: _,
        soft_state: _,
        ask: _,
    } = rights;
    // A filter that others evaluate on the packet as shown is another right than one on the true packet.
    let select: Vec<_> = select.iter().map(ToString::to_string).collect();
    let shown: Vec<_> = select_shown.iter().map(ToString::to_string).collect();
    let shown = (stages, shown);
    let send: Vec<_> = send.iter().map(ToString::to_string).collect();
    let seen = (select, shown, expose, transforms, resolution_ns, (sample, sampled), calls);
    let given =
        (records_per_second, bytes_per_second, transmit, send, (call, serve, read, write), group, code);
    // Only where it is narrowed, so that the texts of states that were stored before stay.
    let ticks = if *ticks_ns > 1 { format!(" ticks {ticks_ns}") } else { String::new() };
    format!("{seen:?} {given:?}{ticks}")
}

/// Returns the terms of a module's state, if its manifest has one.
fn terms_of(plan: &ModulePlan, granted: Option<&Granted>, source: &SourceRun) -> Option<StateTerms> {
    let version = plan.manifest.state?.version;
    let rights =
        granted.map_or_else(String::new, |granted| rights_in_state(&granted.admitted().grant.rights));
    let (module, workers) = (plan.manifest.name.clone(), source.config.workers.into());
    Some(StateTerms { module, version, workers, rights })
}

/// Returns why a state is not carried from `old` to `new`, or `None` if it is.
fn difference(old: &StateTerms, new: &StateTerms) -> Option<String> {
    match () {
        () if old.module != new.module => Some(format!("the state is of module {:?}", old.module)),
        () if old.version != new.version => {
            Some(format!("the state has version {}, this module has {}", old.version, new.version))
        }
        () if old.workers != new.workers => {
            Some(format!("the state is of {} workers, now there are {}", old.workers, new.workers))
        }
        () if old.rights != new.rights => Some("the state was made with other rights".to_owned()),
        () => None,
    }
}

/// Writes the events of a module's states to its log.
fn log_news(log: Arc<Log>) -> OnNews {
    Box::new(move |place: Place, news: &News| match news {
        News::Begun(Begun::Taken) => log.change(&format!("{place}: it goes on with its state")),
        News::Begun(Begun::Refused) => {
            log.change(&format!("{place}: the module refused its state, and begins empty"));
        }
        News::Dropped => log.change(&format!("{place}: its state is dropped with the instance")),
        News::CutOff => log.change(&format!(
            "{place}: there was no time for its last calls, so the state that it exported before them stays"
        )),
        News::Begun(Begun::Empty | Begun::Dropped) | News::Stored(_) => {}
    })
}

/// Returns the most bytes of state that a module can keep, with the arithmetic.
pub(crate) fn need(plan: &ModulePlan, source: &SourceRun) -> (u64, String) {
    let (max, workers) = (plan.manifest.state.map_or(0, |state| state.max), source.config.workers);
    let places = u64::from(workers) + 1;
    let bytes = u64::from(max) * places;
    (bytes, format!("{max} bytes for each of {workers} workers and a slow instance = {bytes}"))
}

impl Beginning {
    /// Decides how the instances of a prepared module begin. `why_empty` is the reason if they begin empty in
    /// any case.
    pub(crate) fn of(
        prepared: &Prepared,
        (source, interval): (&SourceRun, Duration),
        log: &Arc<Log>,
        before: Before,
        why_empty: Option<&str>,
    ) -> Self {
        let plan = &prepared.module.plan;
        let nothing = Self { kept: None, is_carried: false, is_empty: true, note: None };
        let (Some(terms), Some(state)) =
            (terms_of(plan, prepared.granted.as_ref(), source), plan.manifest.state)
        else {
            return nothing;
        };
        let workers = usize::from(source.config.workers);
        let new = |states: Vec<(Place, State)>| {
            let every_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            Keep::new((state.max, every_ns), workers, states, log_news(log.clone()))
        };
        let of = |keep, written| Some(Kept::new(keep, &terms, written));
        let why = match (&before, why_empty) {
            (_, Some(reason)) => Some(reason.to_owned()),
            (Before::Running(kept), None) => difference(&kept.terms, &terms).or_else(|| {
                // The instances before may still export more.
                let shrinks = kept.keep.most() > state.max as usize;
                shrinks.then(|| "max is lower than that of the instances before".to_owned())
            }),
            (Before::Stored(stored), None) => match &stored.terms {
                Some(old) => difference(old, &terms),
                None if stored.damaged > 0 => Some("the stored state is damaged".to_owned()),
                None => None,
            },
        };
        let empty = |reason: String| Self {
            kept: of(new(Vec::new()), None),
            is_carried: false,
            is_empty: true,
            note: Some(format!("{STATE}: the module begins empty: {reason}")),
        };
        match (before, why) {
            (_, Some(reason)) => empty(reason),
            (Before::Running(kept), None) => {
                kept.keep.raise(state.max);
                Self { kept: of(kept.keep, kept.written), is_carried: true, is_empty: false, note: None }
            }
            (Before::Stored(stored), None) => {
                let misfit =
                    |(place, bytes): &&(Place, State)| !Keep::fits(state.max, workers, *place, bytes);
                let (damaged, misfits) = (stored.damaged, stored.states.iter().filter(misfit).count());
                let is_whole = damaged + misfits == 0;
                let note = (!is_whole).then(|| {
                    format!(
                        "{STATE}: of the stored states, {damaged} are damaged, and {misfits} larger than max or of \
                         no instance: their instances begin empty"
                    )
                });
                let keep = new(stored.states);
                // What is left out is also left out of the storage, when the rest is written again.
                let written = is_whole.then(|| keep.states().0);
                Self { kept: of(keep, written), is_carried: false, is_empty: false, note }
            }
        }
    }
}

impl Engine {
    /// Returns the state that a module has now: of its instances, which is `kept`, or else as it is stored.
    /// Rows that are damaged are as good as none, and are counted.
    ///
    /// # Errors
    ///
    /// Returns an error if the storage cannot be read. The module would begin empty, and its state be lost.
    pub(crate) fn state_before(&self, stored: &Stored, kept: Option<Kept>) -> Result<Before, Problem> {
        if let Some(kept) = kept {
            return Ok(Before::Running(kept));
        }
        let Stored { owner, name, .. } = stored;
        self.store.states(owner, name).map(Before::Stored).map_err(|e| problem(&e))
    }

    /// Decides whether the state that a module may keep fits into its principal's limit.
    pub(crate) fn state_fits(&self, key: &Key, plan: &ModulePlan, source: &SourceRun) -> Result<(), Problem> {
        let (need, arithmetic) = need(plan, source);
        if key.0.is_operator() || need == 0 {
            return Ok(());
        }
        let most = self.config().limits.state_per_principal;
        let others = self.modules().sum_of_others(key, |entry| entry.state_bytes);
        let sum = others.saturating_add(need);
        match sum > most {
            true => Err(Problem::new(
                Code::TooLarge,
                format!(
                    "the state of its modules does not fit: {arithmetic}; {others} of the others + {need} = \
                     {sum} > {most} bytes"
                ),
                "lower max in [state] of the module's manifest, remove another module, or ask the operator for a \
                 higher limit (state_per_principal in [limits])",
            )),
            false => Ok(()),
        }
    }

    /// Returns how the instances of a module have begun, in words, if it has a state.
    pub(crate) fn state_note(&self, beginning: &Beginning) -> Option<String> {
        let Some(kept) = &beginning.kept else { return None };
        let version = kept.terms.version;
        let workers = kept.terms.workers as usize;
        if beginning.note.is_none() {
            kept.keep.wait_for_begun(workers, BEGUN_MAX);
        }
        let begun = kept.keep.begun();
        let of = |wanted: Begun| {
            let places: Vec<_> =
                begun.iter().filter(|(_, b)| *b == wanted).map(|(p, _)| p.to_string()).collect();
            (!places.is_empty()).then(|| places.join(", "))
        };
        if let Some(refused) = of(Begun::Refused) {
            let text =
                format!("{STATE}: the module refused the state of version {version}, and begins empty there");
            return Some(format!("{text}: {refused}"));
        }
        if let Some(dropped) = of(Begun::Dropped) {
            let text = format!("{STATE}: version {version} is dropped with instances that failed to take it");
            return Some(format!("{text}: {dropped}"));
        }
        match (&beginning.note, of(Begun::Taken)) {
            (Some(note), _) => Some(note.clone()),
            (None, Some(taken)) => Some(format!("{STATE}: version {version} is carried on: {taken}")),
            // An instance that has not begun waits for its time, or for the end of the one before.
            (None, None) if beginning.is_carried && begun.len() < workers => {
                Some(format!("{STATE}: version {version} is carried on when the instances before have ended"))
            }
            (None, None) => Some(format!("{STATE}: version {version} begins empty: none was kept")),
        }
    }

    /// Writes the state of a module that has changed since it was written last. With `revision`, only while
    /// its instances run and the module has that revision. Returns false if another program has locked the
    /// database, so that no other state can be written now.
    fn write_state(&self, key: &Key, revision: Option<u64>, kept: &mut Kept) -> bool {
        let (changes, states) = kept.keep.states();
        if kept.written == Some(changes) {
            return true;
        }
        let while_it_runs = revision.map(|revision| (revision, &*kept.has_ended));
        let written = self.store.put_states(&key.0, &key.1, while_it_runs, &kept.terms, &states);
        let is_locked = written.as_ref().is_err_and(StoreError::is_locked);
        // The operator sees a fault of the storage; the next interval tries again.
        if let Ok(true) = self.stored(written) {
            kept.written = Some(changes);
        }
        !is_locked
    }

    /// Writes the state of a module whose instances have ended.
    pub(crate) fn write_last_state(&self, key: &Key, live: &mut Live) {
        if let Some(kept) = &mut live.kept {
            self.write_state(key, None, kept);
        }
    }

    /// Writes all states that have changed.
    pub(crate) fn write_states(&self) {
        let all: Vec<(Key, u64, Kept)> = {
            let modules = self.modules();
            let kept = |(key, entry): (&Key, &Entry)| {
                Some((key.clone(), entry.stored.revision, entry.life.live()?.kept.clone()?))
            };
            modules.iter().filter_map(kept).collect()
        };
        for (key, revision, mut kept) in all {
            let before = kept.written;
            // Without the lock, because the disk may take its time. A change meanwhile has another revision.
            if !self.write_state(&key, Some(revision), &mut kept) {
                return;
            }
            if kept.written != before
                && let Some(entry) = self.modules().get_mut(&key)
                && let Some(now) = entry.life.live_mut().and_then(|live| live.kept.as_mut())
                && Arc::ptr_eq(&now.has_ended, &kept.has_ended)
            {
                now.written = kept.written;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_trust::{Field, Layer, Origin};

    /// A holder's filter is evaluated on the packet as shown, which is another right than one on the true
    /// packet, whatever both are written like.
    #[test]
    fn filters_of_a_root_and_of_a_holder_are_different_rights() {
        let rights =
            |origin| Layer::new(origin, Field::Select, "not host 10.0.0.1".to_owned()).unwrap().rights;
        let texts =
            [Origin::Policy { line: 1 }, Origin::Command].map(|origin| rights_in_state(&rights(origin)));
        assert_ne!(texts[0], texts[1]);
        assert!(texts.iter().all(|text| text.contains("10.0.0.1")), "{texts:?}");
    }
}
