//! `flame check` reports the cause of a missing or too large bound at the author's source line, with the
//! change that gives a bound. A case is the source of a module (`remedies/NAME.rs` or `.c`), and the advice
//! that is expected for it beside it; `FLAME_WRITE_EXPECTED=1` writes the advice.

use crate::common::{modules_target, root};
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST: &str =
    "abi = 1\nname = \"case\"\nversion = \"1.0.0\"\ndescription = \"a case\"\n\n[needs]\nexpose = \"all\"\n";

fn flame(args: &[&str], kept: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
    // An earlier report on the same module must not be found.
    let cache = kept.join("cache");
    let _ = std::fs::remove_dir_all(&cache);
    command.args(args).env("CARGO_TARGET_DIR", modules_target()).env("FLAME_CACHE", &cache);
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(0), "flame {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Builds a case with source lines, in a folder of its own.
fn build(source: &Path, kept: &Path) -> String {
    let folder = kept.join("case");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("module.toml"), MANIFEST).unwrap();
    if source.extension().is_some_and(|e| e == "rs") {
        let sdk = root().join("sdk/rust");
        let cargo = format!(
            "[package]\nname = \"case\"\nversion = \"1.0.0\"\nedition = \"2024\"\n\n[lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n\n\
             [dependencies]\nflame-module = {{ path = {sdk:?} }}\n\n[workspace]\n"
        );
        std::fs::write(folder.join("Cargo.toml"), cargo).unwrap();
        std::fs::copy(source, folder.join("src/lib.rs")).unwrap();
    } else {
        std::fs::copy(source, folder.join("case.c")).unwrap();
    }
    let out = kept.to_str().unwrap();
    flame(&["build", folder.to_str().unwrap(), "--lines", "--output", out], kept);
    kept.join("case.wasm").to_str().unwrap().to_owned()
}

/// Returns the verdict on batches and the advice about them, without offsets and sizes, which depend on the
/// compilers.
fn advice(wasm: &str, kept: &Path) -> String {
    let text = flame(&["check", wasm], kept);
    let at = text.find("\nverdict").expect("a verdict") + 1;
    let lines = text[at..].lines().take_while(|line| !line.starts_with("flame_init"));
    let mut out = String::new();
    for line in lines {
        let line = line.split(" (byte ").next().unwrap_or(line);
        let verdict = line.strip_prefix("verdict").map(|rest| rest.trim().split(' ').next().unwrap_or(""));
        match verdict {
            Some(class) => out += &format!("verdict {class}\n"),
            None => out += &format!("{line}\n"),
        }
    }
    out.trim_end().to_owned() + "\n"
}

#[test]
fn advice_names_the_line_and_the_change() {
    let folder = root().join("crates/flame/tests/remedies");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e != "expected"))
        .collect();
    sources.sort();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("remedies");
    let mut wrong = Vec::new();
    for source in sources {
        let found = advice(&build(&source, &kept), &kept);
        let place = source.with_extension("expected");
        if std::env::var_os("FLAME_WRITE_EXPECTED").is_some() {
            std::fs::write(&place, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&place).unwrap();
        if found != expected {
            wrong.push(format!("{source:?} is expected to give\n{expected}but gives\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
