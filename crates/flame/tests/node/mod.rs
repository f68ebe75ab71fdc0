//! Tests of a node: its operator, its principals, and what survives a restart.

mod node_accounting;
mod node_demo;
mod node_evicted;
mod node_filters;
mod node_fuzz;
mod node_input;
mod node_live;
mod node_logs;
mod node_metrics;
mod node_processes;
mod node_prometheus;
mod node_renew;
mod node_reserve;
mod node_rights;
mod node_security;
mod node_send;
mod node_soak;
mod node_state;
mod node_storage;
mod node_top;
mod node_walls;

use crate::daemon::{self, Node, module, replay, text, wait_for};
use serde_json::{Value, json};

fn tls(node: &Node) -> (String, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    node.configure(&format!("[tls]\nlisten = \"127.0.0.1:{port}\"\n{}", replay()));
    (format!("https://127.0.0.1:{port}"), "state/tls.pem".to_owned())
}

#[test]
fn an_operator_installs_changes_and_removes_modules() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let mut node = Node::new(&replay());
    node.start();
    let installed = node.json(&["install", &count]);
    assert_eq!((&installed["name"], &installed["revision"]), (&json!("count"), &json!(1)));
    assert!(node.refused(&["install", &count]).contains("is installed already"));
    node.json(&["install", &flow, "--name", "flows"]);
    let packets =
        |node: &Node, name: &str| node.json(&["show", name])["account"]["offered"].as_u64().unwrap();
    wait_for("packets", || packets(&node, "count") > 100);
    // Rows arrive in every format.
    wait_for("rows", || node.json(&["show", "count"])["spool"]["rows"].as_u64() > Some(5));
    let lines = node.run(&["records", "count", "--format", "json", "-q"]);
    let rows: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(
        rows.len() > 5 && rows.iter().all(|r| r["module"] == "count" && r["table"] == "interval"),
        "{lines}"
    );
    for format in ["table", "csv", "parquet"] {
        node.run(&["records", "count", "--format", format, "-o", &format!("rows-{format}"), "-q"]);
    }
    let parquet = std::fs::read(node.path("rows-parquet/count.interval.parquet")).unwrap();
    assert_eq!(&parquet[..4], b"PAR1");
    // Reading continues where it ended, and no row comes twice.
    let first = node.output(&["records", "count", "--format", "json"]);
    let cursor = text(&first.stderr).split("--cursor ").nth(1).unwrap().trim().to_owned();
    let later = || node.run(&["records", "count", "--format", "json", "-q", "--cursor", &cursor]);
    let more = wait_for("more rows", || Some(later()).filter(|rows| !rows.is_empty()));
    let end_of = |lines: &str, at: usize| {
        let row: Value = serde_json::from_str(lines.lines().nth(at).unwrap()).unwrap();
        row["end_ns"].as_u64().unwrap()
    };
    let last = end_of(&text(&first.stdout), text(&first.stdout).lines().count() - 1);
    assert!(end_of(&more, 0) > last, "{more}");

    // Without a client of ours, as JSON lines.
    let get = "GET /v1/modules/count/records HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n";
    let reply = text(&daemon::raw(&node.path("node.sock"), get.as_bytes()).unwrap());
    assert!(reply.contains("flame-cursor: ") && reply.contains("flame-lost: 0"), "{reply}");
    assert!(reply.contains("{\"module\":\"count\",\"table\":\"interval\""), "{reply}");

    let updated = node.json(&["update", "count", &flow]);
    let of_flow = node.json(&["show", "flows"])["version"].clone();
    assert!(of_flow.is_string() && of_flow != installed["version"], "{of_flow}");
    assert_eq!((&updated["revision"], &updated["version"]), (&json!(2), &of_flow));
    assert!(node.refused(&["update", "count", "--revision", "1"]).contains("another change came first"));
    assert_eq!(node.json(&["stop", "flows"])["state"], "stopped");
    assert_eq!(node.json(&["update", "flows"])["state"], "running");
    let removed = node.json(&["remove", "flows"]);
    assert_eq!(removed["account"]["adds_up"], true, "{removed}");
    assert!(node.refused(&["show", "flows"]).contains("no module \"flows\""));
    let log = node.run(&["logs", "count"]);
    assert!(log.contains("installed") && log.contains("updated"), "{log}");
    let status = node.json(&["node", "status"]);
    assert_eq!((&status["name"], &status["running"]), (&json!("tap1"), &json!(1)), "{status}");
    let (code, health) = node.request("GET", "/v1/health", None);
    assert_eq!((code, &health["ok"]), (200, &json!(true)));
    let said = node.end();
    assert!(said.contains("node: ended"), "{said}");
}

#[test]
fn principals_see_and_change_their_own_modules_alone() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let (count, flow) = (count.display().to_string(), flow.display().to_string());
    let mut node = Node::new("");
    let (address, certificate) = tls(&node);
    for name in ["alice", "bob"] {
        node.mint(name, &[]);
    }
    node.start();
    for name in ["alice", "bob"] {
        let (credential, identity) = (format!("{name}.cred"), format!("{name}.key"));
        let more = ["--certificate", &certificate, "--credential", &credential, "--identity", &identity];
        node.run(&[&["node", "add", name, &address][..], &more].concat());
    }
    let alice = ["--node", "alice"];
    let installed = node.json(&[&["install", &count][..], &alice].concat());
    assert_eq!(installed["principal"], "alice");
    node.json(&["install", &flow, "--name", "count", "--node", "bob"]);
    let names = |node: &Node, more: &[&str]| -> Vec<String> {
        let out = node.run(&[&["list", "--format", "json"][..], more].concat());
        let of = |l: &str| serde_json::from_str::<Value>(l).unwrap()["principal"].to_string();
        out.lines().map(of).collect()
    };
    assert_eq!(names(&node, &alice), ["\"alice\""]);
    assert_eq!(names(&node, &["--node", "bob"]), ["\"bob\""]);
    assert_eq!(names(&node, &["--node", &node.socket()]), ["\"alice\"", "\"bob\""]);
    // Each sees its own module of the same name, and none of the other's.
    assert_ne!(
        node.json(&["show", "count", "--node", "alice"])["hash"],
        node.json(&["show", "count", "--node", "bob"])["hash"]
    );
    let refused = node.refused(&["show", "count", "--principal", "alice", "--node", "bob"]);
    assert!(refused.contains("are not yours"), "{refused}");
    assert!(node.refused(&["node", "status", "--node", "alice"]).contains("this is the operator's"));
    // The operator means a principal's module by its name.
    assert_eq!(node.json(&["show", "count", "--principal", "bob"])["principal"], "bob");
    assert!(node.refused(&["remove", "count"]).contains("no module"), "the operator's own does not exist");

    // Older versions of TLS are refused.
    let hello = |version: &str| {
        let mut openssl = std::process::Command::new("openssl");
        let place = address.trim_start_matches("https://");
        let out = openssl
            .args(["s_client", version, "-connect", place])
            .stdin(std::process::Stdio::null())
            .output();
        out.map(|out| text(&out.stdout).contains("BEGIN CERTIFICATE"))
    };
    if let (Ok(new), Ok(old)) = (hello("-tls1_3"), hello("-tls1_2")) {
        assert!(new && !old);
    }

    // Without a credential, or with another's key, a connection has no principal.
    let anonymous = ["list", "--node", &address, "--certificate", &certificate];
    assert!(node.refused(&anonymous).contains("this connection has no principal"));
    let stolen = ["--credential", "alice.cred", "--identity", "bob.key"];
    let refused = node.refused(&[&anonymous[..], &stolen].concat());
    assert!(refused.contains("another key was shown"), "{refused}");

    // A new credential takes the place of the old one without a break.
    let before = node.json(&["show", "count", "--node", "alice"]);
    node.mint("alice", &["--expires", "+1h"]);
    let renewed = node.json(&["renew", "count", "--node", "alice"]);
    assert!(renewed["expires"].is_u64() && before["expires"].is_null());
    assert!(renewed["account"]["offered"].as_u64() >= before["account"]["offered"].as_u64());
    let narrowed = node.json(&["update", "count", "--narrow", "expose=count", "--node", "alice"]);
    assert_eq!(narrowed["narrow"][0]["field"], "expose");

    // A restart restores both, and a revocation ends one of them within a second.
    node.end();
    node.start();
    assert_eq!(names(&node, &["--node", &node.socket()]), ["\"alice\"", "\"bob\""]);
    assert_eq!(node.json(&["show", "count", "--node", "alice"])["state"], "running");
    let credential = std::fs::read_to_string(node.path("alice.cred")).unwrap();
    let (code, _) = node.request("POST", "/v1/revocations", Some(&json!({ "credential": credential })));
    assert_eq!(code, 204);
    let gone = node.json(&["show", "count", "--principal", "alice"]);
    assert_eq!(gone["state"], "evicted", "{gone}");
    assert!(gone["reason"].as_str().unwrap().contains("revoked"), "{gone}");
    assert!(node.refused(&["list", "--node", "alice"]).contains("revoked"));
    assert_eq!(node.json(&["show", "count", "--principal", "bob"])["state"], "running");
    // After a restart it is known why it does not run, and a list from before the revocation grants nothing.
    node.end();
    std::fs::write(node.path("revoked"), "").unwrap();
    node.start();
    assert!(
        node.said().contains("module count of alice is evicted: the credential is revoked"),
        "{}",
        node.said()
    );
    assert!(node.said().contains("are no longer in it, and stay in force"), "{}", node.said());
    assert!(node.refused(&["list", "--node", "alice"]).contains("revoked"));
    let (code, _) = node.request("DELETE", "/v1/revocations", Some(&json!({ "credential": credential })));
    assert_eq!(code, 204);
    node.run(&["list", "--node", "alice"]);
    let log = node.run(&["audit", "verify", "--policy", "policy.toml"]);
    assert!(!log.is_empty(), "the log is whole");
}

#[test]
fn a_credential_ends_and_its_module_with_it() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.mint("alice", &["--expires", "+6s"]);
    node.start();
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    node.json(&[&["install", &count.display().to_string()][..], &as_alice].concat());
    wait_for("its end", || node.json(&["show", "count", "--principal", "alice"])["state"] == "evicted");
    let gone = node.json(&["show", "count", "--principal", "alice"]);
    assert!(gone["reason"].as_str().unwrap().contains("expired"), "{gone}");
    assert!(node.refused(&[&["list"][..], &as_alice].concat()).contains("expired"));
}

/// A reader that follows outlives the node, continues with the next one, and reports an unknown number of
/// rows as missed.
#[test]
fn records_go_on_after_the_node_was_killed() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.start();
    node.json(&["install", &count.display().to_string()]);
    let out = std::fs::File::create(node.path("rows")).unwrap();
    let errors = std::fs::File::create(node.path("errors")).unwrap();
    let mut follow = std::process::Command::new(daemon::flame())
        .args(["records", "count", "--follow", "--format", "json", "--node", &node.socket()])
        .stdout(out)
        .stderr(errors)
        .spawn()
        .unwrap();
    let lines = |node: &Node| std::fs::read_to_string(node.path("rows")).unwrap().lines().count();
    wait_for("rows", || lines(&node) > 3);
    node.kill();
    let said = |node: &Node| std::fs::read_to_string(node.path("errors")).unwrap();
    wait_for("the break", || said(&node).contains("the node is asked again every second"));
    let before = lines(&node);
    node.start();
    wait_for("more rows", || lines(&node) > before + 3);
    node.json(&["update", "count"]);
    let before = lines(&node);
    wait_for("rows after an update", || lines(&node) > before + 3);
    node.json(&["remove", "count"]);
    let status = follow.wait().unwrap();
    let said = said(&node);
    assert!(status.success() && said.contains("an unknown number of rows was lost"), "{said}");
    assert!(said.contains("its records end here") && said.contains("next: --cursor"), "{said}");
    // No row comes twice. At its end, here for the update, an instance closes the interval that its successor
    // begins with.
    let rows = std::fs::read_to_string(node.path("rows")).unwrap();
    let rows = rows.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let ends: Vec<u64> = rows.filter_map(|row| row["end_ns"].as_u64()).collect();
    assert!(ends.is_sorted(), "{ends:?}");
    assert!(ends.windows(2).filter(|w| w[0] == w[1]).count() <= 1, "{ends:?}");
    node.end();
}

/// A module that is updated may have other tables, which do not fit into the file. It is left as it is.
#[test]
fn rows_of_other_tables_replace_no_file() {
    let (Some(count), Some(flow)) = (module("count"), module("flow")) else { return };
    let mut node = Node::new(&replay());
    node.start();
    node.json(&["install", &count.display().to_string(), "--name", "r"]);
    let errors = std::fs::File::create(node.path("errors")).unwrap();
    let mut follow = std::process::Command::new(daemon::flame())
        .args(["records", "r", "--follow", "--format", "json", "--node", &node.socket(), "-o"])
        .arg(node.path("rows"))
        .stderr(errors)
        .spawn()
        .unwrap();
    let read = |name: &std::ffi::OsStr| std::fs::read_to_string(node.path(&name.to_string_lossy()));
    // The file has another name until it is whole.
    wait_for("rows", || {
        let all = std::fs::read_dir(node.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        let mut parts = all.filter(|name| name.to_string_lossy().contains("rows"));
        parts.any(|name| read(&name).is_ok_and(|text| text.lines().count() > 3))
    });
    node.json(&["update", "r", &flow.display().to_string()]);
    let status = follow.wait().unwrap();
    let said = std::fs::read_to_string(node.path("errors")).unwrap();
    assert!(!status.success() && said.contains("continue in another file"), "{said}");
    assert!(said.contains("next: --cursor"), "{said}");
    let rows = std::fs::read_to_string(node.path("rows")).unwrap();
    assert!(rows.lines().count() > 3 && rows.lines().all(|row| row.contains("\"packets\"")), "{rows}");
    assert!(!rows.contains("\"table\":\"flow\""), "{rows}");
    node.end();
}

/// A follower whose credential expires keeps what it has read, and names the place to go on from.
#[test]
fn records_that_were_read_stay_when_the_credential_expires() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    node.json_of("alice", &["install", &count.display().to_string()]);
    node.mint("alice", &["--expires", "+6s"]);
    let holder = ["--credential", "alice.cred", "--identity", "alice.key"];
    let out = node
        .output(&[&["records", "count", "--follow", "--format", "json", "-o", "rows"][..], &holder].concat());
    let said = daemon::text(&out.stderr);
    assert!(!out.status.success() && said.contains("expired") && said.contains("next: --cursor"), "{said}");
    let rows = std::fs::read_to_string(node.path("rows")).unwrap();
    assert!(rows.lines().count() > 3, "{rows}");
    node.end();
}

/// An answer on one connection is worth nothing on another one, although it is for the same credential.
#[test]
fn an_answer_cannot_be_replayed() {
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let alice = daemon::Holder::of(&node, "alice", "alice");
    let first = daemon::Connection::open(&node.path("node.sock"));
    let challenge = alice.challenge(&first);
    let right = alice.answer(&challenge, &daemon::channel(&challenge));
    // Another connection, which asked for a challenge of its own, or for none.
    let second = daemon::Connection::open(&node.path("node.sock"));
    let (code, problem) = second.post("/v1/session", &right);
    assert_eq!((code, &problem["code"]), (401, &json!("unauthenticated")), "{problem}");
    alice.challenge(&second);
    assert_eq!(second.post("/v1/session", &right).0, 403);
    // An answer for another channel, and the challenge is then used up.
    assert_eq!(first.post("/v1/session", &alice.answer(&challenge, &[7; 32])).0, 403);
    assert_eq!(first.post("/v1/session", &right).0, 401);
    // The right one, on a connection where nothing went wrong.
    let third = daemon::Connection::open(&node.path("node.sock"));
    let challenge = alice.challenge(&third);
    let (code, session) = third.post("/v1/session", &alice.answer(&challenge, &daemon::channel(&challenge)));
    assert_eq!((code, &session["principal"]), (200, &json!("alice")), "{session}");
}

/// A client that passes a challenge on has another user, or the challenge another node.
#[test]
fn an_answer_on_a_unix_socket_is_for_one_node_and_one_user() {
    let mut node = Node::new(&replay());
    node.mint("alice", &[]);
    node.start();
    let alice = daemon::Holder::of(&node, "alice", "alice");
    let me = flame_files::effective_user();
    let with = |channel: &dyn Fn(&str) -> Vec<u8>| {
        let connection = daemon::Connection::open(&node.path("node.sock"));
        let challenge = alice.challenge(&connection);
        let channel = channel(challenge["node"].as_str().unwrap());
        connection.post("/v1/session", &alice.answer(&challenge, &channel)).0
    };
    assert_eq!(with(&|key| flame_api::unix_channel(key, me, me)), 200);
    assert_eq!(with(&|key| flame_api::unix_channel(key, me, me + 1)), 403, "answered by another user");
    assert_eq!(with(&|key| flame_api::unix_channel(key, me + 1, me)), 403, "asked by another user");
    let other = flame_trust::Secret::generate().public().to_string();
    assert_eq!(with(&|_| flame_api::unix_channel(&other, me, me)), 403, "asked for another node");
}

/// Listens on the socket `FLAME_TEST_SOCKET`, for the test below, which starts it as another user.
#[test]
#[ignore = "it is a part of a_client_presents_no_credential_to_another_user"]
fn listen_as_another_user() {
    let path = std::env::var_os("FLAME_TEST_SOCKET").unwrap();
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let mut bytes = [0; 1];
    let read = std::io::Read::read(&mut listener.accept().unwrap().0, &mut bytes).unwrap();
    assert_eq!(read, 0, "nothing is presented");
}

#[test]
fn a_client_presents_no_credential_to_another_user() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if flame_files::effective_user() != 0 {
        eprintln!("skipped: only root can start a process of another user");
        return;
    }
    let node = Node::new(&replay());
    node.mint("alice", &[]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // A copy that the other user may run, wherever this program is.
    let program = folder.path().join("test");
    flame_testing::copy_program(&std::env::current_exe().unwrap(), &program);
    let socket = folder.path().join("socket");
    let mut command = std::process::Command::new(&program);
    command
        .args(["--ignored", "--exact", &crate::common::test_name(module_path!(), "listen_as_another_user")])
        .env("FLAME_TEST_SOCKET", &socket)
        .current_dir(folder.path())
        .uid(65534)
        .gid(65534)
        .stdout(std::process::Stdio::null());
    let mut listens = command.spawn().unwrap();
    wait_for("a listener", || socket.exists());
    let address = format!("unix:{}", socket.display());
    let as_alice = ["--credential", "alice.cred", "--identity", "alice.key"];
    let refused = node.refused(&[&["list", "--node", &address][..], &as_alice].concat());
    assert!(refused.contains("user 65534 listens there"), "{refused}");
    assert!(listens.wait().unwrap().success());
}

#[test]
fn the_configuration_is_reloaded_and_errors_leave_the_old_one() {
    let Some(count) = module("count") else { return };
    let mut node = Node::new(&replay());
    node.start();
    node.json(&["install", &count.display().to_string()]);
    let packets = |node: &Node| node.json(&["show", "count"])["account"]["offered"].as_u64().unwrap();
    wait_for("packets", || packets(&node) > 10);
    let before = packets(&node);
    std::fs::write(node.path("node.toml"), "[node]\nstorage = 1\n").unwrap();
    node.signal("HUP");
    node.wait_for_text("stays in force");
    node.configure(&format!("{}[limits]\nmodules = 1\n", replay()));
    node.signal("HUP");
    node.wait_for_text("node: reloaded");
    let refused = node.refused(&["install", &count.display().to_string(), "--name", "other"]);
    assert!(refused.contains("no place for another module: it would be number 2 of 1"), "{refused}");
    node.configure(&replay().replace("trial", "other"));
    node.signal("HUP");
    node.wait_for_text("[sources] has changed, which needs a restart");
    assert!(packets(&node) >= before, "the module ran on");
    let check = node.run(&["node", "check", "-c", "node.toml"]);
    assert!(check.contains("valid"), "{check}");
    node.configure("[sources.x]\ninterface = \"no-such-interface\"\n");
    let refused = node.refused(&["node", "check", "-c", "node.toml"]);
    assert!(refused.contains("No such device") && refused.contains("there are "), "{refused}");
}

/// A service manager passes the socket and learns when the node is ready.
#[test]
fn a_service_manager_passes_the_socket_and_learns_of_readiness() {
    use std::os::unix::net::UnixDatagram;
    let node = Node::new(&replay());
    // The path that the configuration names, too, as with the units of `packaging`.
    let (passed, notify) = (node.path("node.sock"), node.path("notify.sock"));
    let manager = UnixDatagram::bind(&notify).unwrap();
    manager.set_read_timeout(Some(daemon::PATIENCE)).unwrap();
    let script = "import os, socket, sys\n\
        s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(9)\n\
        os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n\
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n\
        os.execv(sys.argv[2], sys.argv[2:])";
    let child = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&passed)
        .args([&daemon::flame(), "node", "run", "-c"])
        .arg(node.path("node.toml"))
        .env("NOTIFY_SOCKET", &notify)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut child = daemon::Ended(child);
    let receive = || {
        let mut bytes = [0; 256];
        let n = manager.recv(&mut bytes).unwrap();
        text(&bytes[..n])
    };
    assert!(receive().contains("READY=1"));
    assert_eq!(daemon::request(&passed, "GET", "/v1/health", None).unwrap().0, 200);
    std::process::Command::new("kill").arg(child.0.id().to_string()).status().unwrap();
    assert!(receive().contains("STOPPING=1"));
    assert!(child.0.wait().unwrap().success());
    assert!(passed.exists(), "the manager still listens there");
}
