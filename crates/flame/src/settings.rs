//! Parameters of modules from the command line.

use crate::caller::{self, Caller};
use crate::error::Error;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The beginning of a line that names the file of the lines after it, where a text is made of several files.
const FILE: &str = "#!file ";
/// The extension of the files of a folder, and of files whose lines are always preceded by their name.
const RULES: &str = "rules";

/// Returns the values of `MODULE.PARAMETER=VALUE` by module. The value `@PATH` stands for the text of a file
/// or of the files `*.rules` of a folder, of a key of 32 bytes for its hexadecimal digits, and `@@…` for a
/// value that begins with one `@`. A parameter that is given several files has the text of all of them.
pub fn settings(set: &[String]) -> Result<BTreeMap<String, BTreeMap<String, String>>, Error> {
    let mut all = Vec::new();
    for text in set {
        match text.split_once('=').and_then(|(k, v)| Some((k.split_once('.')?, v))) {
            Some(((module, name), value)) => all.push((text.as_str(), module, name, value)),
            None => return Err(format!("--set {text}: expected MODULE.PARAMETER=VALUE").into()),
        }
    }
    by_module("--set ", &all)
}

/// Returns the values of `PARAMETER=VALUE`, in the same way.
pub fn values(set: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let mut all = Vec::new();
    for text in set {
        match text.split_once('=') {
            Some((name, value)) => all.push((text.as_str(), "", name, value)),
            None => return Err(format!("--set {text}: expected PARAMETER=VALUE").into()),
        }
    }
    Ok(by_module("--set ", &all)?.remove("").unwrap_or_default())
}

/// Returns the values of the arguments `PARAMETER VALUE` of an element, in the same way.
pub fn arguments(all: &[(String, String)]) -> Result<BTreeMap<String, String>, Error> {
    let all: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), "", name.as_str(), &**value)).collect();
    Ok(by_module("", &all)?.remove("").unwrap_or_default())
}

/// Collects values: the text of each, its module, parameter and value. `option` precedes texts in errors.
fn by_module(
    option: &str,
    all: &[(&str, &str, &str, &str)],
) -> Result<BTreeMap<String, BTreeMap<String, String>>, Error> {
    let mut settings: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    // The option that names files, and the files.
    let mut files: BTreeMap<(&str, &str), (&str, Vec<PathBuf>)> = BTreeMap::new();
    for (text, module, name, value) in all {
        let file = value.strip_prefix('@').filter(|rest| !rest.starts_with('@'));
        let of_module = settings.entry((*module).to_owned()).or_default();
        if file.is_some() != files.contains_key(&(*module, *name)) && of_module.contains_key(*name) {
            return Err(format!("{option}{text}: {name} is either a value or files, not both").into());
        }
        // The text of files replaces an empty value.
        let literal = match file {
            Some(path) => {
                files.entry((*module, *name)).or_insert((*text, Vec::new())).1.push(path.into());
                ""
            }
            None if value.starts_with("@@") => &value[1..],
            None => value,
        };
        of_module.insert((*name).to_owned(), literal.to_owned());
    }
    for ((module, name), (text, paths)) in files {
        let value = text_of(&paths).map_err(|e| format!("{option}{text}: {e}"))?;
        settings.entry(module.to_owned()).or_default().insert(name.to_owned(), value);
    }
    Ok(settings)
}

/// Returns the text of files, and of the files `*.rules` of folders in the order of their names, up to the
/// size that fits a module's parameters. A line with its name precedes each file, unless there is only one,
/// which may be no list of rules.
pub fn text_of(paths: &[PathBuf]) -> Result<String, Error> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(files_of(path)?);
        } else {
            files.push(path.clone());
        }
    }
    if let [file] = &files[..]
        && file.extension().is_none_or(|e| e != RULES)
    {
        return read(file, flame_abi::layout::MAX_TEXTS as usize);
    }
    let mut text = String::new();
    for file in files {
        let name = file.to_string_lossy().replace(char::is_control, " ");
        text += &format!("{FILE}{name}\n");
        let room = (flame_abi::layout::MAX_TEXTS as usize).saturating_sub(text.len() + 1);
        text += &read(&file, room)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

/// Returns the files `*.rules` of a folder.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    Caller::here().may_name("a folder", "name its files")?;
    let fail = |reason: String| -> Error { format!("{}: {reason}", folder.display()).into() };
    let entries = std::fs::read_dir(folder).map_err(|e| fail(e.to_string()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| fail(e.to_string()))?.path();
        if path.extension().is_some_and(|e| e == RULES) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(fail("no files *.rules in this folder".to_owned()));
    }
    files.sort();
    Ok(files)
}

/// Returns a file's text of at most `limit` bytes.
fn read(file: &Path, limit: usize) -> Result<String, Error> {
    let mut text = Vec::new();
    let read = caller::open(file)?.take(limit as u64 + 1).read_to_end(&mut text);
    let name = file.display();
    read.map_err(|e| format!("{name}: {e}"))?;
    if text.len() > limit {
        let most = flame_abi::layout::MAX_TEXTS >> 20;
        return Err(format!("{name}: more than fits: all texts together are at most {most} MiB").into());
    }
    // Rule files in Latin-1 exist, mostly for the sake of comments and messages. `ids` refuses a rule that
    // compares bytes which were replaced here.
    let text = String::from_utf8(text).map(unmarked);
    match text {
        Ok(text) => Ok(text),
        Err(e) if file.extension().is_some_and(|e| e == RULES) => {
            Ok(unmarked(String::from_utf8_lossy(e.as_bytes()).into_owned()))
        }
        // A key as `--key` takes it.
        Err(e) if e.as_bytes().len() == 32 => Ok(flame_trust::hex(e.as_bytes())),
        Err(e) => Err(format!("{name}: byte {} is not UTF-8", e.utf8_error().valid_up_to()).into()),
    }
}

/// Returns the text of a file without lines that would name another file. They stay comments.
fn unmarked(text: String) -> String {
    if !text.contains(FILE) {
        return text;
    }
    let line = |line: &str| match line.trim_start_matches('\u{feff}').strip_prefix(FILE) {
        Some(rest) => format!("# file {rest}"),
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_make_one_text_that_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("b.rules", "two\n"), ("a.rules", "one"), ("c.txt", "three"), ("d.rules", "")] {
            let bytes: Vec<u8> = if name == "d.rules" { vec![0xe9] } else { text.into() };
            std::fs::write(path(name), bytes).unwrap();
        }
        let set = |values: &[(&str, String)]| {
            let set: Vec<_> = values.iter().map(|(name, value)| format!("ids.{name}={value}")).collect();
            settings(&set).map(|mut s| s.remove("ids").unwrap()).map_err(|e| e.to_string())
        };
        let at = |name: &str| format!("@{}", path(name).display());
        let line = |name: &str| format!("#!file {}\n", path(name).display());
        assert_eq!(set(&[("rules", at("c.txt"))]).unwrap()["rules"], "three");
        assert_eq!(set(&[("rules", at("a.rules"))]).unwrap()["rules"], line("a.rules") + "one\n");
        let both = line("c.txt") + "three\n" + &line("b.rules") + "two\n";
        assert_eq!(set(&[("rules", at("c.txt")), ("rules", at("b.rules"))]).unwrap()["rules"], both);
        let all = line("a.rules") + "one\n" + &line("b.rules") + "two\n" + &line("d.rules") + "\u{fffd}\n";
        assert_eq!(set(&[("rules", format!("@{}", folder.path().display()))]).unwrap()["rules"], all);
        // A file does not name another one.
        std::fs::write(path("e.txt"), "#!file b.rules\nx #!file\n\u{feff}#!file c").unwrap();
        let found = set(&[("rules", at("e.txt"))]).unwrap()["rules"].clone();
        assert_eq!(found, "# file b.rules\nx #!file\n# file c");
        assert_eq!(set(&[("x", "@@a".into()), ("y", "1".into()), ("y", "2".into())]).unwrap()["y"], "2");
        assert_eq!(set(&[("x", "@@a".into())]).unwrap()["x"], "@a");
        for wrong in
            [[("x", "1".to_owned()), ("x", at("c.txt"))], [("x", at("c.txt")), ("x", "1".to_owned())]]
        {
            assert!(set(&wrong).unwrap_err().contains("either a value or files"));
        }
        std::fs::remove_dir_all(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
        let error = set(&[("rules", format!("@{}", folder.path().display()))]).unwrap_err();
        assert!(error.contains("no files *.rules"), "{error}");
    }
}
