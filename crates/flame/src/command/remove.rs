use crate::client::{AnswerArgs, Client, NodeArgs, module_path};
use crate::command::list::print;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_api::Module;
use hyper::Method;

/// Remove an installed module and its records from a node
#[derive(Args)]
pub struct Remove {
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

impl Remove {
    pub fn run(self) -> Result<Status, Error> {
        let path = module_path(&self.name, "", self.principal.as_deref(), self.revision);
        let module: Module = Client::open(&self.node)?.request(Method::DELETE, &path, None::<&()>)?;
        print(&[module], self.answer);
        Ok(Status::Done)
    }
}
