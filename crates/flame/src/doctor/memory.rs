use super::{Finding, Machine};

/// The memory of the kernel's ring for one worker, in KiB (`LiveOptions`): 64 blocks of 1 MiB.
const RING_KIB: u64 = 64 << 10;

/// Examines whether the kernel's rings fit memory, and the limit of locked memory.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let kib = |text: String| text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let mut findings = Vec::new();
    if let Some(available) = machine.value("proc/meminfo", "MemAvailable").and_then(kib) {
        let mib = available >> 10;
        findings.push(match available / RING_KIB {
            0 | 1 => Finding::warning(
                "memory",
                format!("{mib} MiB available; the ring of each worker has 64 MiB"),
                "end other programs, or capture with --workers 1",
            ),
            rings => {
                Finding::good("memory", format!("{mib} MiB available: rings of {rings} workers at most"))
            }
        });
    }
    if let Some(line) = limit(machine) {
        findings.push(Finding::good("locked memory", format!("limit {line}; rings do not count against it")));
    }
    findings
}

/// Returns the soft limit of locked memory.
fn limit(machine: &Machine) -> Option<String> {
    let text = machine.read("proc/self/limits")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let words: Vec<_> = line.split_whitespace().collect();
    match words[..] {
        ["unlimited", ..] => Some("unlimited".to_owned()),
        [bytes, ..] => Some(format!("{} MiB", bytes.parse::<u64>().ok()? >> 20)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn rings_must_fit_memory() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc/self");
        std::fs::create_dir_all(&proc).unwrap();
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax locked memory    8388608  8388608   bytes\n";
        std::fs::write(proc.join("limits"), limits).unwrap();
        let of = |available: u64| {
            let text = format!("MemTotal: 99 kB\nMemAvailable:   {available} kB\n");
            std::fs::write(folder.path().join("proc/meminfo"), text).unwrap();
            examine(&Machine::at(folder.path()))
        };
        assert_eq!(of(100 << 10)[0].state, State::Warning);
        let good = of(1 << 20);
        assert_eq!((good[0].state, good[0].found.contains("16 workers")), (State::Good, true));
        assert!(good[1].found.contains("8 MiB"), "{good:?}");
    }
}
