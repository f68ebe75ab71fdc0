//! A confined process reaches no file and no network by Landlock alone, without a filter of system calls.

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Command;

const PARENT: &str = "FLAME_TEST_PARENT";

/// The confined process of the other test, which states its parent in FLAME_TEST_PARENT.
#[test]
#[ignore = "another test runs it in a process of its own"]
fn confined() {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|id| id.parse().ok()) else { return };
    assert!(File::open("/etc/passwd").is_ok() && TcpListener::bind("127.0.0.1:0").is_ok());
    flame_confine::begin(parent).unwrap();
    assert!(File::open("/etc/passwd").is_ok());
    flame_confine::end().unwrap();
    let denied = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
    assert!(File::open("/etc/passwd").is_err_and(denied), "a file is read");
    assert!(File::create("/tmp/flame-confined").is_err_and(denied), "a file is made");
    assert!(std::fs::read_dir("/").is_err_and(denied), "a folder is listed");
    assert!(Command::new("/bin/true").status().is_err_and(denied), "a program is started");
    let bound = TcpListener::bind("127.0.0.1:0");
    assert!(bound.is_err_and(denied), "a port is bound");
}

/// Returns whether the kernel has Landlock with rules for networks.
fn has_landlock() -> bool {
    use landlock::{ABI, Access, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr};
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessNet::from_all(ABI::V4)).and_then(Ruleset::create).is_ok()
}

#[test]
fn a_confined_process_reaches_no_file_and_no_network() {
    if !has_landlock() {
        eprintln!("skipped: this kernel has no Landlock, or an older one");
        return;
    }
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "confined", "--nocapture"])
        .env(PARENT, std::process::id().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
