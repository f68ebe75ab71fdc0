//! The processor time of a process, as the kernel's deadline scheduler guarantees it to its main thread.

use flame_confine::{Slice, give_time};
use flame_plan::Share;
use std::io;

/// The period in which a process has its time: short beside the time that packets wait in their buffers, and
/// long beside a switch of threads.
const PERIOD_NS: u64 = 10_000_000;
/// The least time that the kernel accepts.
const LEAST_NS: u64 = 1 << 10;

/// Gives a process the sum of `shares`. One without shares ends with its last module, and so does its time.
pub(super) fn schedule<'a>(pid: u32, shares: impl Iterator<Item = &'a Share>) -> io::Result<()> {
    let Some(slice) = slice(shares) else { return Ok(()) };
    if slice.slice_ns > slice.period_ns {
        return Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            "the modules of a principal on one source share a thread, which has one processor",
        ));
    }
    give_time(pid, slice)
}

fn slice<'a>(shares: impl Iterator<Item = &'a Share>) -> Option<Slice> {
    let of = |share: &Share| {
        u128::from(share.slice_ns) * u128::from(PERIOD_NS) / u128::from(share.period_ns.max(1))
    };
    let sum = shares.map(of).reduce(u128::saturating_add)?;
    let slice_ns = u64::try_from(sum).unwrap_or(u64::MAX).max(LEAST_NS);
    Some(Slice { slice_ns, period_ns: PERIOD_NS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_period_are_added() {
        let share = |slice_ns, period_ns| Share { slice_ns, period_ns };
        let sum = |shares: &[Share]| slice(shares.iter()).map(|slice| slice.slice_ns);
        assert_eq!(sum(&[]), None);
        assert_eq!(sum(&[share(20_000_000, 100_000_000), share(1, 10)]), Some(3_000_000));
        assert_eq!(sum(&[share(1, u64::MAX)]), Some(LEAST_NS));
        assert_eq!(sum(&[share(u64::MAX, 1), share(u64::MAX, 0)]), Some(u64::MAX));
        let error = schedule(1, [share(3, 4), share(1, 2)].iter()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }
}
