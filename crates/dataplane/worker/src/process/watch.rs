//! The processor time of a process, as the kernel measures it: it counts in the meters of its modules, and a
//! process that uses more than their grants allow is ended.
//!
//! A meter belongs to a credential, not to a process: those who share a credential have its time together, in
//! whatever processes they run. When a meter is used up, all its modules are held until it has time again: no
//! block reaches them, and their processes make no call. A process that works on is ended.

use super::process_state::Life;
use flame_plan::limits::{HELD_LOAD_MAX, HELD_NOTICE, HELD_USE, USE_EXCESS, USE_SLACK, USE_WINDOW};
use flame_quota::Link;
use flame_remote::Command;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Watch {
    /// The beginning of the window, and the processor time at that moment.
    window: Option<(Instant, Duration)>,
    held: Held,
    /// Whether a module has a share.
    is_shared: bool,
}

/// The time that a process uses while all its modules are held.
#[derive(Default)]
struct Held {
    /// The time of the last decision, and the processor time then.
    last: Option<(Instant, Duration)>,
    /// The number of decisions since all were held.
    decisions: u32,
    excess: Duration,
}

impl Held {
    /// Counts the time since the last call. `are_held` states whether all modules were held since then.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the process.
    fn count(&mut self, (now, used): (Instant, Duration), are_held: bool, loads: u64) -> Result<(), String> {
        let (at, before) = self.last.replace((now, used)).unwrap_or((now, used));
        self.decisions = if are_held { self.decisions.saturating_add(1) } else { 0 };
        if self.decisions > HELD_NOTICE {
            self.excess += used.saturating_sub(before);
        }
        let loads = HELD_LOAD_MAX.saturating_mul(u32::try_from(loads).unwrap_or(u32::MAX));
        let allowed = (now - at).mul_f64(HELD_USE).saturating_add(loads);
        self.excess = self.excess.saturating_sub(allowed);
        match self.excess > USE_SLACK {
            true => Err("it worked although its modules had used up their processor time".to_owned()),
            false => Ok(()),
        }
    }
}

impl Watch {
    /// Returns whether a module had a share at the last decision.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Charges the time since the last call, and decides which modules have time left. Returns the commands
    /// for those for which that has changed.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the process.
    pub(super) fn decide(&mut self, life: &Life) -> Result<Vec<Command>, String> {
        let modules = life.modules();
        self.is_shared = modules.iter().any(|state| state.meters.limits().0.is_some() || state.is_held());
        if !self.is_shared {
            self.held = Held::default();
            return Ok(Vec::new());
        }
        let Some(used) = life.charge() else { return Ok(Vec::new()) };
        let are_held = modules.iter().all(|state| state.is_held() && !state.is_ending());
        self.held.count((Instant::now(), used), are_held, life.take_entered())?;
        let mut commands = Vec::new();
        for state in modules {
            // The kernel keeps to a reservation, whose meter is the last.
            let has_time = match life.has_reserved(state.id) {
                true => state.meters.may_begin_without_last(),
                false => state.meters.may_begin(),
            };
            if state.hold(!has_time) {
                commands.push(Command::Hold { module: state.id, holds: !has_time });
            }
        }
        Ok(commands)
    }

    /// Charges the time since the last call, and compares the use with the grants.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the process.
    pub(super) fn check(&mut self, life: &Life) -> Result<(), String> {
        life.count_memory()?;
        let Some(used) = life.charge() else { return Ok(()) };
        let modules = life.modules();
        let allowed = allowed(modules.iter().map(|state| state.meters.links()));
        let now = Instant::now();
        let Some((since, before)) = self.window else {
            self.window = Some((now, used));
            return Ok(());
        };
        let elapsed = now - since;
        if elapsed < USE_WINDOW {
            return Ok(());
        }
        self.window = Some((now, used));
        let (Some(part), used) = (allowed, used.saturating_sub(before)) else { return Ok(()) };
        let limit = elapsed.mul_f64((part * USE_EXCESS).min(1e3)) + USE_SLACK;
        if used > limit {
            let (used, elapsed) = (used.as_millis(), elapsed.as_millis());
            let percent = part * 100.0;
            return Err(format!(
                "it used {used} ms of processor time in {elapsed} ms, where its grants allow {percent:.1} %"
            ));
        }
        Ok(())
    }
}

/// Returns the part of a processor that modules with these meters may use together, or `None` without limit.
/// Modules share the part of a meter that they have in common: the first one of each that has a share, which
/// is of their credential, and the one with the smallest.
fn allowed(modules: impl Iterator<Item = Vec<Link>>) -> Option<f64> {
    let (mut first, mut least) = (BTreeMap::new(), BTreeMap::new());
    for links in modules {
        let mut parts = links.iter().filter_map(|link| Some((link.id, link.share?.part())));
        let (id, part) = parts.next()?;
        first.insert(id, part);
        let (id, part) = parts.fold((id, part), |least, next| if next.1 < least.1 { next } else { least });
        least.insert(id, part);
    }
    let sum = |parts: BTreeMap<u64, f64>| parts.into_values().sum::<f64>();
    (!first.is_empty()).then(|| sum(first).min(sum(least)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_plan::Share;

    #[test]
    fn a_process_that_works_without_time_is_ended() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        // Uses `part` of a processor for ten seconds.
        let used = |part: f64, are_held: &dyn Fn(u32) -> bool, loads: u64| {
            let mut held = Held::default();
            (0..1000).try_for_each(|n| {
                let at = ms(10) * n;
                held.count((start + at, at.mul_f64(part)), are_held(n), loads)
            })
        };
        assert!(used(1.0, &|_| true, 0).is_err());
        assert!(used(0.1, &|_| true, 0).is_err());
        assert!(used(1.0, &|_| false, 0).is_ok());
        assert!(used(0.02, &|_| true, 0).is_ok());
        assert!(used(1.0, &|_| true, 1).is_ok(), "it loads modules");
        assert!(used(1.0, &|n| n % 4 != 0, 0).is_ok(), "it notices a little later");
    }

    #[test]
    fn a_share_counts_once_for_all_modules_that_have_it_together() {
        let links = |links: &[(u64, u64)]| -> Vec<Link> {
            let share = |percent| (percent > 0).then_some(Share { slice_ns: percent, period_ns: 100 });
            links.iter().map(|(id, percent)| Link { id: *id, share: share(*percent), memory: 0 }).collect()
        };
        let of = |modules: &[&[(u64, u64)]]| allowed(modules.iter().map(|module| links(module)));
        assert_eq!(of(&[&[(1, 25)], &[(1, 25)], &[(2, 50)]]), Some(0.75));
        assert_eq!(of(&[&[(1, 25)], &[(3, 0)]]), None);
        assert_eq!(of(&[]), None);
        // Each module has another meter for its own reservation, of memory or of time.
        assert_eq!(of(&[&[(1, 25), (2, 0)], &[(1, 25), (3, 0)]]), Some(0.25));
        assert_eq!(of(&[&[(1, 25), (2, 20)], &[(1, 25), (3, 20)]]), Some(0.25));
        assert_eq!(of(&[&[(1, 50), (2, 10)], &[(1, 50), (3, 15)]]), Some(0.25));
    }
}
