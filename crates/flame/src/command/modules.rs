use crate::command::{Error, read};
use crate::exit::Status;
use crate::places;
use crate::say::{complain, say};
use clap::Args;
use flame_abi::manifest::Manifest;
use flame_bounds::Rules;
use std::path::Path;

/// List the installed modules
#[derive(Args)]
pub struct Modules {}

impl Modules {
    pub fn run(self) -> Result<Status, Error> {
        let mut status = Status::Done;
        let mut rows = Vec::new();
        for folder in places::module_folders() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for path in entries.flatten().map(|e| e.path()) {
                if path.extension().is_none_or(|e| e != "wasm") {
                    continue;
                }
                match manifest(&path) {
                    Ok(m) => rows.push((m.name, m.version, m.description)),
                    Err(e) => {
                        complain!("flame: {}: {e}", path.display());
                        status = Status::Failed;
                    }
                }
            }
        }
        if rows.is_empty() {
            let folders: Vec<_> = places::module_folders().iter().map(|f| f.display().to_string()).collect();
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

pub fn manifest(path: &Path) -> Result<Manifest, Error> {
    let checked = flame_bounds::check(&read(path)?, &Rules::default())?;
    Ok(Manifest::parse(&checked.manifest)?)
}
