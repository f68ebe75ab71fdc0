//! Locations of modules, SDKs and the cache on this machine.

use crate::meant;
use std::env;
use std::path::{Path, PathBuf};

/// Returns the folders of installed modules, in search order.
pub fn module_folders() -> Vec<PathBuf> {
    if let Some(folders) = env::var_os("FLAME_MODULES") {
        return env::split_paths(&folders).collect();
    }
    let Some(bin) = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned)) else {
        return Vec::new();
    };
    vec![bin.join("modules"), bin.join("../share/flame/modules")]
}

/// Returns whether a module is given as a path.
pub fn is_path(given: &str) -> bool {
    given.contains('/') || given.ends_with(".wasm")
}

/// Returns the file of a module given as a path (it holds a `/` or ends in `.wasm`) or by name.
pub fn module(given: &str) -> Result<PathBuf, String> {
    if is_path(given) {
        return Ok(PathBuf::from(given));
    }
    let folders = module_folders();
    let found = folders.iter().map(|f| f.join(format!("{given}.wasm"))).find(|f| f.is_file());
    found.ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
        let installed = installed();
        let meant = meant::similar(given, &installed);
        let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name}?"));
        format!(
            "no module {given:?} in {}{meant} (see `flame modules`, or give a path that ends in .wasm)",
            folders.join(", ")
        )
    })
}

/// Returns the names of the installed modules, in order.
pub fn installed() -> Vec<String> {
    let files = module_folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let name =
        |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".wasm").map(str::to_owned);
    let mut names: Vec<_> = files.flatten().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the folder of the cache. `FLAME_CACHE` overrides the user's cache folder.
pub fn cache() -> PathBuf {
    if let Some(folder) = env::var_os("FLAME_CACHE") {
        return folder.into();
    }
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    base.or_else(home).unwrap_or_else(|| PathBuf::from("/var/cache")).join("flame")
}

/// The version of the SDK in Rust.
pub const SDK_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the folder of the SDKs: `FLAME_SDK`, an installed copy, or the source tree from which this program
/// was built.
pub fn sdk() -> Result<PathBuf, String> {
    let installed = env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("../share/flame/sdk")));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk");
    let candidates = [env::var_os("FLAME_SDK").map(PathBuf::from), installed, Some(source)];
    let found = candidates.into_iter().flatten().find(|p| p.join("c/flame.h").is_file());
    let found =
        found.ok_or("the SDK is not installed here: set FLAME_SDK to the folder that holds c/ and rust/")?;
    found.canonicalize().map_err(|e| format!("{}: {e}", found.display()))
}
