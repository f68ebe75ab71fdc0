//! Reservations of modules: admitted by the ledger, limited by the source and the grant, and enforced by a
//! meter of their own.

use crate::build::Prepared;
use crate::config::Scheduler;
use crate::engine::{Engine, Entry, Key, held};
use crate::error::of_source;
use crate::reserve::less;
use crate::source::{SourceRun, SourceRunError};
use crate::store::Owner;
use flame_api::{Capacity, Code, Problem, Reservation};
use flame_plan::{ModulePlan, Share};
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun};
use flame_worker::RunError;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

/// The blocks that may wait for one module on each worker.
const BLOCKS_PER_WORKER: u64 = 4;
/// The beginning of notes about reservations.
pub(crate) const RESERVED: &str = "reserved";
/// The period in which a module gets the processor time that it reserved.
const PERIOD_NS: u64 = 100_000_000;

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
            held(&self.engine.ledger).restore(&self.key, before);
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
        let mut ledger = held(&self.ledger);
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
            Ok(()) => Ok(Some(format!("{RESERVED} processor time is guaranteed by the kernel's scheduler"))),
            Err(SourceRunError::Run(RunError::Time(e)))
                if scheduler == Scheduler::Auto && e.kind() == ErrorKind::PermissionDenied =>
            {
                Ok(Some(format!(
                    "{RESERVED} processor time is a limit only: the kernel guarantees none here"
                )))
            }
            Err(e) => Err(of_source(&e)),
        }
    }

    /// Runs a prepared module on its source, with the processor time that it has reserved. Returns a note for
    /// its owner. If this fails, the source has nothing of the module.
    pub(crate) fn launch(
        &self,
        source: &SourceRun,
        prepared: &Prepared,
        entry: &Entry,
    ) -> Result<Option<String>, Problem> {
        let plan = &prepared.module.plan;
        prepared.route(source, entry);
        let added = source.add(&prepared.module).map_err(|e| of_source(&e));
        let run = added.and_then(|()| {
            self.guarantee(source, plan, &entry.stored.reserved).inspect_err(|_| {
                source.remove(plan.id);
            })
        });
        run.inspect_err(|_| prepared.unroute(source))
    }

    /// Ends a change of a module. If it does not run then, it has no reservation.
    pub(crate) fn end_change(&self, key: &Key) {
        let modules = self.modules();
        held(&self.changing).remove(key);
        self.release_idle(&modules, key);
    }

    fn release_idle(&self, modules: &BTreeMap<Key, Entry>, key: &Key) {
        if modules.get(key).is_none_or(|entry| entry.live.is_none()) {
            held(&self.ledger).release(key);
        }
    }

    /// Returns what can be reserved, as a session sees it: a principal sees its own limit.
    pub fn capacity(&self, owner: &Owner) -> Capacity {
        let ledger = held(&self.ledger);
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

/// Checks that a grant allows what is reserved.
pub(crate) fn check_grant(want: &Reservation, meters: &Meters) -> Result<(), Problem> {
    let (share, memory) = meters.limits();
    let ppm = |share: Share| {
        let ppm = u128::from(share.slice_ns) * 1_000_000 / u128::from(share.period_ns.max(1));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    };
    let share = share.map_or(u64::MAX, ppm);
    let exceeded = match () {
        () if want.cpu_ppm > share => format!("{} ppm of a processor, it allows {share}", want.cpu_ppm),
        () if want.memory > memory => format!("{} bytes of memory, it allows {memory}", want.memory),
        () => return Ok(()),
    };
    Err(Problem::new(
        Code::Forbidden,
        format!("the reservation is wider than the grant: {exceeded}"),
        "reserve less, or ask for a wider credential (cpu, memory)",
    ))
}

/// Returns the processor time that is reserved, if any is.
pub(crate) fn share(reserved: &Reservation) -> Option<Share> {
    let slice_ns = u128::from(reserved.cpu_ppm) * u128::from(PERIOD_NS) / 1_000_000;
    let slice_ns = u64::try_from(slice_ns).unwrap_or(u64::MAX).max(1);
    (reserved.cpu_ppm > 0).then_some(Share { slice_ns, period_ns: PERIOD_NS })
}

/// Returns the meter that limits a module to what it reserved, or `None` if there is nothing to limit.
pub(crate) fn meter(reserved: &Reservation) -> Option<Arc<Meter>> {
    let Reservation { cpu_ppm, memory, record_bytes, .. } = *reserved;
    if cpu_ppm == 0 && memory == 0 && record_bytes == 0 {
        return None;
    }
    let or_all = |n: u64| if n == 0 { u64::MAX } else { n };
    let quota = Quota {
        per_second: Amounts { bytes: or_all(record_bytes), ..Amounts::MAX },
        per_packet: Amounts::default(),
        share: share(reserved),
        memory: or_all(memory),
    };
    Some(Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota)))))
}

/// Returns the number of blocks that may wait for a module on each worker, or 0 for all that exist.
pub(crate) fn buffer(reserved: &Reservation, source: &SourceRun) -> u32 {
    (reserved.blocks / u64::from(source.config.workers.max(1))).min(BLOCKS_PER_WORKER) as u32
}
