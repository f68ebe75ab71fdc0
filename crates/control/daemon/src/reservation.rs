//! The limits of one reservation: the grant allows it, a meter of its own enforces it.

use crate::source::SourceRun;
use flame_api::{Code, Problem, Reservation};
use flame_plan::Share;
use flame_quota::{Amounts, Meter, Meters, Quota, ThisRun};
use std::sync::Arc;

/// The blocks that may wait for one module on each worker.
pub(crate) const BLOCKS_PER_WORKER: u64 = 4;
/// The period in which a module gets the processor time that it reserved.
const PERIOD_NS: u64 = 100_000_000;

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
