use crate::client::{AnswerArgs, Client, NodeArgs, module_path};
use crate::console::{say, say_json};
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_api::LogLine;
use flame_trust::time;

/// Print the log of an installed module: its changes, and the reasons for its ends
#[derive(Args)]
pub struct Logs {
    /// Name of the module on the node
    name: String,

    /// Principal of the module, for the operator
    #[arg(long)]
    principal: Option<String>,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl Logs {
    pub fn run(self) -> Result<Status, Error> {
        let path = module_path(&self.name, "/log", self.principal.as_deref(), None);
        let lines: Vec<LogLine> = Client::open(&self.node)?.get(&path)?;
        for line in lines {
            match self.answer.is_json() {
                true => say_json!(line),
                false => say!("{} {}", time::show(line.time), line.text),
            }
        }
        Ok(Status::Done)
    }
}
