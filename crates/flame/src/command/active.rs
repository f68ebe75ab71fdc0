use crate::compiler::stop_flag;
use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_active_server::{Config, Confined, clock, serve};
use flame_compile::{Compiler, Worker};
use std::path::PathBuf;
use std::time::Instant;

/// Run a node for active packets: capsules of other nodes and hosts, within their bounds
///
/// It runs until it is interrupted, and then prints its refusals, by cause, and each account.
/// docs/active.md describes the file.
#[derive(Args)]
pub struct Active {
    /// The node's configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

impl Active {
    pub fn run(self) -> Result<Status, Error> {
        let config = Config::open(&self.config, flame_trust::time::now())?;
        let stop = stop_flag()?;
        let worker = Worker::this_program().stopped_by(stop.clone());
        let compiler = Confined::new(move || Compiler::new(worker, None))?;
        let own = config.own.principal.clone();
        let services = crate::extensions::begin(&config)?;
        let started = Instant::now();
        let begun = |address| say!("{own}: listening on {address}");
        let report = serve(config, compiler, services, || clock(started), &stop, begun)?;
        for (payer, account) in &report.accounts {
            let payer: String = payer.0.iter().map(|byte| format!("{byte:02x}")).collect();
            say!(
                "account {payer}: {} capsules, {} instructions, {} bytes, {} copies",
                account.capsules,
                account.instructions,
                account.bytes,
                account.copies
            );
        }
        report.causes.iter().for_each(|(cause, count)| say!("refused {count}: {cause}"));
        report.links.iter().for_each(|(cause, count)| say!("link, refused {count}: {cause}"));
        if report.undelivered > 0 {
            say!("{} deliveries for which no host waited", report.undelivered);
        }
        Ok(Status::Done)
    }
}
