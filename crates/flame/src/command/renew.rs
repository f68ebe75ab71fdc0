use crate::client::{AnswerArgs, Client, NodeArgs, module_path, print_modules};
use crate::error::Error;
use crate::exit::Status;
use crate::reserve_args::ReserveArgs;
use clap::Args;
use flame_api::{Module, RenewRequest};
use hyper::Method;

/// Replace the credential of a running module with the one of --credential
#[derive(Args)]
pub struct Renew {
    /// Name of the module on the node
    name: String,

    #[command(flatten)]
    reserve: ReserveArgs,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl Renew {
    pub fn run(self) -> Result<Status, Error> {
        let mut client = Client::open(&self.node)?;
        let before: Module = client.get(&module_path(&self.name, "", None, None))?;
        let hash = digits(&before.hash).ok_or("the node's reply has no SHA-256 of the module")?;
        let answer =
            client.answer(&hash).ok_or("renew needs the new credential: --credential, --identity")?;
        let request =
            RenewRequest { answer, reserve: self.reserve.reservation()?, revision: Some(before.revision) };
        let path = module_path(&self.name, "/renew", None, None);
        let module: Module = client.request(Method::POST, &path, Some(&request))?;
        print_modules(&[module], self.answer);
        Ok(Status::Done)
    }
}

/// Parses a SHA-256 in hexadecimal digits.
fn digits(text: &str) -> Option<[u8; 32]> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    bytes?.try_into().ok()
}
