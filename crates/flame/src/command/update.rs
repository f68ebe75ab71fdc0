use crate::client::{AnswerArgs, Client, NodeArgs, module_path, print_modules};
use crate::command::install::{PRIORITY, narrowings, priority, signatures};
use crate::console::complain;
use crate::error::Error;
use crate::exit::Status;
use crate::files::read_module;
use crate::reserve_args::ReserveArgs;
use crate::settings::values;
use clap::Args;
use flame_api::{Module, Narrowing, UpdateRequest};
use hyper::Method;

/// Change code, settings or rights of an installed module while it runs
///
/// The new instance continues with the state of the old one if the module keeps state and its version and
/// the rights are the same. Otherwise it begins empty, and a note states why. Every packet goes to the old
/// instance or to the new one. A module that was stopped or evicted runs again.
#[derive(Args)]
pub struct Update {
    /// Name of the module on the node
    name: String,

    /// New code, by name or path [default: the code that it has]
    module: Option<String>,

    /// Value of a parameter; all that were set before are replaced
    #[arg(long, value_name = "PARAMETER=VALUE")]
    set: Vec<String>,

    /// Field by which the grant is narrowed; all that were given before are replaced
    #[arg(long, value_name = "FIELD=VALUE")]
    narrow: Vec<String>,

    /// Priority when a worker of the node is behind, in place of the one that was given before
    #[arg(long, value_name = "NUMBER")]
    priority: Option<u32>,

    /// Begin empty, although the state of the old instance could be carried on
    #[arg(long)]
    empty: bool,

    /// Revision that the change is meant for [default: the present one]
    #[arg(long)]
    revision: Option<u64>,

    #[command(flatten)]
    reserve: ReserveArgs,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl Update {
    pub fn run(self) -> Result<Status, Error> {
        let code = self.module.as_deref().map(read_module).transpose()?;
        let mut client = Client::open(&self.node)?;
        let path = module_path(&self.name, "", None, None);
        let before: Module = client.get(&path)?;
        let narrow = (!self.narrow.is_empty()).then(|| narrowings(&self.narrow)).transpose()?;
        let narrow = match self.priority {
            None => narrow,
            Some(number) => {
                let others = narrow.unwrap_or_else(|| {
                    let is_other = |narrowing: &&Narrowing| narrowing.field != PRIORITY;
                    before.narrow.iter().filter(is_other).cloned().collect()
                });
                Some(others.into_iter().chain([priority(number)]).collect())
            }
        };
        let mut request = UpdateRequest {
            settings: (!self.set.is_empty()).then(|| values(&self.set)).transpose()?,
            narrow,
            reserve: self.reserve.reservation()?,
            empty: self.empty,
            // Another client's change since then is not overwritten unseen.
            revision: Some(self.revision.unwrap_or(before.revision)),
            ..UpdateRequest::default()
        };
        if let Some((path, wasm)) = code {
            request.answer = client.answer(&flame_compile::hash_of(&wasm));
            request.signatures = Some(signatures(&path)?.unwrap_or_default());
            request.wasm = Some(wasm);
        }
        let module: Module = client.request(Method::PUT, &path, Some(&request))?;
        print_modules(std::slice::from_ref(&module), self.answer);
        for note in &module.notes {
            complain!("flame: note: {note}");
        }
        Ok(Status::Done)
    }
}
