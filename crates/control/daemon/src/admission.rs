//! Admission of reservations by the ledger, and of modules to their sources.

use crate::build::Prepared;
use crate::config::Scheduler;
use crate::engine::Engine;
use crate::error::of_source;
use crate::life::Key;
use crate::reservation::{BLOCKS_PER_WORKER, share};
use crate::reserve::less;
use crate::source::{SourceRun, SourceRunError};
use crate::store::Owner;
use flame_api::{Capacity, Code, Problem, Reservation};
use flame_plan::{Account, ModuleId, ModulePlan, Share};
use flame_worker::{Module, RunError};
use std::io::ErrorKind;

/// The beginning of notes about reservations.
pub(crate) const RESERVED: &str = "reserved";
const GUARANTEED: &str = "processor time is guaranteed by the kernel's scheduler";
const LIMITED: &str = "processor time is a limit only: the kernel guarantees none here";

/// A reservation that is given back when this value is dropped, unless it is kept.
pub(crate) struct Reserving<'a> {
    engine: &'a Engine,
    key: Key,
    before: Option<Reservation>,
    /// The arithmetic by which it was admitted.
    pub notes: Vec<String>,
}

impl Reserving<'_> {
    pub fn keep(mut self) {
        self.before = None;
    }
}

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.engine.modules().ledger.restore(&self.key, before);
        }
    }
}

impl Engine {
    /// Reserves what a module asks for, in place of what it has.
    pub(crate) fn reserve(
        &self,
        key: &Key,
        want: &Reservation,
        source: &SourceRun,
    ) -> Result<Reserving<'_>, Problem> {
        let most = BLOCKS_PER_WORKER * u64::from(source.config.workers);
        if want.blocks > most || (want.blocks > 0 && want.blocks < source.config.workers.into()) {
            let workers = source.config.workers;
            return Err(Problem::new(
                Code::Invalid,
                format!("{} blocks on source {}, which has {workers} workers", want.blocks, source.name),
                format!("reserve {workers} to {most} blocks: 1 to {BLOCKS_PER_WORKER} for each worker"),
            ));
        }
        let ledger = &mut self.modules().ledger;
        let before = ledger.get(key);
        let admitted = match key.0.is_operator() {
            true => ledger.admit(key, want),
            false => {
                let tenant = key.0.tenant();
                ledger.admit_own(key, want, |(of, _)| of.tenant() == tenant)
            }
        };
        match admitted {
            Ok(lines) => {
                let notes = lines.into_iter().map(|line| format!("{RESERVED} {line}")).collect();
                Ok(Reserving { engine: self, key: key.clone(), before: Some(before), notes })
            }
            Err(lines) => Err(Problem::new(
                Code::TooLarge,
                format!("the reservation does not fit: {}", lines.join("; ")),
                "reserve less, or ask the operator for more ([capacity] in node.toml)",
            )),
        }
    }

    /// Lets the kernel guarantee the processor time that a module in a process has reserved. Returns a note
    /// for its owner.
    pub(crate) fn guarantee(
        &self,
        source: &SourceRun,
        plan: &ModulePlan,
        reserved: &Reservation,
    ) -> Result<Option<String>, Problem> {
        let scheduler = self.config().isolation.scheduler;
        let share = share(reserved);
        if plan.process.is_none() || share.is_none() || scheduler == Scheduler::Fair {
            return Ok(None);
        }
        match source.reserve(plan.id, share) {
            Ok(()) => Ok(Some(format!("{RESERVED} {GUARANTEED}"))),
            Err(SourceRunError::Run(RunError::Time(e)))
                if scheduler == Scheduler::Auto && e.kind() == ErrorKind::PermissionDenied =>
            {
                Ok(Some(format!("{RESERVED} {LIMITED}")))
            }
            Err(e) => Err(of_source(&e)),
        }
    }

    /// Returns the processor time that the kernel has to guarantee before a module runs.
    pub(crate) fn time_of(&self, plan: &ModulePlan, reserved: &Reservation) -> Option<Share> {
        let is_apart = plan.process.is_some() && self.config().isolation.scheduler != Scheduler::Fair;
        share(reserved).filter(|_| is_apart)
    }

    /// Runs a prepared module on its source, in place of `old` if there is one, with the processor time that
    /// it has reserved. Returns the account of `old`, and a note for the module's owner. If this fails, the
    /// module did not run.
    pub(crate) fn run_on(
        &self,
        source: &SourceRun,
        prepared: &mut Prepared,
        old: Option<ModuleId>,
    ) -> Result<(Account, Option<String>), Problem> {
        let Prepared { module, granted, .. } = prepared;
        let run = |module: &Module| match old {
            Some(old) => source.replace(old, module),
            None => source.add(module).map(|()| Account::default()),
        };
        let mut note = module.time.map(|_| GUARANTEED);
        let mut started = run(module);
        if let Err(SourceRunError::Run(RunError::Time(e))) = &started
            && self.config().isolation.scheduler == Scheduler::Auto
            && e.kind() == ErrorKind::PermissionDenied
        {
            (module.time, note) = (None, Some(LIMITED));
            started = run(module);
        }
        if !matches!(&started, Err(e) if !matches!(e, SourceRunError::Run(RunError::Ended))) {
            granted.iter().for_each(|granted| granted.entered.runs());
        }
        let account = started.map_err(|e| of_source(&e))?;
        Ok((account, note.map(|note| format!("{RESERVED} {note}"))))
    }

    /// Returns what can be reserved, as a session sees it: a principal sees its own limit.
    pub fn capacity(&self, owner: &Owner) -> Capacity {
        let ledger = &self.modules().ledger;
        let own = ledger.reserved_by(|(of, _)| of == owner);
        if !owner.is_operator() {
            // The sums of others are not its concern.
            let tenant = owner.tenant();
            let (capacity, reserved) =
                (ledger.per_principal(), ledger.reserved_by(|(of, _)| of.tenant() == tenant));
            return Capacity { capacity, reserved, free: less(&capacity, &reserved), own };
        }
        Capacity { capacity: ledger.capacity(), reserved: ledger.reserved(), free: ledger.free(), own }
    }
}
