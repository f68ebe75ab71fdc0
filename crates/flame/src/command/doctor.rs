use crate::console::{say, say_json};
use crate::doctor::{Machine, State, examine};
use crate::error::Error;
use crate::exit::Status;
use crate::format::OutputFormat;
use clap::Args;
use std::path::Path;

/// Examine what this machine lacks for capture, and the remedy
///
/// Examined are rights, offloads that merge packets, sizes of rings, memory, the clock, the kernel, and the
/// folders of cache and modules. Nothing is changed. Exit status: 0 if a capture works, with or without
/// warnings; 1 if something is missing.
#[derive(Args)]
pub struct Doctor {
    /// Interfaces to examine [default: all that are up]
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,

    /// Format of the output
    #[arg(short, long, default_value = "table")]
    format: OutputFormat,
}

impl Doctor {
    pub fn run(self) -> Result<Status, Error> {
        let findings = examine(&Machine::at(Path::new("/")), &self.interfaces)?;
        for finding in &findings {
            let state = finding.state.name();
            match self.format {
                OutputFormat::Json => say_json!({
                    "subject": finding.subject, "state": state, "found": finding.found, "remedy": finding.remedy,
                }),
                OutputFormat::Table => {
                    say!("{state:<8} {}: {}", finding.subject, finding.found);
                    if let Some(remedy) = &finding.remedy {
                        say!("         remedy: {remedy}");
                    }
                }
            }
        }
        let works = findings.iter().all(|finding| finding.state != State::Missing);
        Ok(if works { Status::Done } else { Status::Failed })
    }
}
