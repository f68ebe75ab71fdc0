//! The state of a process in the kernel, and the limits that the kernel enforces.

use super::state::State;
use flame_plan::limits::{PROCESS_MEMORY_BASE, PROCESS_MEMORY_UNCOUNTED};
use nix::time::{ClockId, clock_gettime};
use rustix::process::{Pid, Resource, Rlimit};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Returns the bytes of private memory that a process with `modules` may need. Modules under one grant share
/// the memory of the grant.
pub(super) fn memory<'a>(modules: impl Iterator<Item = &'a State>) -> u64 {
    let mut grants: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
    let mut total = PROCESS_MEMORY_BASE;
    for state in modules {
        let links = state.meters.links();
        let grant = links.first().filter(|_| state.meters.granted());
        let shared =
            grants.entry(grant.map(|link| link.id)).or_insert((0, grant.map_or(u64::MAX, |l| l.memory)));
        shared.0 = shared.0.saturating_add(state.memory.linear);
        total = total.saturating_add(state.memory.other);
    }
    grants.values().fold(total, |total, (needed, most)| total.saturating_add(*needed.min(most)))
}

fn pid(id: u32) -> io::Result<Pid> {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("no process has this number"))
}

/// Limits the private writable memory of a process. It cannot change the limit itself.
pub(super) fn limit_memory(id: u32, bytes: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Data).maximum;
    let current = Some(maximum.map_or(bytes, |maximum| maximum.min(bytes)));
    rustix::process::prlimit(Some(pid(id)?), Resource::Data, Rlimit { current, maximum })?;
    Ok(())
}

/// Returns the processor time of all threads of a process, unless it is gone and was reaped.
pub(super) fn processor_time(id: u32) -> Option<Duration> {
    // The number of a process's clock is the complement of its own, with the bit for scheduled time.
    time_of(i32::try_from(id).ok().filter(|id| *id > 0)?, 2)
}

/// Returns the processor time of a thread of this process, unless it is gone.
pub(super) fn thread_time(id: u64) -> Option<Duration> {
    // As above, with the bit for one thread.
    time_of(i32::try_from(id).ok().filter(|id| *id > 0)?, 6)
}

fn time_of(id: i32, bits: i32) -> Option<Duration> {
    let now = clock_gettime(ClockId::from_raw((!id << 3) | bits)).ok()?;
    Some(Duration::new(now.tv_sec().try_into().ok()?, now.tv_nsec().try_into().ok()?))
}

/// The memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// Its own alone, in memory and swapped out.
    pub(super) private: u64,
    /// The kernel's tables of its pages, which no limit of the kernel counts.
    tables: u64,
}

/// Returns the memory of a process, unless it is gone.
pub(super) fn memory_of(id: u32) -> Option<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    Some(Memory { private: field("RssAnon:") + field("VmSwap:"), tables: field("VmPTE:") })
}

/// The memory that a process may have in all, whatever the kernel's own limit counts.
#[derive(Debug, Default)]
pub(super) struct MemoryLimit {
    limit: u64,
    /// Its memory when the limit became smaller, if that was more.
    kept: u64,
}

impl MemoryLimit {
    /// Sets the limit. A process that has more keeps it.
    pub(super) fn set(&mut self, limit: u64, now: Memory) {
        self.kept = now.sum().min(self.most());
        self.limit = limit;
    }

    fn most(&self) -> u64 {
        self.limit.saturating_add(self.limit / 64).saturating_add(PROCESS_MEMORY_UNCOUNTED).max(self.kept)
    }

    /// Compares what a process has with the limit.
    ///
    /// # Errors
    ///
    /// Returns the reason to end the process, if it has more.
    pub(super) fn check(&mut self, now: Memory) -> Result<(), String> {
        let (has, most) = (now.sum(), self.most());
        if has > most {
            let tables = now.tables;
            return Err(format!(
                "it had {has} bytes of memory, {tables} for its page tables, of at most {most}"
            ));
        }
        self.kept = self.kept.min(has);
        Ok(())
    }
}

impl Memory {
    fn sum(&self) -> u64 {
        self.private.saturating_add(self.tables)
    }
}

/// The times for which a thread has worked, and waited for a processor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheduled {
    pub(super) worked: Duration,
    pub(super) waited: Duration,
}

/// Returns the times of the first thread of a process, unless the process is gone.
pub(super) fn scheduled(id: u32) -> Option<Scheduled> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
    let mut fields = stat.split_ascii_whitespace();
    let mut time = || fields.next()?.parse().ok().map(Duration::from_nanos);
    Some(Scheduled { worked: time()?, waited: time()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn processor_time_grows_with_work() {
        let begin = processor_time(std::process::id()).unwrap();
        let start = Instant::now();
        while processor_time(std::process::id()).unwrap() < begin + Duration::from_millis(50) {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(processor_time(u32::MAX), None);
    }

    #[test]
    fn a_smaller_limit_leaves_what_a_process_has() {
        let of = |private, tables| Memory { private, tables };
        let mut memory = MemoryLimit::default();
        memory.set(640 << 20, of(1 << 20, 0));
        memory.check(of(600 << 20, 70 << 20)).unwrap();
        assert!(memory.check(of(600 << 20, 90 << 20)).unwrap_err().contains("page tables"));
        memory.set(64 << 20, of(500 << 20, 0));
        memory.check(of(500 << 20, 0)).unwrap();
        // What it gave back it does not get again.
        memory.check(of(90 << 20, 0)).unwrap();
        memory.check(of(98 << 20, 0)).unwrap_err();
        assert!(memory_of(std::process::id()).unwrap().private > 0);
        assert!(memory_of(u32::MAX).is_none());
    }
}
