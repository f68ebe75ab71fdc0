//! Runs tests in Click's format: `%script`, `%file`, `%expect`, `%ignore` and their kin.

use regex::Regex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The outcome of a test.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// Its `%require` failed, or it names an element that does not exist.
    Skipped(String),
    Failed(String),
}

/// The method of comparing lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Verbatim,
    Braces,
    Regex,
}

struct Section {
    file: String,
    text: String,
    mode: Mode,
    no_spaces: bool,
    ignores_case: bool,
}

#[derive(Default)]
struct Test {
    script: String,
    require: String,
    files: Vec<(String, String)>,
    expects: Vec<Section>,
    ignores: Vec<Section>,
}

fn parse(text: &str) -> Result<Test, String> {
    let mut test = Test::default();
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.trim_end().strip_prefix('%') else { continue };
        let mut words = command.split_ascii_whitespace();
        let name = words.next().unwrap_or("").to_lowercase();
        let (mut names, mut no_spaces, mut ignores_case, mut length) = (Vec::new(), false, false, None);
        for word in words {
            match word.as_bytes() {
                [b'-', flags @ ..] if names.is_empty() && !flags.is_empty() => {
                    no_spaces |= flags.contains(&b'w');
                    ignores_case |= flags.contains(&b'i');
                }
                [b'+', digits @ ..] => {
                    length = std::str::from_utf8(digits).ok().and_then(|d| d.parse::<usize>().ok())
                }
                _ => names.push(word.to_owned()),
            }
        }
        let mut body = String::new();
        while let Some(next) = lines.peek() {
            let is_enough = length.is_some_and(|l| body.len() >= l);
            if is_enough || length.is_none() && next.starts_with('%') {
                break;
            }
            let next = lines.next().unwrap_or("");
            body.push_str(if length.is_none() {
                next.strip_prefix('\\').filter(|n| n.starts_with('%')).unwrap_or(next)
            } else {
                next
            });
        }
        if let Some(length) = length {
            body.truncate(length);
        }
        let defaults = |name: &str| if names.is_empty() { vec![name.to_owned()] } else { names.clone() };
        let section = |file, mode| Section { file, text: body.clone(), mode, no_spaces, ignores_case };
        match name.as_str() {
            "script" | "test" => test.script.push_str(&body),
            "require" => test.require.push_str(&body),
            "file" | "stdin" | "input" => {
                test.files.extend(defaults("stdin").into_iter().map(|f| (f, body.clone())))
            }
            "expect" | "stdout" | "output" => {
                test.expects.extend(defaults("stdout").into_iter().map(|f| section(f, Mode::Braces)));
            }
            "stderr" => test.expects.push(section("stderr".into(), Mode::Braces)),
            "expectv" => {
                test.expects.extend(defaults("stdout").into_iter().map(|f| section(f, Mode::Verbatim)))
            }
            "expectx" => test.expects.extend(defaults("stdout").into_iter().map(|f| section(f, Mode::Regex))),
            "ignore" => test.ignores.extend(defaults("all").into_iter().map(|f| section(f, Mode::Braces))),
            "ignorev" => test.ignores.extend(defaults("all").into_iter().map(|f| section(f, Mode::Verbatim))),
            "ignorex" => test.ignores.extend(defaults("all").into_iter().map(|f| section(f, Mode::Regex))),
            "info" | "desc" | "cut" => {}
            "eof" | "eot" => break,
            other => return Err(format!("unknown section %{other}")),
        }
    }
    Ok(test)
}

fn despaced(line: &str) -> String {
    line.chars().filter(|c| *c == '\n' || !c.is_ascii_whitespace()).collect()
}

/// Returns the regular expression of a line of `%expect`: `{{…}}` is one, `{{?…}}` a comment.
fn braces(line: &str, is_regex: bool, no_spaces: bool) -> String {
    let plain = |t: &str| {
        let t = if no_spaces { despaced(t) } else { t.to_owned() };
        if is_regex { t } else { regex::escape(&t) }
    };
    let (mut out, mut rest) = (String::new(), line.to_owned());
    while let Some((before, middle, after)) = rest
        .split_once("{{")
        .and_then(|(b, r)| r.split_once("}}").map(|(m, a)| (b.to_owned(), m.to_owned(), a.to_owned())))
    {
        if middle.starts_with('?') {
            rest = format!("{}{}", before.trim_end(), after.trim_start());
            continue;
        }
        out.push_str(&plain(&before));
        out.push_str(&format!("(?:{middle})"));
        rest = after;
    }
    out + &plain(&rest)
}

fn matches(section: &Section, line: &str, wanted: &str) -> bool {
    let line = if section.no_spaces { despaced(line) } else { line.to_owned() };
    if section.mode == Mode::Verbatim {
        return line == wanted;
    }
    let case = if section.ignores_case { "(?i)" } else { "" };
    let pattern = braces(wanted, section.mode == Mode::Regex, section.no_spaces);
    // A pattern that this library lacks (look-ahead) matches nothing.
    Regex::new(&format!("{case}\\A{pattern}\\z")).is_ok_and(|r| r.is_match(&line))
}

fn compare(test: &Test, section: &Section, text: &str) -> Result<(), String> {
    if section.mode == Mode::Verbatim {
        return if text == section.text {
            Ok(())
        } else {
            Err(format!("expected {:?}, got {text:?}", section.text))
        };
    }
    let ignores: Vec<&Section> =
        test.ignores.iter().filter(|s| s.file == "all" || s.file == section.file).collect();
    let ignored = |line: &str| {
        ignores.iter().any(|s| {
            s.text.lines().filter(|l| !l.trim().is_empty()).any(|l| matches(s, line.trim_end(), l.trim_end()))
        })
    };
    let kept = |l: &&str| !l.trim().is_empty();
    let got: Vec<&str> = text.lines().filter(kept).filter(|l| !ignored(l)).map(str::trim_end).collect();
    let wanted: Vec<&str> = section.text.lines().filter(kept).map(str::trim_end).collect();
    for i in 0..got.len().max(wanted.len()) {
        let (g, w) = (got.get(i), wanted.get(i));
        if !g.zip(w).is_some_and(|(g, w)| matches(section, g, w)) {
            let show = |l: Option<&&str>| l.map_or("<end>".to_owned(), |l| format!("'{l}'"));
            return Err(format!("{}: line {}: expected {}, got {}", section.file, i + 1, show(w), show(g)));
        }
    }
    Ok(())
}

/// Makes the commands that scripts call: this program by the name `click`, and two that call it.
pub fn commands(folder: &Path) -> PathBuf {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), bin.join("click")).unwrap();
    for (name, text) in [
        ("click-flatten", "exec click flatten \"$@\"\n"),
        ("click-buildtool", "shift\nfor e; do click help $e >/dev/null 2>&1 || exit 1; done\n"),
    ] {
        let path = bin.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    bin
}

/// Runs a shell script with a time limit. Returns whether it succeeded.
fn shell(script: &str, folder: &Path, bin: &Path, input: Stdio) -> Result<bool, String> {
    use std::os::unix::process::CommandExt;
    std::fs::write(folder.join("%script"), script).unwrap();
    let open = |name: &str| std::fs::File::create(folder.join(name)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new("/bin/sh")
        .args(["-e", "./%script"])
        .current_dir(folder)
        .env("PATH", path)
        .env_remove("VALGRIND")
        .stdin(input)
        .stdout(open("stdout"))
        .stderr(open("stderr"))
        .process_group(0)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status.success());
        }
        if Instant::now() > end {
            // The script's own group, which this function made.
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            let _ = child.wait();
            return Err("timed out after 20 s".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a test.
pub fn run(text: &str, bin: &Path) -> Verdict {
    let test = match parse(text) {
        Ok(test) => test,
        Err(e) => return Verdict::Failed(e),
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if !test.require.trim().is_empty() && shell(&test.require, folder, bin, Stdio::null()) != Ok(true) {
        return Verdict::Skipped(format!("requires {}", test.require.trim().lines().next().unwrap_or("")));
    }
    for (name, text) in &test.files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let input = match std::fs::File::open(folder.join("stdin")) {
        Ok(file) => Stdio::from(file),
        Err(_) => Stdio::null(),
    };
    let result = shell(&test.script, folder, bin, input);
    let outputs: HashMap<String, String> = test
        .expects
        .iter()
        .map(|s| s.file.clone())
        .chain(["stderr".to_owned(), "stdout".to_owned()])
        .map(|f| {
            let text = std::fs::read(folder.join(&f)).unwrap_or_default();
            (f, String::from_utf8_lossy(&text).into_owned())
        })
        .collect();
    let missing = outputs.values().flat_map(|t| t.lines()).find(|l| l.contains("unknown element class"));
    let failure = match result {
        Ok(true) => test.expects.iter().find_map(|s| compare(&test, s, &outputs[&s.file]).err()),
        Ok(false) => Some(format!("the script failed: {}", outputs["stderr"].trim())),
        Err(e) => Some(e),
    };
    match (failure, missing) {
        (None, _) => Verdict::Passed,
        (Some(_), Some(line)) => Verdict::Skipped(line.to_owned()),
        (Some(e), None) => Verdict::Failed(e),
    }
}
