use crate::error::Error;
use crate::exit::Status;
use crate::external::become_fleet;
use clap::Args;
use std::ffi::OsString;

/// Run many nodes as one fleet with one archive; see flame fleet --help
///
/// The program flame-fleet does it, beside this one or in a folder of PATH.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Fleet {
    #[arg(value_name = "ARGUMENTS", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Fleet {
    pub fn run(self) -> Result<Status, Error> {
        Err(become_fleet("fleet", &self.arguments))
    }
}
