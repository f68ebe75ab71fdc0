use super::{Finding, Machine};

/// The number of the capability CAP_NET_RAW.
const NET_RAW: u32 = 13;

/// Examines whether this process may open packet sockets.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let Some(effective) = machine.value("proc/self/status", "CapEff") else {
        return vec![Finding::warning(
            "rights",
            "/proc/self/status is not readable",
            "mount -t proc proc /proc",
        )];
    };
    let bits = u64::from_str_radix(&effective, 16).unwrap_or(0);
    if bits >> NET_RAW & 1 == 1 {
        return vec![Finding::good("rights", "CAP_NET_RAW: interfaces can be captured")];
    }
    let program = std::env::current_exe().map_or("flame".to_owned(), |path| path.display().to_string());
    let remedy = format!("run as root, or once: setcap cap_net_raw=ep {program}");
    vec![Finding::missing("rights", "no CAP_NET_RAW: interfaces cannot be captured, files can", remedy)]
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, State};
    use super::*;

    #[test]
    fn the_capability_decides() {
        let folder = tempfile::tempdir().unwrap();
        let state = |capabilities: &str| {
            std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
            std::fs::write(folder.path().join("proc/self/status"), capabilities).unwrap();
            examine(&Machine::at(folder.path())).remove(0)
        };
        assert_eq!(state("Name:\tflame\nCapEff:\t0000000000002000\n").state, State::Good);
        let missing = state("Name:\tflame\nCapEff:\t0000000000001000\n");
        assert_eq!(missing.state, State::Missing);
        assert!(missing.remedy.unwrap().contains("setcap cap_net_raw=ep"));
        assert_eq!(examine(&Machine::at(&folder.path().join("none")))[0].state, State::Warning);
    }
}
