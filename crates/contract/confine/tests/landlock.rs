//! A confined process reaches no file and no network by Landlock alone, without a filter of system calls.

use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;

const PARENT: &str = "FLAME_TEST_PARENT";

/// The confined process of the other test, which states its parent in FLAME_TEST_PARENT.
#[test]
#[ignore = "another test runs it in a process of its own"]
fn confined() {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|id| id.parse().ok()) else { return };
    assert!(File::open("/etc/passwd").is_ok() && TcpListener::bind("127.0.0.1:0").is_ok());
    flame_confine::begin(parent).unwrap();
    // In the network of this process, so that it is not out of reach for another reason.
    let address = SocketAddr::from_abstract_name(format!("flame-confine-{parent}")).unwrap();
    let _listens = UnixListener::bind_addr(&address).unwrap();
    assert!(UnixStream::connect_addr(&address).is_ok());
    assert!(File::open("/etc/passwd").is_ok());
    flame_confine::end().unwrap();
    let denied = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
    assert!(File::open("/etc/passwd").is_err_and(denied), "a file is read");
    assert!(File::create("/tmp/flame-confined").is_err_and(denied), "a file is made");
    assert!(std::fs::read_dir("/").is_err_and(denied), "a folder is listed");
    assert!(Command::new("/bin/true").status().is_err_and(denied), "a program is started");
    let bound = TcpListener::bind("127.0.0.1:0");
    assert!(bound.is_err_and(denied), "a port is bound");
    assert!(TcpStream::connect("127.0.0.1:9").is_err_and(denied), "a connection is made");
    if has(ABI::V6) {
        let reached = UnixStream::connect_addr(&address);
        assert!(reached.is_err_and(denied), "a socket is reached that was there before");
        let parent = rustix::process::Pid::from_raw(i32::try_from(parent).unwrap()).unwrap();
        let signalled = rustix::process::kill_process(parent, rustix::process::Signal::CONT);
        assert_eq!(signalled, Err(rustix::io::Errno::PERM), "another process gets a signal");
    }
}

/// Returns whether the kernel has this version of Landlock.
fn has(abi: ABI) -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let all =
        strict.handle_access(AccessFs::from_all(abi)).and_then(|r| r.handle_access(AccessNet::from_all(abi)));
    let all = if abi >= ABI::V6 { all.and_then(|r| r.scope(Scope::from_all(abi))) } else { all };
    all.and_then(Ruleset::create).is_ok()
}

#[test]
fn a_confined_process_reaches_no_file_and_no_network() {
    if !has(ABI::V4) {
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
