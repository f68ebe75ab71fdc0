use crate::client::ChangeArgs;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use hyper::Method;

/// Stop an installed module, which keeps its place and records on the node
#[derive(Args)]
pub struct Stop {
    #[command(flatten)]
    change: ChangeArgs,
}

impl Stop {
    pub fn run(self) -> Result<Status, Error> {
        self.change.make(Method::POST, "/stop")
    }
}
