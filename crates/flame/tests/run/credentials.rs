//! Tests of credentials as people use them: the pages of docs, the resulting views of modules, and their end.

use crate::common::{self, root};
use crate::network::{self, Net, flame};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn demo() -> String {
    root().join("demo/demo.pcap").canonicalize().unwrap().display().to_string()
}

/// Returns the folder of the standard modules. If they are not built, reports this and returns `None`.
pub fn modules() -> Option<String> {
    common::module("flow")?;
    common::module("count")?;
    let bin = Path::new(env!("CARGO_BIN_EXE_flame")).parent().unwrap().join("modules");
    Some(std::env::var("FLAME_MODULES").unwrap_or_else(|_| bin.display().to_string()))
}

pub fn in_folder(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(flame()).args(arguments).current_dir(folder).output().unwrap()
}

pub fn done(folder: &Path, arguments: &[&str]) -> String {
    let out = in_folder(folder, arguments);
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    text(&out.stdout).trim().to_owned()
}

/// Creates a node's folder: `root.key`, `policy.toml` with one role of these fields, revocations and log.
pub fn node(fields: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = done(folder.path(), &["key", "new", "root.key"]);
    done(folder.path(), &["key", "new", "node.key"]);
    let policy = format!(
        "[node]\nname = \"tap1\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit.log\"\n\
         [roots]\noperator = \"{root}\"\n[roles.all]\n{fields}\n"
    );
    std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
    std::fs::write(folder.path().join("revoked"), "").unwrap();
    folder
}

pub const ALL: &str =
    "select = \"\"\nexpose = \"all\"\ncalls = \"records, messages, packets\"\ncode = \"any\"";

pub fn mint(folder: &Path, to: &str, more: &[&str]) {
    let file = format!("{to}.cred");
    let all =
        ["grant", "mint", "--key", "root.key", "--to", to, "--role", "all", "--code", "any", "-o", &file];
    done(folder, &[&all[..], more].concat());
}

const POLICY: [&str; 2] = ["--policy", "policy.toml"];

/// Returns the rows of a run under a credential.
pub fn rows(folder: &Path, module: &str, more: &[&str]) -> Vec<Value> {
    let demo = demo();
    let run = ["run", module, "-r", &demo, "-q", "--format", "json"];
    let out = done(folder, &[&run[..], more].concat());
    out.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Runs every shell block of a page, in order, in an empty folder.
fn works_as_written(page: &str) {
    let Some(modules) = modules() else { return };
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(flame(), bin.join("flame")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let page = std::fs::read_to_string(root().join(page)).unwrap();
    let blocks: Vec<_> = page.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
    for block in blocks {
        // The shell's -e ignores commands after `!`.
        let failing = |line: &str| {
            line.strip_prefix("! ").map(|l| format!("if {l}; then echo let through; exit 1; fi"))
        };
        let lines = block.lines().map(|line| failing(line).unwrap_or_else(|| line.to_owned()) + "\n");
        let out = Command::new("bash")
            .args(["-euc", &lines.collect::<String>()])
            .current_dir(folder.path())
            .envs([("PATH", &path), ("FLAME_MODULES", &modules), ("MODULES", &modules), ("CAPTURE", &demo())])
            .env("FLAME_NODES", folder.path().join("nodes.toml"))
            .output()
            .unwrap();
        if let (false, Ok(pid)) =
            (out.status.success(), std::fs::read_to_string(folder.path().join("node.pid")))
        {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
        assert!(out.status.success(), "{block}\n{}\n{}", text(&out.stdout), text(&out.stderr));
    }
}

#[test]
fn the_operators_page_works_as_written() {
    works_as_written("docs/operators.md");
}

#[test]
fn the_researchers_page_works_as_written() {
    works_as_written("docs/researchers.md");
}

#[test]
fn the_nodes_page_works_as_written() {
    works_as_written("docs/node.md");
}

#[test]
fn a_grant_that_hides_nothing_gives_what_an_operator_gets() {
    if modules().is_none() {
        return;
    }
    let node = node(ALL);
    mint(node.path(), "alice", &[]);
    common::runner();
    // The order of rows of different tables is not determined.
    let of_modules = |more: &[&str]| {
        let mut all = rows(node.path(), "flow,count,rtt", more);
        all.sort_by_key(|row| (row["module"].to_string(), row["table"].to_string()));
        all
    };
    let own = of_modules(&[]);
    assert!(own.len() > 20);
    for more in [&[][..], &["--isolate"]] {
        let all = [&POLICY[..], &["--credential", "alice.cred"], more].concat();
        assert_eq!(of_modules(&all), own, "{more:?}");
    }
}

#[test]
fn two_principals_see_pseudonyms_that_cannot_be_joined() {
    if modules().is_none() {
        return;
    }
    let node = node(&format!("{ALL}\ntransform = \"ip=prefix\""));
    common::runner();
    let addresses_in = |to: &str, more: &[&str]| {
        let credential = format!("{to}.cred");
        let rows = rows(node.path(), "flow", &[&POLICY[..], &["--credential", &credential], more].concat());
        rows.iter().map(|r| r["src"].as_str().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let addresses = |to: &str| addresses_in(to, &[]);
    mint(node.path(), "alice", &[]);
    mint(node.path(), "carol", &[]);
    let alices = addresses("alice");
    assert_eq!(alices, addresses_in("alice", &["--isolate"]), "in a process of her own");
    assert_eq!(alices, addresses("alice"), "the same again");
    assert!(alices.is_disjoint(&addresses("carol")));
    let true_ones: Vec<_> = rows(node.path(), "flow", &[]).iter().map(|r| r["src"].clone()).collect();
    assert!(true_ones.iter().all(|src| !alices.contains(src.as_str().unwrap())));
}

#[test]
fn what_may_not_go_out_is_withheld_and_counted() {
    if modules().is_none() {
        return;
    }
    let all = rows(node(ALL).path(), "flow", &[]);
    let large =
        all.iter().filter(|r| r["packets_fwd"].as_u64() >= Some(6) || r["packets_rev"].as_u64() >= Some(6));
    let large = large.count();
    assert!(large > 0 && large < all.len());
    let node = node(&format!("{ALL}\ngroup = 6"));
    mint(node.path(), "alice", &[]);
    let demo = demo();
    let run =
        ["run", "flow", "-r", &demo, "--format", "json", "--stats", "json", "--credential", "alice.cred"];
    let out = in_folder(node.path(), &[&run[..], &POLICY].concat());
    assert_eq!(text(&out.stdout).lines().count(), large);
    let account: Value = serde_json::from_str(&text(&out.stderr)).unwrap();
    // The module could choose the exact number, so only its magnitude is reported.
    assert_eq!(account["modules"]["flow"]["withheld"], (all.len() - large).next_power_of_two());
    assert_eq!(account["modules"]["flow"]["records"], large);
}

#[test]
fn without_a_credential_a_module_learns_how_many_packets_came() {
    if modules().is_none() {
        return;
    }
    let node = node(ALL);
    let counted = rows(node.path(), "count", &POLICY);
    let own = rows(node.path(), "count", &[]);
    assert_eq!(counted[0]["packets"], own[0]["packets"]);
    for hidden in ["wire_bytes", "ipv4", "ipv6", "tcp", "udp", "tcp_syn"] {
        assert_eq!(counted[0][hidden], 0, "{hidden}");
        assert_ne!(own[0][hidden].as_u64().unwrap() + own[0]["ipv4"].as_u64().unwrap(), 0);
    }
    assert!(rows(node.path(), "flow", &POLICY).is_empty(), "there are no flows to be seen");
}

#[test]
fn the_command_line_narrows_a_grant_and_cannot_widen_it() {
    if modules().is_none() {
        return;
    }
    let node = node(&ALL.replace("\"all\"", "\"headers\""));
    mint(node.path(), "alice", &["--select", "udp"]);
    let explain = |more: &[&str]| {
        let under = [&POLICY[..], &["--credential", "alice.cred"]].concat();
        rows(node.path(), "count", &[&under[..], more].concat())[0]["packets"].as_u64().unwrap()
    };
    let udp = explain(&[]);
    assert!(udp > explain(&["--select", "port 53 and src port 53"]));
    assert_eq!(udp, explain(&["--select", "udp or tcp", "--expose", "all"]));
    // The key of transforms is the node's alone.
    let out =
        in_folder(node.path(), &["run", "count", "-r", "x", "--policy", "policy.toml", "--key", "node.key"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn a_filter_does_not_undo_pseudonyms_nor_ticks_a_resolution() {
    if modules().is_none() {
        return;
    }
    let node = node(&format!("{ALL}\ntransform = \"ip=prefix\"\nresolution = \"1s\""));
    mint(node.path(), "alice", &[]);
    let under = [&POLICY[..], &["--credential", "alice.cred"]].concat();
    let flows = |more: &[&str]| rows(node.path(), "flow", &[&under[..], more].concat());
    assert!(flows(&["--select", "host 10.9.0.1"]).is_empty(), "a true address");
    let pseudonym = flows(&[])[0]["src"].as_str().unwrap().to_owned();
    assert!(!flows(&["--select", &format!("host {pseudonym}")]).is_empty(), "what is seen can be asked for");
    // There is one report per second, however short the interval.
    let ticks = |more: &[&str]| rows(node.path(), "count", &[more, &["--interval", "100ms"]].concat());
    let (quantize, fine) = (ticks(&under), ticks(&[]));
    assert!(quantize.len() * 3 < fine.len(), "{} and {}", quantize.len(), fine.len());
    for time in
        quantize.iter().flat_map(|row| row.as_object().unwrap()).filter(|(name, _)| name.ends_with("_ns"))
    {
        assert_eq!(time.1.as_u64().unwrap() % 1_000_000_000, 0, "{time:?}");
    }
}

#[test]
fn a_credential_is_for_its_owner_and_a_revocation_is_a_line() {
    use std::os::unix::fs::PermissionsExt;
    if modules().is_none() {
        return;
    }
    let node = node(ALL);
    for to in ["alice", "carol"] {
        mint(node.path(), to, &[]);
    }
    let mode = std::fs::metadata(node.path().join("alice.cred")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    // The list was edited by hand, and its last line has no line break.
    std::fs::write(node.path().join("revoked"), "id 00ff").unwrap();
    done(node.path(), &["grant", "revoke", "alice.cred", "--policy", "policy.toml"]);
    let run = |to: &str| {
        in_folder(node.path(), &["grant", "verify", &format!("{to}.cred"), "--policy", "policy.toml"])
    };
    assert!(run("carol").status.success(), "{}", text(&run("carol").stderr));
    assert!(text(&run("alice").stderr).contains("revoked"));
}

#[test]
fn a_filter_that_means_nothing_is_found_where_it_stands() {
    if modules().is_none() {
        return;
    }
    let node = node(&ALL.replace("select = \"\"", "select = [\"tcp\", \"port port 80\"]"));
    mint(node.path(), "alice", &[]);
    let out = in_folder(node.path(), &["grant", "verify", "alice.cred", "--policy", "policy.toml"]);
    assert!(text(&out.stderr).contains("policy, line 9, select: "), "{}", text(&out.stderr));
    let all = ["grant", "mint", "--key", "root.key", "--to", "a", "--role", "all", "--code", "any"];
    for (option, value, said) in [
        ("--select", "port port 53", "command line, select: "),
        // Names are not resolved, even in a filter.
        ("--select", "host localhost", "\"localhost\" is a name"),
        ("--transform", "port=truncate:48", "16 bits"),
    ] {
        let out = in_folder(node.path(), &[&all[..], &[option, value]].concat());
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains(said), "{}", text(&out.stderr));
    }
}

/// Runs a module live, changes its grant, and returns the time until it ended and its output.
fn ended_by(end: impl FnOnce(&Path), more: &[&str]) -> Option<(Duration, Output)> {
    ended_with(&[], end, more)
}

/// Returns the result of [`ended_by`] for a run with `options`.
fn ended_with(options: &[&str], end: impl FnOnce(&Path), more: &[&str]) -> Option<(Duration, Output)> {
    modules()?;
    let net = Net::new()?;
    let node = node(ALL);
    mint(node.path(), "alice", more);
    let file = |name: &str| node.path().join(name).display().to_string();
    let sender = network::Ended(net.bursts(&vec![network::ipv4(&[], 17, (1, 9), (2, 53), 122); 50]));
    let (policy, credential) = (file("policy.toml"), file("alice.cred"));
    let run = ["count", "--format", "json", "--policy", &policy, "--credential", &credential];
    let capture = net.capture(&[&run[..], options].concat(), 1);
    let received = || net.said("cat /sys/class/net/rx0/statistics/rx_packets").parse::<u64>().unwrap();
    network::wait_for("packets", || received() > 0);
    let start = Instant::now();
    end(node.path());
    let out = capture.end();
    let took = start.elapsed();
    std::fs::write(net.stop(), "").unwrap();
    drop(sender);
    let log = done(node.path(), &["audit", "show", "--policy", "policy.toml"]);
    assert!(log.lines().any(|l| l.contains(" evict ") && l.contains("alice")), "{log}");
    Some((took, out))
}

/// Work beyond its share is shed, and the account adds up.
#[test]
fn a_share_of_the_processor_is_kept_to() {
    share_is_kept_to(&[]);
}

/// Modules of one credential share its time in a process as well.
#[test]
fn a_share_of_the_processor_is_kept_to_in_a_process() {
    common::runner();
    share_is_kept_to(&["--isolate"]);
}

fn share_is_kept_to(more: &[&str]) {
    if modules().is_none() {
        return;
    }
    let Some(net) = Net::new() else { return };
    let node = node(ALL);
    // Enough for init and for a process to begin on a busy machine, and far from enough for all packets.
    mint(node.path(), "alice", &["--cpu", "30ms/10s"]);
    let file = |name: &str| node.path().join(name).display().to_string();
    let (policy, credential) = (file("policy.toml"), file("alice.cred"));
    let run = ["count,flow", "--format", "json", "--policy", &policy, "--credential", &credential];
    let capture = net.capture(&[&run[..], more].concat(), 1);
    // Each packet belongs to another flow than the one before, or all would cost too little.
    let packet = |n| network::ipv4(&[], 17, (1, n), (2, 53), 122);
    net.send(&(0..5000).map(packet).collect::<Vec<_>>(), 300);
    std::thread::sleep(Duration::from_millis(300));
    let out = capture.interrupt();
    let said = text(&out.stderr);
    let account: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    // The kernel drops packets on a busy machine.
    let received = 1_500_000 - account["kernel_drops"].as_u64().unwrap();
    let (mut processed, mut without_time) = (0, 0);
    for module in ["count", "flow"] {
        let of = &account["modules"][module];
        assert_eq!((&of["offered"], &of["adds_up"]), (&received.into(), &true.into()), "{said}");
        without_time += of["shed"]["share"].as_u64().unwrap();
        processed += of["processed"].as_u64().unwrap();
    }
    assert!(processed > 0 && without_time > 1000, "the credential has one share for both: {said}");
}

fn evicted(ended: Option<(Duration, Output)>, reason: &str) {
    let Some((took, out)) = ended else { return };
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("evicted: ") && said.contains(reason), "{said}");
    // One second, and the time to start and end processes on a busy machine.
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(text(&out.stdout).lines().count(), 0, "what it knew is gone");
}

#[test]
fn a_running_module_is_evicted_when_its_credential_is_revoked() {
    let revoke = |folder: &Path| {
        done(folder, &["grant", "revoke", "alice.cred", "--policy", "policy.toml"]);
    };
    common::runner();
    evicted(ended_by(revoke, &[]), "the credential is revoked: block 0");
    evicted(ended_with(&["--isolate"], revoke, &[]), "the credential is revoked: block 0");
}

#[test]
fn a_running_module_is_evicted_when_its_credential_expires() {
    // The credential is minted, and then the run is started. There is enough time for that.
    evicted(
        ended_by(|_| std::thread::sleep(Duration::from_secs(12)), &["--expires", "+12s"])
            .map(|(took, out)| (took.saturating_sub(Duration::from_secs(12)), out)),
        "expired",
    );
}

#[test]
fn a_running_module_is_evicted_when_the_policy_gives_less() {
    let less = |folder: &Path| {
        let path = folder.join("policy.toml");
        let policy =
            std::fs::read_to_string(&path).unwrap().replace("expose = \"all\"", "expose = \"count\"");
        std::fs::write(path, policy).unwrap();
    };
    evicted(ended_by(less, &[]), "the policy grants less now");
}
