//! Reading of files for commands.

use crate::error::Error;
use std::path::{Path, PathBuf};

/// Reads a file. The error names it.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Reads a module: an installed one by name, or a file of the caller's.
pub fn read_module(given: &str) -> Result<(PathBuf, Vec<u8>), Error> {
    use std::io::Read;
    let path = crate::paths::module(given)?;
    if !crate::paths::is_path(given) {
        let wasm = read(&path)?;
        return Ok((path, wasm));
    }
    let mut wasm = Vec::new();
    let read = crate::caller::open(&path)?.read_to_end(&mut wasm);
    read.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok((path, wasm))
}
