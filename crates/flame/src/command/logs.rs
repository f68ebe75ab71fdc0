use crate::client::{Client, ModuleArgs, module_path};
use crate::console::{say, say_json};
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_api::{LogKind, LogLine};
use flame_record::escape;
use flame_trust::time;

/// Print the log of an installed module: its changes, faults and texts
#[derive(Args)]
pub struct Logs {
    #[command(flatten)]
    module: ModuleArgs,
}

impl Logs {
    pub fn run(self) -> Result<Status, Error> {
        let ModuleArgs { name, principal, node, answer } = self.module;
        let path = module_path(&name, "/log", principal.as_deref(), None);
        let lines: Vec<LogLine> = Client::open(&node)?.get(&path)?;
        for line in lines {
            let text = match line.kind {
                LogKind::Text => format!("text: {}", escape::line(&line.text)),
                LogKind::Change | LogKind::Fault => line.text.clone(),
            };
            match answer.is_json() {
                true => say_json!(line),
                false => say!("{} {text}", time::show(line.time)),
            }
        }
        Ok(Status::Done)
    }
}
