//! The commands: one file each, and one line in each list here.

mod audit;
mod build;
mod calibrate;
mod check;
mod explain;
mod grant;
mod inspect;
mod join;
mod key;
mod modules;
mod new;
mod run;

use crate::exit::Status;
use clap::{Subcommand, ValueEnum};

/// What a person is told; the messages carry place and remedy themselves.
pub type Error = Box<dyn std::error::Error>;

/// `--format`.
#[derive(Clone, Copy, ValueEnum)]
pub enum FormatArg {
    Table,
    Json,
    Csv,
    Parquet,
    /// Alerts as Suricata writes them
    Eve,
}

impl From<FormatArg> for flame_record::Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Table => Self::Table,
            FormatArg::Json => Self::Json,
            FormatArg::Csv => Self::Csv,
            FormatArg::Parquet => Self::Parquet,
            FormatArg::Eve => Self::Eve,
        }
    }
}

#[derive(Subcommand)]
pub enum Command {
    Run(Box<run::Run>),
    New(new::New),
    Build(build::Build),
    Modules(modules::Modules),
    Inspect(inspect::Inspect),
    Join(join::Join),
    Key(key::Key),
    Grant(grant::Grant),
    Explain(explain::Explain),
    Check(check::Check),
    Calibrate(calibrate::Calibrate),
    Audit(audit::Audit),
}

impl Command {
    pub fn run(self) -> Result<Status, Error> {
        match self {
            Self::Run(c) => c.run(),
            Self::New(c) => c.run(),
            Self::Build(c) => c.run(),
            Self::Modules(c) => c.run(),
            Self::Inspect(c) => c.run(),
            Self::Join(c) => c.run(),
            Self::Key(c) => c.run(),
            Self::Grant(c) => c.run(),
            Self::Explain(c) => c.run(),
            Self::Check(c) => c.run(),
            Self::Calibrate(c) => c.run(),
            Self::Audit(c) => c.run(),
        }
    }
}

/// Reads a file, naming it in the error.
pub fn read(path: &std::path::Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()).into())
}

/// Reads a module: one that is installed, by name, or a file of the caller's.
pub fn read_module(given: &str) -> Result<(std::path::PathBuf, Vec<u8>), Error> {
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
