//! Tests of files that are completed while a run continues: by time, by size, by a signal; and of what is
//! left when it is killed or the disk is full.

use crate::feed::{self, Fed, capture, command, complete, packets, partial};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs over a file of `count` packets in `folder`.
fn over_file(folder: &Path, count: u32, arguments: &[&str]) -> (Option<i32>, String) {
    capture(&folder.join("c.pcap"), count);
    let out = command(folder, &[&["-r", "c.pcap", "-q"], arguments].concat()).output().unwrap();
    (out.status.code(), text(&out.stderr))
}

#[test]
fn files_are_complete_when_they_have_their_names() {
    for (format, extension) in [("json", "json"), ("csv", "csv"), ("parquet", "parquet"), ("table", "txt")] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("rows.{extension}");
        let mut fed = Fed::new(
            folder.path(),
            &["--format", format, "-o", &name, "--rotate", "200ms", "--interval", "10ms", "-q"],
        );
        fed.send_until("three files", || {
            let files = complete(folder.path(), "rows");
            for path in files.iter().filter(|_| format == "parquet") {
                let bytes = std::fs::read(path).unwrap();
                assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{}", path.display());
            }
            files.len() >= 3
        });
        let sent = u64::from(fed.sent);
        let end = fed.end();
        assert_eq!(end.code, Some(0), "{format}: {}", end.stderr);
        let files = complete(folder.path(), "rows-");
        assert_eq!(files.len(), complete(folder.path(), "rows").len(), "names have times: {files:?}");
        assert!(partial(folder.path()).is_empty());
        if format == "json" {
            assert_eq!(packets(&files), sent);
        }
        if format == "csv" {
            let text: Vec<_> = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
            assert!(text.iter().all(|text| text.starts_with("packets\n")), "each file has its header");
            let sum: u64 =
                text.iter().flat_map(|t| t.lines().skip(1)).map(|n| n.parse::<u64>().unwrap()).sum();
            assert_eq!(sum, sent);
        }
    }
}

#[test]
fn files_of_a_size_hold_all_rows_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let arguments = ["--batch", "1", "--interval", "10ms", "--format", "json", "-o"];
    let (code, said) = over_file(path, 2000, &[&arguments[..], &["all.json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let all = std::fs::read_to_string(path.join("all.json")).unwrap();
    let rotated = [&arguments[..], &["part.json", "--rotate", "4kB"]].concat();
    let (code, said) = over_file(path, 2000, &rotated);
    assert_eq!(code, Some(0), "{said}");
    let mut files = complete(path, "part");
    // The second file of a second is numbered 2, the tenth 10.
    files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
    let sizes: Vec<_> = files.iter().map(|file| file.metadata().unwrap().len()).collect();
    assert!(
        files.len() > 5 && sizes[..sizes.len() - 1].iter().all(|n| (4000..6000).contains(n)),
        "{sizes:?}"
    );
    assert_eq!(packets(&files), 2000);
    assert_eq!(sizes.iter().sum::<u64>(), all.len() as u64);

    // Files that are there are not replaced, and of this run's only the latest are kept.
    let (code, said) = over_file(path, 2000, &[&rotated[..], &["--keep", "2"]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(complete(path, "part").len(), files.len() + 2);
    assert_eq!(packets(&files), 2000);
}

#[test]
fn names_of_tcpdump_count_or_go_around() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // Each row has 44 bytes.
    let run = |more: &[&str]| {
        let fixed = ["--batch", "1", "--interval", "100ms", "--format", "json", "-C", "1", "-o"];
        over_file(path, 90_000, &[&fixed[..], more].concat())
    };
    let (code, said) = run(&["n.json"]);
    assert_eq!(code, Some(0), "{said}");
    let names = |begin: &str| {
        let name = |file: PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
        complete(path, begin).into_iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("n"), ["n.json", "n1.json", "n2.json", "n3.json"]);
    assert_eq!(packets(&complete(path, "n")), 90_000);
    let (code, said) = run(&["r.json", "-W", "2"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(names("r"), ["r0.json", "r1.json"]);
    assert!(packets(&complete(path, "r")) < 90_000);
}

#[test]
fn so_many_files_then_the_run_ends() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--format", "json", "-o", "rows-%Y-%s.json", "-G", "1", "-W", "2", "-q"];
    let fed = Fed::new(folder.path(), &arguments);
    let end = fed.send_to_the_end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let files = complete(folder.path(), "rows-2");
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(packets(&files) > 0);
}

#[test]
fn a_run_ends_after_its_duration() {
    let folder = tempfile::tempdir().unwrap();
    let fed = Fed::new(folder.path(), &["--format", "json", "--duration", "300ms", "-q"]);
    let end = fed.send_to_the_end();
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    assert!(end.stdout.contains("\"packets\":"), "{}", end.stdout);
}

/// Starts a run with rows in `rows.json`, by another program that becomes it.
fn rows_by(folder: &Path, program: &[&str]) -> Fed {
    let inner = command(folder, &["-r", "-", "--format", "json", "-o", "rows.json", "-q"]);
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(inner.get_program()).args(inner.get_args()).current_dir(folder);
    command.env("FLAME_CACHE", folder.join("cache"));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Fed::of(command)
}

#[test]
fn signals_complete_files_and_the_run_goes_on() {
    for signal in ["USR1", "HUP"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // The tests themselves may run under nohup.
        let mut fed = rows_by(path, &["env", "--default-signal=HUP"]);
        let pid = fed.pid();
        fed.send_until("the partial file", || !partial(path).is_empty());
        for files in 1..=3 {
            (0..10).for_each(|_| assert!(fed.send()));
            // A signal before the first row of a file completes none.
            let mut rows = 0;
            fed.send_until("a complete file", || {
                if rows % 200 == 0 {
                    feed::signal(pid, signal);
                }
                rows += 1;
                complete(path, "rows").len() >= files
            });
        }
        let sent = u64::from(fed.sent);
        let end = fed.end();
        assert_eq!(end.code, Some(0), "{signal}: {}", end.stderr);
        let files = complete(path, "rows");
        assert!(files.contains(&path.join("rows.json")) && files.len() >= 4, "{signal}: {files:?}");
        assert_eq!(packets(&files), sent, "{signal}");
    }
}

#[test]
fn a_signal_writes_what_was_collected_to_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let (mut rows, stdout) = std::io::pipe().unwrap();
    let mut command = command(folder.path(), &["-r", "-", "--format", "json", "-q"]);
    command.stdout(stdout);
    let mut fed = Fed::of(command);
    let pid = fed.pid();
    // Before the program listens, the signal would end it.
    fed.send_until("the listener", || signals_caught(pid));
    let (row, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 8];
        row.send(rows.read_exact(&mut bytes).map(|()| bytes))
    });
    fed.signal("USR1");
    fed.send_until("a row", || match read.try_recv() {
        Ok(bytes) => bytes.unwrap() == *b"{\"module",
        Err(_) => false,
    });
    assert_eq!(fed.end().code, Some(0));
}

/// Returns whether a process catches SIGUSR1.
fn signals_caught(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> 9 & 1 == 1)
}

#[test]
fn nohup_keeps_its_meaning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut fed = rows_by(path, &["nohup"]);
    fed.send_until("the partial file", || !partial(path).is_empty());
    fed.signal("HUP");
    (0..200).for_each(|_| assert!(fed.send()));
    assert!(complete(path, "rows").is_empty(), "SIGHUP is ignored");
    let sent = u64::from(fed.sent);
    assert_eq!(fed.end().code, Some(0));
    assert_eq!(packets(&complete(path, "rows")), sent);
}

#[test]
fn what_was_complete_survives_a_kill() {
    for format in ["json", "parquet"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let name = format!("rows.{format}");
        let arguments = ["--format", format, "-o", &name, "--rotate", "100ms", "--interval", "10ms", "-q"];
        let mut fed = Fed::new(path, &arguments);
        fed.send_until("two files", || complete(path, "rows").len() >= 2);
        fed.signal("KILL");
        assert_eq!(fed.end().code, None);
        let files = complete(path, "rows");
        assert!(files.len() >= 2 && !partial(path).is_empty());
        if format == "json" {
            assert!(packets(&files) > 0);
        } else {
            assert!(files.iter().all(|file| std::fs::read(file).unwrap().ends_with(b"PAR1")));
        }
    }
}

#[test]
fn a_full_disk_is_named_and_complete_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let disk = path.join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = format!("mount -t tmpfs -o size=1m none {}", disk.display());
    let probe = Command::new("unshare").args(["-m", "sh", "-c", &mount]).output();
    if !probe.is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no small disk can be made here (needs root and unshare)");
        return;
    }
    capture(&path.join("c.pcap"), 90_000);
    // Rows of CSV and Parquet are short, so less room is left for them: some files, or none at all.
    // Odd sizes make the disk full within a line, at the end of a file, and while a file begins.
    let odd = [123_457, 400_001, 777_777, 921_600, 983_040, 1_040_000].map(|taken| ("json", taken, 0));
    let cases = [("json", 0, 5), ("csv", 900_000, 1), ("parquet", 2_000_000, 0)];
    for (format, taken, least) in cases.into_iter().chain(odd) {
        let output = format!("disk/rows.{format}");
        let fixed = ["-r", "c.pcap", "-q", "--batch", "1", "--interval", "100ms", "--rotate", "60kB"];
        let run = command(path, &[&fixed[..], &["--format", format, "-o", &output]].concat());
        let fill = format!("head -c {taken} /dev/zero > disk/other 2> disk/said");
        let script =
            format!("{mount} && {{ {fill}; \"$@\"; echo status $?; ls disk; tail -qc 1 disk/rows-*; }}");
        let mut shell = Command::new("unshare");
        shell.args(["-m", "sh", "-c", &script, "sh"]).arg(run.get_program()).args(run.get_args());
        shell.env("FLAME_CACHE", path.join("cache")).current_dir(path);
        let out = shell.output().unwrap();
        let (said, listed) = (text(&out.stderr), text(&out.stdout));
        assert!(listed.contains("status 1\n"), "{format}: {listed}{said}");
        assert!(said.contains("No space left on device") && said.contains("disk/rows"), "{format}: {said}");
        assert!(!said.contains("panicked") && !listed.contains(".partial"), "{format}: {said}{listed}");
        let files = listed.lines().filter(|line| line.starts_with("rows-")).count();
        assert!(files >= least, "{format}: {listed}");
        // Each complete file ends with a whole line.
        assert!(format == "parquet" || listed.ends_with(&"\n".repeat(files)), "{format}: {listed:?}");
        let part = " bytes are removed; files that were complete stay; make room, or limit the files";
        assert!(said.contains(part), "{format}: {said}");
        let before = said.split(part).next().unwrap();
        let bytes = before.rsplit(' ').next().unwrap().replace(',', "");
        assert!(bytes.parse::<u64>().is_ok_and(|bytes| bytes <= 1 << 20), "{format}: {said}");
    }
}

#[test]
fn options_that_cannot_work_are_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--rotate", "1m"], "add -o FILE"),
        (&["--rotate", "1m", "-o", "-"], "add -o FILE"),
        (&["--rotate", "1m", "-o", "/dev/null"], "add -o FILE"),
        (&["--rotate", "fast", "-o", "x.json"], "expected a time such as 10s"),
        (&["--rotate", "1m,2m", "-o", "x.json"], "one time and one size"),
        (&["--keep", "3", "-o", "x.json"], "--rotate"),
        (&["-W", "3", "-o", "x.json"], "add one of them"),
        (&["--rotate", "1m", "-G", "5", "-o", "x.json"], "cannot be used with"),
        (&["--rotate", "1m", "-o", "x-%Q.json"], "no time for strftime"),
        (&["--duration", "0s"], "longer than 0"),
    ];
    for (arguments, expected) in cases {
        let (code, said) = over_file(folder.path(), 1, &[&["--format", "json"], *arguments].concat());
        assert!(matches!(code, Some(1 | 2)) && said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(complete(folder.path(), "x").is_empty() && partial(folder.path()).is_empty());
}
