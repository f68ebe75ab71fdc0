//! The benchmarks run, and every row exists. Speeds are not tested: they are for people to read.
//! `FLAME` names the command under test.

use std::collections::BTreeMap;
use std::process::Command;

#[test]
fn every_row_is_there() {
    if std::env::var_os("FLAME").is_none() || std::env::var_os("FLAME_MODULES").is_none() {
        eprintln!("skipped: set FLAME and FLAME_MODULES (make test does)");
        return;
    }
    // Groups that compute, beside all others, which wait most of the time.
    const COMPUTING: &str = "memory,commands,modules,bounds,backstop,sharing,rules,dispatch,views,sinks";
    let folder = tempfile::tempdir().unwrap();
    let run = |which: &str| {
        let json = folder.path().join(which);
        let mut bench = Command::new(env!("CARGO_BIN_EXE_flame-bench"));
        let out = bench.args(["--quick", which, COMPUTING, "--json"]).arg(&json).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{said}");
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        (rows, said)
    };
    let (computing, others) = std::thread::scope(|scope| {
        let computing = scope.spawn(|| run("--only"));
        let others = run("--except");
        (computing.join().unwrap(), others)
    });
    let (rows, said) = ([computing.0, others.0].concat(), computing.1 + &others.1);

    let mut there: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row in &rows {
        let value = row["value"].as_f64().unwrap_or(f64::NAN);
        let is_loss = row["name"].as_str().is_some_and(|name| name.starts_with("loss"));
        // Noise can be more than a difference of two times.
        let is_difference = row.to_string().contains("beyond");
        let is_positive = value > 0.0 || is_loss && value == 0.0;
        assert!(value.is_finite() && (is_positive || is_difference), "{row}");
        assert_eq!(row["target"].is_null(), row["met"].is_null(), "{row}");
        let text = |field: &str| row[field].as_str().unwrap().to_owned();
        // The text before the colon is the kind of measurement.
        let group = text("group").split(':').next().unwrap().to_owned();
        *there.entry((group, text("name"))).or_default() += 1;
    }
    let times =
        |group: &str, name: &str| there.get(&(group.to_owned(), name.to_owned())).copied().unwrap_or(0);

    for module in
        ["count", "port", "flow", "rtt", "trajectory", "worm", "lrd", "anonymize", "ids", "geometric mean"]
    {
        for way in ["unchecked", "shipped"] {
            // Calls alone, and the whole path.
            assert_eq!(times("modules", &format!("{module}: {way} / native")), 2, "{module} {way}: {said}");
        }
    }
    let one_run = "one run, one core";
    for module in ["count", "port", "flow", "rtt", "trajectory", "worm", "lrd", "anonymize", "ids"] {
        assert_eq!(times(one_run, module), 1, "{module}: {said}");
    }
    assert_eq!(times(one_run, "trajectory, beyond its view"), 1, "{said}");
    assert_eq!(times(one_run, "all together / own times and one decode"), 1, "{said}");
    for batch in [1, 4, 16, 64, 256] {
        assert_eq!(times("dispatch", &format!("batches of {batch}")), 1, "{batch}: {said}");
    }
    for (view, denominators) in [
        ("all, where it lies (select only)", 2),
        ("descriptors only", 1),
        ("headers", 2),
        ("headers, addresses by prefix", 2),
        ("headers and 64 bytes", 2),
        ("all, copied", 2),
    ] {
        assert_eq!(times("views", view), denominators, "{view}: {said}");
    }
    for row in ["json", "csv", "zeek", "eve", "parquet", "json / serde_json", "parquet / parquet crate"] {
        assert_eq!(times("sinks", row), 1, "{row}: {said}");
    }
    assert_eq!(times("memory", "100 idle instances of flow"), 1, "{said}");
    for row in ["10000 rules / 10 rules", "10000 rules", "memory of 10000 rules"] {
        assert_eq!(times("rules", row), 1, "{row}: {said}");
    }

    // Rivals and namespaces may be missing, but this must be reported. tcpdump is installed by the setup.
    let commands = "whole commands, one core";
    assert_eq!(times(commands, "tcpdump -w /dev/null / count"), 1, "{said}");
    assert_eq!(times(commands, "dns,tls,http,tcp,talkers,scan"), 1, "{said}");
    for rival in [
        "tcpdump 'tcp dst port 80' / port",
        "tcpdump 'tcp dst port 80' / count, filter",
        "softflowd / flow",
        "nfpcapd / flow",
        "traceanon / anonymize",
    ] {
        let told = said.contains(&format!("left out: {rival}"));
        assert_eq!(times(commands, rival), usize::from(!told), "{rival}: {said}");
    }
    let told = said.contains("left out: graphs");
    for row in ["devices alone / bare loop", "IP router / bare loop", "IP router in memory / on devices"] {
        assert_eq!(times("graphs", row), usize::from(!told), "{row}: {said}");
    }
    for row in ["null module beyond a native one", "router with a null module / without"] {
        assert_eq!(times("elements", row), 1, "{row}: {said}");
    }
    let told = said.contains("left out: overload");
    for name in ["with the control", "without it"] {
        for row in ["useful work / peak", "loss of the highest priority"] {
            assert_eq!(times("overload", &format!("{row}, {name}")), usize::from(!told), "{row}: {said}");
        }
    }
    let told = said.contains("left out: live receive");
    for way in ["flame run count -i", "loop that decodes and counts"] {
        assert_eq!(times("live receive", &format!("{way} / bare ring")), usize::from(!told), "{said}");
    }
    let told = said.contains("left out: loss-free");
    for place in ["a core of its own", "the kernel's part on its core"] {
        let row = format!("four modules / bare ring, {place}");
        assert_eq!(times("loss-free", &row), usize::from(!told), "{row}: {said}");
    }
    for module in ["count", "flow", "ids"] {
        for way in ["2 workers", "2 runs that share nothing"] {
            assert_eq!(times("workers", &format!("{module}: {way}")), 1, "{module}: {way}: {said}");
        }
    }
    for row in ["elapsed time", "processor time"] {
        assert_eq!(times("processes", row), 1, "{row}: {said}");
    }
    for row in ["installs of 20", "memory of 20", "processor time, 20 / 10"] {
        assert_eq!(times("sessions", row), 1, "{row}: {said}");
    }
    for row in [
        "install to the first packet",
        "the same, beside another",
        "revocation by the API",
        "revocation in the list",
    ] {
        assert_eq!(times("API", row), 1, "{row}: {said}");
    }
}

/// Each experiment writes its plots and their numbers, or reports the reason why it cannot be run here.
#[test]
fn every_experiment_has_its_plots() {
    if std::env::var_os("FLAME").is_none() || std::env::var_os("FLAME_MODULES").is_none() {
        eprintln!("skipped: set FLAME and FLAME_MODULES (make test does)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_flame-bench"));
    let out = bench.arg("--quick").arg("--experiments").arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    for (name, plots) in [
        ("shares", &["shares"][..]),
        ("buffering", &["buffering"]),
        ("heaps", &["heaps"]),
        ("work", &["work"]),
        ("load", &["load", "load-loss", "load-processor", "load-workers"]),
        ("forwarding", &["forwarding"]),
        ("null", &["null"]),
        ("payload", &["payload"]),
        ("applications", &["applications"]),
        ("estimates", &["estimates"]),
        ("repairs", &["repairs", "repairs-hits"]),
        ("sending", &["sending"]),
        ("classes", &["classes"]),
    ] {
        let told = said.contains(&format!("left out: {name}:"));
        for plot in plots {
            for kind in ["svg", "csv"] {
                let path = folder.path().join(format!("{plot}.{kind}"));
                assert_eq!(path.is_file(), !told, "{plot}.{kind}: {said}");
            }
        }
    }
}

/// Returns the number of the user.
fn user() -> String {
    let out = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Counts do not depend on the machine, so their shape is tested: the order of workloads, and the classes.
#[test]
fn the_report_has_each_figure_and_its_counts_have_the_papers_shape() {
    if std::env::var_os("FLAME").is_none() || std::env::var_os("FLAME_MODULES").is_none() {
        eprintln!("skipped: set FLAME and FLAME_MODULES (make test does)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_flame-bench"));
    let bench = bench.args(["--quick", "--only", "instructions,links,classes,repairs,sites", "--paper"]);
    let out = bench.arg(folder.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report = std::fs::read_to_string(folder.path().join("paper.md")).unwrap();
    let row = |what: &str| {
        report.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {report}"))
    };
    for what in [
        "order by instructions: count, filter, flows",
        "packets within a tenth of the median",
        "elements whose cost has a bound",
        "the error grows with the part that is left out",
    ] {
        assert!(row(what).contains("| reproduced |") || row(what).contains("| better |"), "{}", row(what));
    }
    // They need namespaces. Their times depend on the machine's load.
    if user() == "0" {
        assert!(row("| Fig. 3 | one-way delay").contains(" ms at rest, "), "{report}");
        assert!(row("| Fig. 4 | round trips").contains(" of 8 targets from the well"), "{report}");
    }
    // What was not run, and what cannot be, is listed.
    assert!(row("| Fig. 5.3 |").contains("its experiment was not run"), "{report}");
    assert!(row("| Fig. 6 |").contains("cannot be had here: its experiment"), "{report}");
    let html = std::fs::read_to_string(folder.path().join("paper.html")).unwrap();
    assert!(
        html.contains("<svg") && !html.contains("src=") && !html.contains("href="),
        "no outside resources"
    );
}
