use crate::client::ChangeArgs;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use hyper::Method;

/// Remove an installed module and its records from a node
#[derive(Args)]
pub struct Remove {
    #[command(flatten)]
    change: ChangeArgs,
}

impl Remove {
    pub fn run(self) -> Result<Status, Error> {
        self.change.make(Method::DELETE, "")
    }
}
