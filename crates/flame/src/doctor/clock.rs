use super::{Finding, Machine};

const PLACE: &str = "sys/devices/system/clocksource/clocksource0";
/// Clocks that are read without a call of the kernel.
const FAST: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"];

/// Examines the clock by which the kernel stamps packets.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let Some(current) = machine.read(&format!("{PLACE}/current_clocksource")) else { return Vec::new() };
    let available = machine.read(&format!("{PLACE}/available_clocksource")).unwrap_or_default();
    if FAST.contains(&current.as_str()) {
        return vec![Finding::good("clock", format!("{current}, which is fast to read"))];
    }
    let better = available.split(' ').find(|name| FAST.contains(name));
    let remedy = match better {
        Some(better) => format!("echo {better} > /{PLACE}/current_clocksource"),
        None => "use a machine whose processor clock is stable, or --hardware-timestamps".to_owned(),
    };
    vec![Finding::warning("clock", format!("{current}, which is slow to read and costs packets"), remedy)]
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_slow_clock_has_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(PLACE);
        std::fs::create_dir_all(&place).unwrap();
        let of = |current: &str| {
            std::fs::write(place.join("available_clocksource"), "hpet tsc acpi_pm\n").unwrap();
            std::fs::write(place.join("current_clocksource"), current).unwrap();
            examine(&Machine::at(folder.path())).remove(0)
        };
        assert_eq!(of("tsc\n").state, State::Good);
        let slow = of("hpet\n");
        assert_eq!(slow.state, State::Warning);
        assert!(slow.remedy.unwrap().starts_with("echo tsc > "));
    }
}
