use crate::client::{AnswerArgs, Client, NodeArgs, module_path};
use crate::command::list::print;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_api::Module;
use hyper::Method;

/// Stop an installed module, which keeps its place and records on the node
#[derive(Args)]
pub struct Stop {
    /// Name of the module on the node
    name: String,

    /// Principal of the module, for the operator
    #[arg(long)]
    principal: Option<String>,

    /// Revision that the change is meant for [default: whichever it has]
    #[arg(long)]
    revision: Option<u64>,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl Stop {
    pub fn run(self) -> Result<Status, Error> {
        let path = module_path(&self.name, "/stop", self.principal.as_deref(), self.revision);
        let module: Module = Client::open(&self.node)?.request(Method::POST, &path, None::<&()>)?;
        print(&[module], self.answer);
        Ok(Status::Done)
    }
}
