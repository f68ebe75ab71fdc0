//! Options for a run whose worker is behind.

use crate::error::Error;
use clap::Args;
use flame_plan::Plan;
use flame_worker::Overload;

const HEADING: &str = "Overload of a live interface";

#[derive(Args)]
pub struct OverloadArgs {
    /// Priority of a module: when a worker is behind, modules of lower priorities receive no packets, lowest
    /// first. Those without one have the highest, or what their grant states
    #[arg(long, help_heading = HEADING, value_name = "MODULE=NUMBER", value_delimiter = ',')]
    priority: Vec<String>,

    /// Fill of the kernel's buffer at which a worker counts as behind, or off: then the kernel drops packets
    /// for all modules
    #[arg(long, help_heading = HEADING, value_name = "PERCENT", default_value_t)]
    pub overload: Overload,
}

impl OverloadArgs {
    /// Gives the modules of a plan their priorities. A module under a grant has at most the grant's priority.
    pub fn apply(&self, plan: &mut Plan) -> Result<(), Error> {
        for text in &self.priority {
            let parsed = text.split_once('=').and_then(|(name, n)| Some((name, n.parse::<u32>().ok()?)));
            let Some((name, priority)) = parsed else {
                return Err(format!("--priority {text}: expected MODULE=NUMBER").into());
            };
            // Modules of the same name have numbers after it.
            let numbered = |rest: &str| rest.is_empty() || rest.starts_with('#');
            let is_meant = |of: &str| of.strip_prefix(name).is_some_and(numbered);
            let mut meant = plan.modules.iter_mut().filter(|module| is_meant(&module.name)).peekable();
            if meant.peek().is_none() {
                return Err(format!("--priority {text}: no such module in this run").into());
            }
            meant.for_each(|module| module.terms.priority = module.terms.priority.min(priority));
        }
        Ok(())
    }
}
