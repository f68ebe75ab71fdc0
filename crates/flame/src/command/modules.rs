use crate::console::{complain, say};
use crate::error::Error;
use crate::exit::Status;
use crate::files::read;
use crate::paths;
use clap::Args;
use flame_compile::{Compiler, ModuleInfo};
use std::path::Path;

/// List the installed modules
#[derive(Args)]
pub struct Modules {}

impl Modules {
    pub fn run(self) -> Result<Status, Error> {
        let compiler = crate::compiler::looking()?;
        let mut status = Status::Done;
        let mut rows = Vec::new();
        for folder in paths::module_folders() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for path in entries.flatten().map(|e| e.path()) {
                if path.extension().is_none_or(|e| e != "wasm") {
                    continue;
                }
                match examine(&compiler, &path) {
                    Ok((_, ModuleInfo { manifest: m, .. })) => {
                        rows.push((m.name.clone(), m.version.clone(), m.description.clone()));
                    }
                    Err(e) => {
                        complain!("flame: {}: {e}", path.display());
                        status = Status::Failed;
                    }
                }
            }
        }
        if rows.is_empty() {
            let folders: Vec<_> = paths::module_folders().iter().map(|f| f.display().to_string()).collect();
            complain!("flame: no modules in {} (build one with `flame build`)", folders.join(", "));
        }
        rows.sort();
        let width = rows.iter().map(|r| r.0.len()).max().unwrap_or(0);
        for (name, version, description) in rows {
            say!("{name:width$}  {version:8}  {description}");
        }
        Ok(status)
    }
}

/// Reads a module's file and examines the module.
pub fn examine(compiler: &Compiler<'_>, path: &Path) -> Result<(Vec<u8>, ModuleInfo), Error> {
    let wasm = read(path)?;
    let examined = compiler.examine(&wasm)?;
    Ok((wasm, examined))
}
