//! Tests of readers that go away, and of homes that cannot be written.

use crate::feed::{capture, command, each, header, record, signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns a pipe whose reader is gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn no_command_panics_without_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let module = each(path).to_str().unwrap().to_owned();
    let module = module.as_str();
    capture(&path.join("c.pcap"), 20_000);
    let run = |more: &[&'static str]| [&["run", module, "-r", "c.pcap", "--batch", "1"][..], more].concat();
    let commands: Vec<Vec<&str>> = vec![
        run(&[]),
        run(&["--format", "json"]),
        run(&["--format", "csv"]),
        run(&["--interval", "10ms", "--stats", "json"]),
        run(&["--format", "json", "--stats", "table", "--workers", "2"]),
        vec!["run", module, "-r", "nowhere.pcap"],
        vec!["run", "nowhere", "-r", "c.pcap"],
        vec!["run", "--nonsense"],
        vec!["run", "--help"],
        vec!["--help"],
        vec!["--version"],
        vec!["help", "json"],
        vec!["inspect", module],
        vec!["check", module, "--explain"],
        vec!["modules"],
        vec!["join", "nowhere.json"],
    ];
    for command in &commands {
        for (is_out_open, is_err_open) in [(false, false), (true, false), (false, true)] {
            let open = |is_open: bool| if is_open { Stdio::piped() } else { closed() };
            let out = Command::new(env!("CARGO_BIN_EXE_flame"))
                .args(command)
                .env("FLAME_CACHE", path.join("cache"))
                .current_dir(path)
                .stdin(Stdio::null())
                .stdout(open(is_out_open))
                .stderr(open(is_err_open))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            // A panic has status 101; a signal has no status.
            assert!(matches!(out.status.code(), Some(0..=5)), "{command:?}: {} {said}", out.status);
            assert!(!said.contains("panicked"), "{command:?}: {said}");
        }
    }
}

/// The row of the last packet does not wait for another packet, wherever modules run, and neither does the
/// end after an interrupt.
#[test]
fn rows_of_a_quiet_pipe_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    for more in [&["--workers", "1"][..], &["--workers", "2"], &["--isolate"]] {
        let arguments = [&["-r", "-", "--format", "json", "-q"][..], more].concat();
        let mut child = command(folder.path(), &arguments).stdin(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (row, rows) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| row.send(line).unwrap());
        });
        input.write_all(&header()).unwrap();
        for n in 0..3 {
            input.write_all(&record(n)).unwrap();
            let line = rows.recv_timeout(Duration::from_secs(60));
            assert!(line.as_ref().is_ok_and(|line| line.contains("each")), "{more:?}, packet {n}: {line:?}");
        }
        signal(child.id(), "INT");
        let (told, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send((reader.join(), child.wait())));
        let (reader, status) = ended.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(input);
        reader.unwrap();
        assert!(rows.try_recv().is_err() && status.unwrap().success(), "{more:?}");
    }
}

/// Bytes that come one by one are no packet for long.
#[test]
fn an_interrupt_ends_a_run_whose_pipe_dribbles() {
    let folder = tempfile::tempdir().unwrap();
    for more in [&["--workers", "1"][..], &["--isolate"]] {
        let arguments = [&["-r", "-", "--format", "json", "-q"][..], more].concat();
        let mut child = command(folder.path(), &arguments).stdin(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        input.write_all(&[header(), record(0)].concat()).unwrap();
        let dribble = std::thread::spawn(move || {
            for byte in record(1).chunks(1).cycle() {
                if input.write_all(byte).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(80));
            }
        });
        // The row of the first packet is written, and then an interrupt ends the run.
        let mut rows = BufReader::new(output).lines();
        assert!(rows.next().unwrap().unwrap().contains("each"), "{more:?}");
        let began = std::time::Instant::now();
        signal(child.id(), "INT");
        let took = |child: &mut std::process::Child| (child.wait().unwrap().code(), began.elapsed());
        let (status, elapsed) = took(&mut child);
        // The packet that had begun is cut short. The next one would end five seconds later.
        assert!(elapsed < Duration::from_secs(4), "{more:?}: {elapsed:?}");
        assert!(matches!(status, Some(0 | 3)), "{more:?}: {status:?}");
        dribble.join().unwrap();
    }
}

/// A pipe without a header of a capture is no reason to go on.
#[test]
fn an_interrupt_ends_a_run_whose_input_has_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    for begun in [0, 3, 23] {
        let mut run = command(folder.path(), &["-r", "-", "--format", "json"]);
        let mut child = run.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(&header()[..begun]).unwrap();
        // Until it waits in a read of the pipe, an interrupt ends it otherwise.
        let (mut stdin, mut said) = (child.stdin.take(), String::new());
        let waits = || {
            let path = format!("/proc/{}/task/{0}/syscall", child.id());
            std::fs::read_to_string(path).is_ok_and(|call| call.starts_with("0 0x"))
        };
        crate::common::eventually("a read", waits);
        signal(child.id(), "INT");
        let mut stderr = child.stderr.take().unwrap();
        let (told, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send((stderr.read_to_string(&mut said), said, child.wait())));
        let (_, said, status) = ended.recv_timeout(Duration::from_secs(60)).unwrap();
        drop(stdin.take());
        assert_eq!(status.unwrap().code(), Some(130), "{begun}: {said}");
        assert!(said.contains("interrupted before the input began"), "{begun}: {said}");
    }
}

/// The other elements of its thread run meanwhile.
#[test]
fn a_graph_that_reads_a_quiet_pipe_goes_on_and_ends() {
    let text =
        "FromDump(/dev/stdin) -> c :: Counter -> Discard; Script(wait 0.5s, print \"later\", wait 60s)";
    let mut click = Command::new(env!("CARGO_BIN_EXE_flame"));
    click.args(["click", "-e", text, "-h", "c.count"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = click.spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    input.write_all(&[header(), record(0), record(1)].concat()).unwrap();
    let (line, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|text| line.send(text).unwrap());
    });
    let next = || lines.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(next(), "later");
    signal(child.id(), "INT");
    let told: Vec<String> = std::iter::from_fn(|| lines.recv_timeout(Duration::from_secs(60)).ok()).collect();
    assert!(told.iter().any(|line| line == "2"), "{told:?}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_rest_of_a_pipeline_decides_how_much_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let module = each(folder.path());
    capture(&folder.path().join("c.pcap"), 20_000);
    let script = "set -o pipefail; \"$1\" run \"$2\" -r c.pcap --batch 1 --format json 2>&1 | head -n 1";
    let out = Command::new("bash")
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_flame"), module.to_str().unwrap()])
        .env("FLAME_CACHE", folder.path().join("cache"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn a_home_that_cannot_be_written_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    capture(&folder.path().join("c.pcap"), 10);
    let run = |more: &[&str]| {
        let mut run = command(folder.path(), &[&["-r", "c.pcap", "--format", "json"], more].concat());
        run.env_remove("FLAME_CACHE").env_remove("XDG_CACHE_HOME").env("HOME", "/dev/null/home");
        let out = run.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert_eq!(out.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{said}");
        said
    };
    let said = run(&[]);
    assert_eq!(said.matches("running without a cache").count(), 1, "{said}");
    assert!(said.contains("FLAME_CACHE"), "the remedy is named: {said}");
    assert_eq!(run(&["-q"]), "");
}

/// The account tells what was lost.
#[test]
fn an_output_that_is_full_does_not_hide_the_account() {
    let folder = tempfile::tempdir().unwrap();
    let module = each(folder.path());
    let path = folder.path().join("c.pcap");
    capture(&path, 10);
    for format in ["json", "csv", "table"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let out = Command::new(env!("CARGO_BIN_EXE_flame"))
            .arg("run")
            .arg(&module)
            .arg("-r")
            .arg(&path)
            .args(["--format", format])
            .env("FLAME_CACHE", folder.path().join("cache"))
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{format}: {said}");
        assert!(said.contains("10 packets read") && said.contains("No space left"), "{format}: {said}");
        assert!(said.contains("what was written so far stays; make room"), "{format}: {said}");
    }
}
