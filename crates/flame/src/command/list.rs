use crate::client::{AnswerArgs, Client, NodeArgs, print_modules};
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_api::Modules;

/// List the modules on a node: your own, or all for its operator
#[derive(Args)]
pub struct List {
    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl List {
    pub fn run(self) -> Result<Status, Error> {
        let Modules { modules } = Client::open(&self.node)?.get("/v1/modules")?;
        print_modules(&modules, self.answer);
        Ok(Status::Done)
    }
}
