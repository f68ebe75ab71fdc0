//! Properties of the machine, as it reports them.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use wasmtime::Engine;

/// The version of the measurements. It increases whenever they would yield other numbers on the same machine.
const GENERATION: u32 = 1;

/// Maximum length of a name, in characters.
pub const MAX_NAME: usize = 200;

/// Returns the processor's model, or its architecture if the model is unknown.
pub fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model(&info).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn model(info: &str) -> Option<String> {
    let (_, rest) = info.lines().find(|l| l.starts_with("model name"))?.split_once(':')?;
    let printable: String = rest.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    let name = printable.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns Wasmtime with its version and settings, and the version of the measurements.
pub fn engine(engine: &Engine) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("wasmtime {:016x}, calibration {GENERATION}", hasher.finish())
}

/// Returns the memory in bytes that this process can obtain, or `None` if the machine does not report it.
pub fn memory_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok();
    let free = info.as_deref().and_then(available);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    free.into_iter().chain(group).min()
}

fn available(info: &str) -> Option<u64> {
    let rest = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns a power of two in bytes as text for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_writes_is_understood() {
        assert_eq!(model("processor\t: 0\nmodel name\t: AMD  EPYC: 9\n").as_deref(), Some("AMD  EPYC: 9"));
        assert_eq!(model("model name\t:  \n"), None);
        assert_eq!(model("Processor: x\n"), None);
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:     12 kB\n"), Some(12 << 10));
        assert_eq!(available("MemAvailable: 99999999999999999999 kB\n"), None);
        assert_eq!(available("MemAvailable: 18446744073709551615 kB\n"), None);
        assert!(!cpu().is_empty());
    }
}
