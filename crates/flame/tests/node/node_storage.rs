//! Tests of what a node stores: it survives `kill -9` at any moment, a full disk and a read-only one.

use crate::daemon::{self, Ended, Node, base64, module, replay, request, wait_for};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The rows of the modules' table, with their ends: name, state and hash.
fn stored(node: &Node) -> Vec<(String, String, String)> {
    let path = node.path("state/node.sqlite");
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let check: String = database.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let all = "SELECT name, COALESCE(ends.state, modules.state), lower(hex(hash))
               FROM modules LEFT JOIN ends USING (root, principal, name) ORDER BY name";
    let mut all = database.prepare(all).unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Changes modules until the node is gone, and returns the last change of each module that was acknowledged
/// and the one that was not.
fn change(
    socket: &Path,
    names: [&str; 2],
    wasm: &[&Value],
    seed: u64,
    stop: &AtomicBool,
) -> Vec<(String, Option<bool>)> {
    let mut known: Vec<(String, Option<bool>)> = names.map(|name| (name.to_owned(), None)).into();
    let mut random = seed | 1;
    while !stop.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = (random >> 8) as usize % known.len();
        let name = known[at].0.clone();
        let (body, path) = (wasm[(random >> 16) as usize % wasm.len()], format!("/v1/modules/{name}"));
        let (changed, is_there) = match (random >> 24) % 4 {
            0 => (request(socket, "DELETE", &path, None), Some(false)),
            1 => (request(socket, "POST", &format!("{path}/stop"), None), None),
            2 => (request(socket, "PUT", &path, Some(body)), None),
            _ => {
                let mut install = body.clone();
                install["name"] = name.clone().into();
                (request(socket, "POST", "/v1/modules", Some(&install)), Some(true))
            }
        };
        match changed {
            Ok((200..300, _)) if is_there.is_some() => known[at].1 = is_there,
            Ok((200..300, _)) => known[at].1 = Some(true),
            Ok(_) => {}
            Err(_) => {
                // Whether it was done is not known.
                known[at].1 = None;
                break;
            }
        }
    }
    known
}

/// FLAME_KILLS sets the number.
#[test]
fn killed_at_any_moment_it_has_what_it_acknowledged() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let kills: u64 = std::env::var("FLAME_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let wasm = [count, flow].map(|path| json!({ "wasm": base64(&std::fs::read(path).unwrap()) }));
    let mut node = Node::new(&replay());
    let socket = node.path("node.sock");
    for round in 0..kills {
        node.start();
        let before = stored(&node);
        let running = node.request("GET", "/v1/modules", None).1;
        let running: Vec<&str> =
            running["modules"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
        let names: Vec<&str> = before.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(running, names, "round {round}: what was stored is there");
        let stop = AtomicBool::new(false);
        let known = std::thread::scope(|scope| {
            // Two clients with modules of their own, which have the same code.
            let (wasm, stop, socket) = ([&wasm[0], &wasm[1]], &stop, &socket);
            let client = |names, seed| scope.spawn(move || change(socket, names, &wasm, seed, stop));
            let clients = [client(["m0", "m1"], round * 7919 + 1), client(["m2", "m3"], round * 104_729 + 2)];
            // From before the first change to a few changes later.
            std::thread::sleep(Duration::from_micros(round * 2_654_435 % 120_000));
            node.kill();
            stop.store(true, Ordering::Relaxed);
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
        });
        let after = stored(&node);
        for (name, is_there) in known {
            let found = after.iter().any(|(stored, ..)| *stored == name);
            assert!(is_there.is_none_or(|expected| expected == found), "round {round}: {name}: {after:?}");
        }
        for (name, _, hash) in &after {
            let code = std::fs::read(node.path(&format!("state/code/{hash}.wasm"))).unwrap();
            let found: String = Sha256::digest(&code).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(found, *hash, "round {round}: the code of {name}");
        }
    }
    node.start();
    node.end();
}

/// The end of the audit log that was there at the last change is known apart from the log.
#[test]
fn an_audit_log_that_was_cut_is_noticed_at_the_start() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    let count = count.display().to_string();
    node.json(&[&["install", &count][..], &as_alice].concat());
    let (log, head, counter) =
        (node.path("audit.log"), node.path("audit.log.head"), node.path("node.key.audit"));
    let files = [&log, &head, &counter].map(|path| std::fs::read(path).unwrap());
    node.json(&[&["install", &count, "--name", "other"][..], &as_alice].concat());
    node.end();
    // Log, head and counter of an earlier time are valid among themselves.
    for (path, bytes) in [&log, &head, &counter].into_iter().zip(files) {
        std::fs::write(path, bytes).unwrap();
    }
    node.run(&["audit", "verify", "--policy", "policy.toml"]);
    node.start();
    assert!(node.said().contains("entries were dropped"), "{}", node.said());
    let notes = node.json(&["node", "status"])["notes"].to_string();
    assert!(notes.contains("entries were dropped"), "{notes}");
    node.end();
}

/// A small disk in a file, unmounted at the end.
struct Disk {
    image: RefCell<PathBuf>,
    at: PathBuf,
}

fn done(program: &str, arguments: &[&str]) -> bool {
    let out = Command::new(program).args(arguments).output();
    out.is_ok_and(|out| out.status.success())
}

impl Disk {
    fn new(folder: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let image = folder.join("disk");
        std::fs::write(&image, vec![0; 24 << 20]).unwrap();
        let is_made = done("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        let disk = Self { image: RefCell::new(image), at: at.to_owned() };
        if !is_made || !disk.mount() {
            eprintln!("skipped: no file system can be made and mounted here (needs root and e2fsprogs)");
            return None;
        }
        Some(disk)
    }

    fn mount(&self) -> bool {
        let (image, at) = (self.image.borrow(), self.at.to_str().unwrap());
        let image = image.to_str().unwrap();
        // Others may not see into the storage.
        done("mount", &["-o", "loop,errors=remount-ro", image, at]) && done("chmod", &["700", at])
    }

    /// Reports an error of the disk to the kernel, which then makes it read-only for all.
    fn fail(&self) {
        let out = Command::new("findmnt").args(["-no", "SOURCE"]).arg(&self.at).output().unwrap();
        let device = daemon::text(&out.stdout).trim().trim_start_matches("/dev/").to_owned();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
    }

    /// Mounts the disk again, as after a repair. A copy of it is repaired: a namespace that another test made
    /// meanwhile has the mount, too, and the device stays as it is until that namespace ends.
    fn mend(&self) {
        assert!(done("umount", &[self.at.to_str().unwrap()]));
        let copy = self.image.borrow().with_added_extension("again");
        std::fs::copy(&*self.image.borrow(), &copy).unwrap();
        std::fs::remove_file(&*self.image.borrow()).unwrap();
        let _ = done("e2fsck", &["-fy", copy.to_str().unwrap()]);
        self.image.replace(copy);
        // The kernel may still have the device of the mount before.
        wait_for("the disk", || self.mount());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        done("umount", &["-l", self.at.to_str().unwrap()]);
    }
}

#[test]
fn a_full_and_a_read_only_disk_refuse_changes_and_end_nothing() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    let at = node.path("state");
    let Some(disk) = Disk::new(node.folder.path(), &at) else { return };
    node.start();
    let body = json!({ "wasm": base64(&std::fs::read(&count).unwrap()) });
    let install = |node: &Node, name: &str| {
        let mut body = body.clone();
        body["name"] = name.into();
        node.request("POST", "/v1/modules", Some(&body))
    };
    assert_eq!(install(&node, "one").0, 201);
    let packets =
        |node: &Node| node.request("GET", "/v1/modules/one", None).1["account"]["offered"].as_u64().unwrap();
    let runs_on = |node: &Node| {
        let before = packets(node);
        wait_for("packets", || packets(node) > before);
    };
    // Full: nothing more fits, neither the database's log nor code.
    let filler = at.join("filler");
    let _ = std::fs::write(&filler, vec![0; 64 << 20]);
    let _ = std::fs::write(at.join("rest"), vec![0; 1 << 20]);
    let start = Instant::now();
    let refused = loop {
        let (code, reply) = install(&node, &format!("m{}", start.elapsed().as_nanos()));
        if code != 201 {
            break (code, reply);
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the disk does not fill up");
    };
    assert_eq!((refused.0, &refused.1["code"]), (507, &json!("storage")), "{}", refused.1);
    assert!(refused.1["remedy"].as_str().unwrap().contains("free space"), "{}", refused.1);
    let (code, health) = node.request("GET", "/v1/health", None);
    assert_eq!(code, 503, "{health}");
    runs_on(&node);
    let listed = node.request("GET", "/v1/modules", None).1["modules"].as_array().unwrap().len();
    // With room again it continues.
    std::fs::remove_file(&filler).unwrap();
    std::fs::remove_file(at.join("rest")).unwrap();
    let (code, reply) = install(&node, "two");
    assert_eq!(code, 201, "{reply}");
    assert_eq!(node.request("GET", "/v1/health", None).0, 200);

    disk.fail();
    let (code, reply) = install(&node, "three");
    assert_eq!((code, &reply["code"]), (507, &json!("storage")), "{reply}");
    let (code, reply) = node.request("DELETE", "/v1/modules/one", None);
    assert_eq!((code, &reply["code"]), (507, &json!("storage")), "{reply}");
    runs_on(&node);
    // Also a node that is started there runs what it had.
    node.kill();
    node.start();
    runs_on(&node);
    assert_eq!(install(&node, "three").0, 507);
    node.kill();
    disk.mend();
    node.start();
    assert_eq!(install(&node, "three").0, 201);
    assert_eq!(node.request("GET", "/v1/modules", None).1["modules"].as_array().unwrap().len(), listed + 2);
    node.kill();
    drop(disk);
}

/// Otherwise nothing could make room there. Whatever becomes free is taken at once by others.
#[test]
fn on_a_full_disk_modules_are_stopped_removed_and_evicted() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&format!("{}[limits]\nmodules = 1000\n", replay()));
    let at = node.path("state");
    let Some(disk) = Disk::new(node.folder.path(), &at) else { return };
    node.mint("alice", &[]);
    node.start();
    let body = json!({ "wasm": base64(&std::fs::read(&count).unwrap()) });
    let install = |node: &Node, name: &str| {
        let mut body = body.clone();
        body["name"] = name.into();
        node.request("POST", "/v1/modules", Some(&body)).0
    };
    let names: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
    names.iter().for_each(|name| assert_eq!(install(&node, name), 201));
    node.json_of("alice", &["install", &count.display().to_string()]);
    let kept = || std::fs::metadata(at.join("reserve")).unwrap().len();
    let all = kept();
    let mut fillers = 0;
    let mut fill = || {
        // Down to the last block, also of those that were free only for a moment.
        for bytes in [64 << 20, 1 << 20, 1 << 12, 1 << 10, 1 << 10] {
            fillers += 1;
            let _ = std::fs::write(at.join(format!("filler{fillers}")), vec![0; bytes]);
        }
        assert!(done("sync", &["-f", at.to_str().unwrap()]));
    };
    let mut expected: Vec<(String, String)> = Vec::new();
    let mut is_refused = false;
    for (n, name) in names.iter().enumerate() {
        fill();
        // It takes what the database and its log have left.
        is_refused |= (0..3).any(|more| install(&node, &format!("x{n}-{more}")) == 507);
        let path = format!("/v1/modules/{name}");
        let (code, reply) = match n % 2 {
            0 => node.request("POST", &format!("{path}/stop"), None),
            _ => node.request("DELETE", &path, None),
        };
        assert_eq!(code, 200, "{name}: {reply}");
        if n % 2 == 0 {
            expected.push((name.clone(), "stopped".to_owned()));
        }
        if n == names.len() / 2 {
            node.run(&["grant", "revoke", "alice.cred", "--policy", "policy.toml"]);
            wait_for("its end", || stored(&node).iter().any(|(_, state, _)| state == "evicted"));
            // A node that is started there can do it as well.
            node.kill();
            fill();
            node.start();
        }
    }
    assert!(is_refused, "the disk was not full");
    expected.push(("count".to_owned(), "evicted".to_owned()));
    expected.sort();
    let mut found: Vec<_> = stored(&node).into_iter().map(|(name, state, _)| (name, state)).collect();
    found.retain(|(name, _)| !name.starts_with('x'));
    assert_eq!(found, expected);
    for n in 0..=fillers {
        let _ = std::fs::remove_file(at.join(format!("filler{n}")));
    }
    assert_eq!(node.request("DELETE", "/v1/modules/m0", None).0, 200);
    wait_for("the space to be kept", || kept() == all);
    node.kill();
    drop(disk);
}

/// A change that the workers refuse, or that cannot be stored once they have taken it, leaves nothing: to
/// undo it, nothing is written.
#[test]
fn a_change_that_fails_on_a_full_disk_is_not_there_after_a_restart() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    // A process waits for its order: to end, or to be a true one.
    let script = "touch \"started.$PPID.$$\"\nuntil [ -f order ]; do sleep 0.05; done\n\
        [ \"$(cat order)\" = run ] || exit 9\nreal \"$@\"";
    let mut node = Node::new(&format!("{}[isolation]\nscheduler = \"auto\"\n", replay())).with_runner(script);
    let Some(disk) = Disk::new(node.folder.path(), &node.path("state")) else { return };
    for name in ["alice", "bob"] {
        node.mint(name, &[]);
    }
    let order = |node: &Node, text: &str| std::fs::write(node.path("order"), text).unwrap();
    let started = |node: &Node| {
        let names = std::fs::read_dir(node.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("started")).count()
    };
    // Runs a change for NAME whose process gets its order only when the disk is read-only.
    let fail = |node: &Node, name: &str, change: &[&str], text: &str| {
        let _ = std::fs::remove_file(node.path("order"));
        let (before, credential, key) = (started(node), format!("{name}.cred"), format!("{name}.key"));
        std::thread::scope(|scope| {
            let all = [change, &["--credential", &credential, "--identity", &key]].concat();
            let changing = scope.spawn(move || node.output(&all));
            wait_for("a process", || started(node) > before);
            // The cache of compiled code is not the subject here.
            assert!(done("sync", &["-f", node.path("state").to_str().unwrap()]));
            disk.fail();
            order(node, text);
            let out = changing.join().unwrap();
            assert!(!out.status.success(), "{change:?}: {}", daemon::text(&out.stdout));
        });
    };
    let restart = |node: &mut Node| {
        node.kill();
        disk.mend();
        order(node, "run");
        node.start();
    };
    let modules =
        |node: &Node| node.request("GET", "/v1/modules", None).1["modules"].as_array().unwrap().clone();
    node.start();
    for text in ["end", "run"] {
        fail(&node, "alice", &["install", &count], text);
        assert!(modules(&node).is_empty(), "{text}");
        restart(&mut node);
        assert!(modules(&node).is_empty(), "{text}: it came back");
    }
    node.json_of("bob", &["install", &count]);
    let of_bob = |node: &Node| node.json(&["show", "count", "--principal", "bob"]);
    for text in ["end", "run"] {
        // With a reservation, it gets another process.
        fail(&node, "bob", &["update", "count", "--reserve", "cpu=1%"], text);
        for is_restarted in [false, true] {
            if is_restarted {
                restart(&mut node);
            }
            let shown = of_bob(&node);
            assert_eq!(
                (&shown["state"], &shown["revision"]),
                (&json!("running"), &json!(1)),
                "{text}: {shown}"
            );
            assert_eq!(shown["reserved"]["cpu_ppm"], 0, "{text}: {shown}");
            let earlier = shown["account"]["processed"].as_u64();
            wait_for("more packets", || of_bob(&node)["account"]["processed"].as_u64() > earlier);
        }
    }
    node.kill();
    drop(disk);
}

/// A C library in which synchronizing the log of a database fails while a file exists. With `.failed` at the
/// end of its name, another one exists from such a failure until the log is written again.
const FAILING: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static const char *order;
static char failed[4096];
static int is_log(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    order = getenv("FAIL_SYNC");
    snprintf(failed, sizeof failed, "%s.failed", order ? order : "/nothing");
    return order && strstr(path, ".sqlite-wal") != NULL;
}
static int sync_by(long call, int fd) {
    if (is_log(fd) && access(order, F_OK) == 0) {
        close(open(failed, O_CREAT | O_WRONLY, 0600));
        errno = EIO;
        return -1;
    }
    return syscall(call, fd);
}
int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t at) {
    if (is_log(fd)) unlink(failed);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}
"#;

/// Locks a database until it is killed.
const LOCKING: &str = r#"
import sqlite3, sys, time
sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None).execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(600)
"#;

/// A change that could not be synchronized is in the log of the database, where a restart would find it. The
/// node writes the end of a module again until that succeeds. It is killed while another program keeps it
/// from that.
#[test]
fn a_change_that_could_not_be_synchronized_is_not_there_after_a_kill() {
    let Some(count) = module("count") else { return };
    let node = Node::new(&replay());
    let (code, library, order) = (node.path("fail.c"), node.path("fail.so"), node.path("fail"));
    std::fs::write(&code, FAILING).unwrap();
    if !done("cc", &["-shared", "-fPIC", "-o", library.to_str().unwrap(), code.to_str().unwrap()]) {
        eprintln!("skipped: needs cc");
        return;
    }
    let mut node = node.with_variable("LD_PRELOAD", library).with_variable("FAIL_SYNC", order.clone());
    node.start();
    let wasm = base64(&std::fs::read(&count).unwrap());
    let body = |name: &str| json!({ "wasm": wasm, "name": name });
    for name in ["one", "two", "three"] {
        assert_eq!(node.request("POST", "/v1/modules", Some(&body(name))).0, 201);
    }
    std::fs::write(&order, "").unwrap();
    for (method, path, body) in [
        ("POST", "/v1/modules", Some(body("four"))),
        ("PUT", "/v1/modules/one", Some(json!({ "wasm": wasm }))),
        ("POST", "/v1/modules/two/stop", None),
        ("DELETE", "/v1/modules/three", None),
    ] {
        let (code, reply) = node.request(method, path, body.as_ref());
        assert_eq!((code, &reply["code"]), (507, &json!("storage")), "{method} {path}: {reply}");
    }
    // Between a failure and what takes the place of the change, the database is not locked.
    let locked = wait_for("a log without what could not be synchronized", || {
        let mut python = Command::new("python3");
        let locking = python.args(["-c", LOCKING]).arg(node.path("state/node.sqlite"));
        let mut locking = Ended(locking.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = [0; 6];
        locking.0.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        (!node.path("fail.failed").exists()).then_some(locking)
    });
    node.kill();
    drop(locked);
    std::fs::remove_file(&order).unwrap();
    node.start();
    let all = node.request("GET", "/v1/modules", None).1;
    let mut found: Vec<_> = all["modules"].as_array().unwrap().iter().collect();
    found.sort_by_key(|module| module["name"].to_string());
    let found: Vec<_> = found.into_iter().map(|m| json!([m["name"], m["state"], m["revision"]])).collect();
    let expected = ["one", "three", "two"].map(|name| json!([name, "running", 1]));
    assert_eq!(found, expected);
    node.end();
}

/// The code that was compiled is on the disk, whichever start of the node compiled it.
#[test]
fn compiled_code_counts_in_what_a_principal_stores_after_a_restart() {
    let Some(count) = module("count") else { return };
    let count = count.display().to_string();
    let config = |kib: u64| format!("{}[limits]\nstorage_per_principal = \"{kib}KiB\"\n", replay());
    let mut node = Node::new(&config(1));
    node.mint("alice", &[]);
    let install = |node: &Node, name: &str| {
        let who = ["--credential", "alice.cred", "--identity", "alice.key"];
        let out = node.output(&[&["install", &count, "--name", name][..], &who].concat());
        (out.status.success(), daemon::text(&out.stderr))
    };
    node.start();
    let (_, refused) = install(&node, "one");
    let bytes = refused.split_once("the module takes ").and_then(|(_, rest)| rest.split(' ').next());
    let bytes: u64 = bytes.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{refused}"));
    node.end();
    // A little less than two take.
    node.configure(&config(2 * bytes / 1024 - 1));
    node.start();
    assert!(install(&node, "one").0);
    assert!(install(&node, "two").1.contains("bytes with its compiled code"));
    // A module that runs is compiled again, or found as compiled.
    node.json(&["stop", "one", "--principal", "alice"]);
    node.end();
    node.start();
    let (is_installed, refused) = install(&node, "two");
    assert!(!is_installed && refused.contains("bytes with its compiled code"), "{refused}");
    node.end();
}
