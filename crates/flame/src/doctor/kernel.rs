use super::{Finding, Machine};

/// The oldest version of Linux that the README promises.
const LEAST: (u32, u32) = (5, 9);

/// Examines the kernel: its version, and what confines the compiler's and the modules' processes.
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(release) = machine.read("proc/sys/kernel/osrelease") {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        findings.push(match version >= LEAST {
            true => Finding::good("kernel", format!("Linux {release}")),
            false => Finding::missing("kernel", format!("Linux {release}"), "update to Linux 5.9 or later"),
        });
    }
    let modules = machine.read("sys/kernel/security/lsm");
    findings.push(match modules {
        Some(list) if list.split(',').any(|name| name == "landlock") => {
            Finding::good("landlock", "confined processes have no files")
        }
        Some(_) => Finding::warning(
            "landlock",
            "off: confined processes rely on seccomp alone",
            "add landlock to lsm= on the kernel's command line (Linux 5.13 or later)",
        ),
        None => Finding::warning(
            "landlock",
            "not known: /sys/kernel/security is not mounted",
            "mount -t securityfs securityfs /sys/kernel/security",
        ),
    });
    findings.push(match machine.read("proc/sys/kernel/seccomp/actions_avail") {
        Some(actions) if actions.split(' ').any(|action| action == "kill_process") => {
            Finding::good("seccomp", "confined processes have few system calls")
        }
        _ => Finding::missing(
            "seccomp",
            "off: modules cannot be compiled",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    });
    if machine.read("proc/sys/net/core/bpf_jit_enable").as_deref() == Some("0") {
        let (found, remedy) = ("off: the kernel's own filters are slow", "sysctl net.core.bpf_jit_enable=1");
        findings.push(Finding::warning("BPF compiler", found, remedy));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let states = || examine(&Machine::at(folder.path())).iter().map(|f| f.state).collect::<Vec<_>>();
        assert_eq!(states(), [State::Warning, State::Missing], "nothing is readable");
        write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        write("sys/kernel/security/lsm", "lockdown,capability,landlock,yama\n");
        write("proc/sys/kernel/seccomp/actions_avail", "kill_process kill_thread trap errno\n");
        assert_eq!(states(), [State::Good; 3]);
        write("proc/sys/kernel/osrelease", "4.19.0\n");
        write("sys/kernel/security/lsm", "capability\n");
        write("proc/sys/net/core/bpf_jit_enable", "0\n");
        assert_eq!(states(), [State::Missing, State::Warning, State::Good, State::Warning]);
    }
}
