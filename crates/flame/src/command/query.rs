use crate::caller::{self, Caller};
use crate::error::Error;
use crate::exit::Status;
use crate::external::become_fleet;
use clap::Args;
use std::ffi::OsString;

/// Query a fleet's archive by SQL; see flame query --help
///
/// The program flame-fleet does it, beside this one or in a folder of PATH. Where this machine has a policy,
/// only root queries without a credential.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Query {
    #[arg(value_name = "ARGUMENTS", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Query {
    pub fn run(self) -> Result<Status, Error> {
        let instead = "ask its operator for a service that queries for you";
        Caller::here().may_name("the archive of a fleet", instead)?;
        let mut arguments = self.arguments;
        if let Some(policy) = caller::policy(None)? {
            // In front, so that no `--` comes before it. A second one is refused.
            arguments.splice(0..0, ["--policy".into(), policy.into()]);
        }
        Err(become_fleet("query", &arguments))
    }
}
