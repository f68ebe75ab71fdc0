//! Tests of help in groups, manual pages, completions, `flame doctor`, and messages by level.

use crate::commands::{done, flame, text};
use crate::common::{root, tcp_packet, traces};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

#[test]
fn commands_and_options_stand_in_groups() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--help"][..], &["help"], &["-h"]] {
        let help = done(folder.path(), arguments);
        for part in
            ["Run modules on packets:\n", "Grant rights:\n", "Manage modules on a node:\n", "Options:\n"]
        {
            assert!(help.contains(part), "{arguments:?}: {part}\n{help}");
        }
        assert!(help.contains("  doctor  ") && help.contains("  completions "), "{help}");
    }
    let run = done(folder.path(), &["run", "--help"]);
    let parts =
        ["Packets:\n", "View of the modules:\n", "Records and packets that are written:\n", "Options:\n"];
    let places: Vec<_> = parts.iter().map(|part| run.find(part)).collect();
    assert!(places.iter().all(Option::is_some), "{places:?}\n{run}");
}

/// The commands of a fleet are a program beside this one, or in a folder of PATH.
#[test]
fn commands_of_a_fleet_continue_as_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let (beside, path) = (folder.path().join("beside"), folder.path().join("path"));
    [&beside, &path].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    flame_testing::copy_program(std::path::Path::new(&crate::daemon::flame()), &beside.join("flame"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(beside.join("flame"));
        command.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", path.display())).output().unwrap()
    };
    let missing = run(&["query", "SELECT 1"]);
    let said = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        said.contains("flame query: the program flame-fleet is neither") && said.contains("make fleet"),
        "{said}"
    );
    for (place, status) in [(&path, 7), (&beside, 8)] {
        let echo = format!("#!/bin/sh\nprintf '%s.' \"$@\"\nexit {status}\n");
        flame_testing::script(place.join("flame-fleet"), &echo);
        let query = run(&["query", "SELECT 1", "--format", "csv", "--help"]);
        assert_eq!(
            (text(&query.stdout).as_str(), query.status.code()),
            ("query.SELECT 1.--format.csv.--help.", Some(status))
        );
        let agent = run(&["fleet", "agent", "-c", "node.toml"]);
        assert_eq!(text(&agent.stdout), "fleet.agent.-c.node.toml.");
    }
}

/// Each question of the help stands in the README, too, and a module of that name answers it.
#[test]
fn questions_lead_to_modules() {
    let folder = tempfile::tempdir().unwrap();
    let help = done(folder.path(), &["run", "--help"]);
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, questions) = help.split_once("Questions that the standard modules answer:\n").unwrap();
    let lines: Vec<_> = questions.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert!(lines.len() >= 20, "{lines:?}");
    for pair in lines.chunks(2) {
        let [question, command] = pair else { panic!("{pair:?}") };
        assert!(readme.contains(&format!("| {question} | `{command}` |")), "{question}: {command}");
        let module = command.split(' ').nth(2).unwrap();
        assert!(root().join("modules").join(module).is_dir(), "{command}");
    }
}

/// What a question asks for: columns that a narrow terminal shows, too.
const ASKED: [(&str, &[&str]); 4] = [
    ("dns", &["client", "name", "rcode"]),
    ("http", &["src", "host", "status"]),
    ("talkers", &["key", "bytes"]),
    ("flow", &["src", "dst", "bytes_fwd"]),
];

/// The command of each question answers it over one capture, as it stands in the help.
#[test]
fn each_question_is_answered_by_its_command() {
    if crate::daemon::module("scan").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The demo, and a host that tries the ports of another.
    let mut capture = std::fs::read(root().join("demo/demo.pcap")).unwrap();
    let second = 1_795_300_000u32;
    for port in 1..200u16 {
        let packet = tcp_packet(40_000, port);
        for word in [second, u32::from(port), packet.len() as u32, packet.len() as u32] {
            capture.extend(word.to_le_bytes());
        }
        capture.extend(packet);
    }
    std::fs::write(folder.path().join("FILE"), capture).unwrap();
    let help = done(folder.path(), &["run", "--help"]);
    let (_, questions) = help.split_once("Questions that the standard modules answer:\n").unwrap();
    // The tests of `ids` ask it; to compile it takes as long as all others.
    let commands = questions.lines().map(str::trim).filter(|line| line.starts_with("flame run "));
    let commands = commands.filter(|line| !line.contains("@RULES"));
    let mut asked = 0;
    for command in commands {
        let begun = std::time::Instant::now();
        let mut words: Vec<&str> = command.split(' ').skip(1).collect();
        // A picture in the terminal is in place of records.
        if let Some(at) = words.iter().position(|word| *word == "--plot") {
            words.drain(at..at + 2);
        }
        let rows = done(folder.path(), &[&words[..], &["-q", "--format", "json"]].concat());
        assert!(rows.lines().next().is_some_and(|row| row.starts_with("{\"module\":")), "{command}: {rows}");
        eprintln!("{:>5} ms, {:>4} rows: {command}", begun.elapsed().as_millis(), rows.lines().count());
        let module = words[1];
        for width in ["80", "120"] {
            let narrow = [&words[..], &["-q", "--format", "table", "--width", width]].concat();
            let table = done(folder.path(), &narrow);
            let first = table.lines().take(8).collect::<Vec<_>>().join("\n");
            let columns = ASKED.iter().find(|(of, _)| *of == module).map_or(&[][..], |(_, columns)| columns);
            for column in columns {
                let is_shown = first.split_whitespace().any(|word| word == *column);
                assert!(is_shown, "{column} at a width of {width}: {table}");
            }
        }
        asked += 1;
    }
    assert!(asked >= 9, "{questions}");
}

/// The names of servers are long, and what a table of hellos is read for.
#[test]
fn names_of_servers_stand_in_narrow_tables() {
    let (Some(traces), Some(_)) = (traces(), crate::daemon::module("tls")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let capture = traces.join("open/files/nDPI--teams.pcap").display().to_string();
    let run = ["run", "tls", "-r", &capture, "--expose", "payload:4096", "-q", "--table", "client"];
    for width in ["80", "120"] {
        let table = done(folder.path(), &[&run[..], &["--format", "table", "--width", width]].concat());
        let head = table.lines().nth(1).unwrap();
        assert!(head.contains("src") && head.contains("server_name"), "{width}: {head}");
        assert!(table.contains("teams.microsoft.com") && table.lines().count() > 20, "{table}");
    }
}

/// Returns the lines of `text` after the one that begins with `title`, up to the next line that begins as
/// `end` does.
fn part<'a>(text: &'a str, title: &str, end: &str) -> Vec<&'a str> {
    let after = text.lines().skip_while(|line| !line.starts_with(title)).skip(1);
    after.take_while(|line| !line.starts_with(end)).collect()
}

#[test]
fn variables_and_capabilities_are_the_same_in_help_and_in_the_documents() {
    let folder = tempfile::tempdir().unwrap();
    let (help, page) = (
        done(folder.path(), &["help"]),
        std::fs::read_to_string(root().join("docs/environment.md")).unwrap(),
    );
    for (in_help, end, in_page, least) in [
        ("Environment variables:", "Capabilities", "## Environment variables", 16),
        ("Capabilities", "Sources:", "## Capabilities", 9),
    ] {
        // A name stands alone in its line, before its meaning.
        let help = part(&help, in_help, end).into_iter().filter_map(|line| line.strip_prefix("  "));
        let help: BTreeSet<_> =
            help.filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase())).collect();
        let rows = part(&page, in_page, "## ").into_iter().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let page: BTreeSet<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        assert!(help.len() >= least, "{help:?}");
        assert_eq!(help, page, "flame help and docs/environment.md differ in {in_help}");
    }
    // Each variable that the program reads is documented.
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates/flame/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => files.push(path),
            }
        }
    }
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let code = std::fs::read_to_string(file).unwrap();
        for part in code.split("env::var").skip(1) {
            let name = part.split('(').nth(1).and_then(|rest| rest.strip_prefix('"')?.split('"').next());
            if let Some(name) = name {
                assert!(page.contains(&format!("`{name}`")), "{}: {name}", file.display());
            }
        }
    }
}

#[test]
fn manual_pages_of_all_commands_are_read_by_man() {
    let folder = tempfile::tempdir().unwrap();
    done(folder.path(), &["help", "--man", "man1"]);
    let pages: Vec<_> = std::fs::read_dir(folder.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for page in ["flame.1", "flame-run.1", "flame-grant-mint.1", "flame-doctor.1", "flame-policy-check.1"] {
        assert!(pages.iter().any(|p| p == page), "{page}: {pages:?}");
    }
    let run = std::fs::read_to_string(folder.path().join("man1/flame-run.1")).unwrap();
    assert!(run.contains(".TH flame-run 1") || run.contains(".TH flame\\-run 1"), "{}", &run[..300]);
    assert!(run.contains("expose") && run.contains("Exit status"), "{run}");
    assert!(run.contains("[\\fB\\-G\\fR]") && !run.contains(" \\fR]"), "{run}");
    let Ok(man) = Command::new("man").args(["-l", "man1/flame-run.1"]).current_dir(folder.path()).output()
    else {
        eprintln!("skipped: no man");
        return;
    };
    assert!(!man.status.success() || text(&man.stdout).contains("MODULES"), "{}", text(&man.stdout));
}

#[test]
fn completions_are_scripts_that_their_shells_accept() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, part) in [("bash", "complete "), ("zsh", "#compdef flame"), ("fish", "complete -c flame")] {
        let script = done(folder.path(), &["completions", shell]);
        assert!(script.contains(part) && script.contains("doctor"), "{shell}");
        let path = folder.path().join(shell);
        std::fs::write(&path, &script).unwrap();
        let checked = Command::new(shell).arg("-n").arg(&path).stderr(Stdio::piped()).output();
        match checked {
            Ok(out) => assert!(out.status.success(), "{shell}: {}", text(&out.stderr)),
            Err(_) => eprintln!("skipped: no {shell}"),
        }
    }
    assert_eq!(flame(folder.path(), &["completions", "tcsh"]).status.code(), Some(2));
    // What bash offers after `flame doc`.
    let line =
        "source ./bash; COMP_WORDS=(flame doc); COMP_CWORD=1; _flame flame doc flame; echo ${COMPREPLY[@]}";
    let out = Command::new("bash").args(["-c", line]).current_dir(folder.path()).output().unwrap();
    assert_eq!(text(&out.stdout).trim(), "doctor", "{}", text(&out.stderr));
}

#[test]
fn the_doctor_names_what_is_missing_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let out = flame(folder.path(), &["doctor", "lo", "--format", "json"]);
    assert!(matches!(out.status.code(), Some(0 | 1)), "{}", text(&out.stderr));
    let findings: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for subject in ["rights", "interface lo", "memory", "kernel", "landlock", "seccomp", "cache", "modules"] {
        assert!(findings.iter().any(|f| f["subject"] == subject), "{subject}: {findings:?}");
    }
    for finding in &findings {
        assert_eq!(finding["state"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
    let missing = findings.iter().any(|f| f["state"] == "missing");
    assert_eq!(out.status.code(), Some(i32::from(missing)));
    let out = flame(folder.path(), &["doctor", "nosuch0"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("nosuch0: there is none of this name; there are"),
        "{}",
        text(&out.stderr)
    );
    // A cache that cannot be used is named.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_flame"))
        .args(["doctor", "lo"])
        .env("FLAME_CACHE", file.join("cache"))
        .output()
        .unwrap();
    assert!(text(&out.stdout).contains("remedy: FLAME_CACHE=FOLDER"), "{}", text(&out.stdout));
}

#[test]
fn messages_have_levels() {
    let folder = tempfile::tempdir().unwrap();
    let packet = tcp_packet(1, 80);
    let n = packet.len() as u32;
    let head = [0xa1b2_3c4du32, 4 << 16 | 2, 0, 0, 65535, 1, 1, 0, n, n];
    let mut bytes: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.extend(packet);
    std::fs::write(folder.path().join("in.pcap"), bytes).unwrap();
    let run = |variable: Option<&str>, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
        command.args(["run", "-r", "in.pcap", "-w", "out.pcap", "-q"]).args(more);
        command
            .current_dir(folder.path())
            .env_remove("FLAME_LOG")
            .env("FLAME_CACHE", folder.path().join("cache"));
        if let Some(levels) = variable {
            command.env("FLAME_LOG", levels);
        }
        command.output().unwrap()
    };
    assert_eq!(text(&run(None, &[]).stderr), "", "nothing without being asked");
    let info = run(None, &["-v"]);
    assert!(
        text(&info.stderr).contains("INFO") && text(&info.stderr).contains("packets are read"),
        "{}",
        text(&info.stderr)
    );
    assert!(info.stdout.is_empty(), "messages go to standard error");
    assert_eq!(text(&run(Some("info"), &[]).stderr), text(&info.stderr));
    assert_eq!(text(&run(Some("error"), &["-vvv"]).stderr), "", "the variable precedes");
    let wrong = run(Some("flame=loud"), &[]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("FLAME_LOG=flame=loud"), "{}", text(&wrong.stderr));
    // Text from outside cannot steer the terminal.
    let hostile = flame(folder.path(), &["run", "-r", "\u{1b}[2Jx", "-w", "out.pcap", "-v"]);
    assert!(!text(&hostile.stderr).contains('\u{1b}'), "{}", text(&hostile.stderr));
}

#[test]
fn manuals_of_every_kind_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["file", "paced", "keep", "zeek-json", "points", "talkers", "Queue", "IPRewriter"] {
        let manual = done(folder.path(), &["help", name]);
        assert!(manual.contains(name), "{name}: {manual}");
    }
}

/// Options after a group of options do not stand in it.
#[test]
fn groups_contain_their_own_options_only() {
    let folder = tempfile::tempdir().unwrap();
    for (command, group, other) in [
        ("check", "Admission by time:", "--file"),
        ("run", "Admission by time:", "--quiet"),
        ("install", "Node:", "--as"),
    ] {
        let help = done(folder.path(), &[command, "--help"]);
        let start = help.find(group).unwrap_or_else(|| panic!("{command}: {group}\n{help}"));
        let rest = &help[start + group.len()..];
        let of_group = &rest[..rest.find(":\n").unwrap_or(rest.len())];
        assert!(!of_group.contains(other), "{command}: {other} stands under {group}\n{of_group}");
    }
}
