//! Tests in Click's format: our own in `tests/cases`, and Click's in the folder `FLAME_CLICKTESTS`.

#[path = "common/clicktest.rs"]
mod clicktest;
#[path = "common/mod.rs"]
mod common;

use clicktest::{Verdict, commands, run};
use flame_element::driver::{Invocation, run as run_click};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Called by the name `click`, this program is `flame click`; else it runs the tests.
fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.next().is_some_and(|a| Path::new(&a).file_name() == Some("click".as_ref())) {
        return match Invocation::parse(args.map(OsStringExt::into_vec)) {
            Ok(invocation) => {
                ExitCode::from(run_click(&invocation, common::LANGUAGE, None, Default::default()))
            }
            Err(message) => {
                eprintln!("click: {message}");
                ExitCode::FAILURE
            }
        };
    }
    the_runner_sees_differences();
    our_cases_pass();
    clicks_own_scripts_pass();
    ExitCode::SUCCESS
}

fn tests(folder: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            tests(&path, into);
        } else if path.extension().is_some_and(|e| e == "clicktest" || e == "testie") {
            into.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

fn our_cases_pass() {
    let folder = tempfile::tempdir().unwrap();
    let bin = commands(folder.path());
    let mut all = Vec::new();
    tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"), &mut all);
    assert!(!all.is_empty());
    let failed: Vec<String> = all
        .iter()
        .filter_map(|path| match run(&read(path), &bin) {
            Verdict::Passed => None,
            other => Some(format!("{}: {other:?}", path.file_name().unwrap().to_string_lossy())),
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), all.len(), failed.join("\n"));
}

/// Four fifths of Click's scripts whose elements exist here must pass at least.
fn clicks_own_scripts_pass() {
    let Some(given) = std::env::var_os("FLAME_CLICKTESTS") else {
        return eprintln!("skipped: FLAME_CLICKTESTS names no folder with Click's tests");
    };
    let folder = tempfile::tempdir().unwrap();
    let bin = commands(folder.path());
    let mut all = Vec::new();
    tests(Path::new(&given), &mut all);
    let (mut passed, mut skipped, mut failed) = (0, 0, 0);
    for path in &all {
        let name = path.strip_prefix(&given).unwrap_or(path).display();
        match run(&read(path), &bin) {
            Verdict::Passed => {
                passed += 1;
                println!("pass {name}");
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                println!("skip {name}: {why}");
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("FAIL {name}: {why}");
            }
        }
    }
    println!("{passed} of {} scripts whose elements exist pass; {skipped} skipped", passed + failed);
    assert!(passed > 0 && passed * 5 >= (passed + failed) * 4, "{passed} pass, {failed} fail");
}

fn the_runner_sees_differences() {
    let folder = tempfile::tempdir().unwrap();
    let bin = commands(folder.path());
    for (text, passes) in [
        ("%script\necho a b; echo x >&2\n%expect -w\na  {{[abc]}}\n%expectx stderr\n[w-z]\n", true),
        ("%script\necho a\n%expect\nb\n", false),
        ("%script\necho a; echo b\n%expect\na\n", false),
        ("%script\necho '!n'; echo b\n%ignore\n!{{.*}}\n%expect\nb {{? a comment}}\n", true),
        ("%script\nfalse\n%expect\n", false),
        ("%script\nprintf 'a\\n'\n%expectv +2 stdout\na\n", true),
        ("%script\ncat f\n%file f\n\\%x\n%expect\n\\%x\n", true),
    ] {
        assert_eq!(run(text, &bin) == Verdict::Passed, passes, "{text}");
    }
    assert!(matches!(run("%require\nfalse\n%script\ntrue\n", &bin), Verdict::Skipped(_)));
    let unknown = "%script\nclick -e 'NoSuchElement'\n";
    assert!(matches!(run(unknown, &bin), Verdict::Skipped(_)));
}
