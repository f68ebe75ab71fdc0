use crate::client::{AnswerArgs, Client, NodeArgs, print_modules, quoted};
use crate::console::{complain, say, say_json};
use crate::dry_run;
use crate::error::Error;
use crate::exit::Status;
use crate::files::read_module;
use crate::reserve_args::ReserveArgs;
use crate::settings::values;
use clap::Args;
use flame_api::{Capacity, InstallRequest, Module, Narrowing, Sources};
use hyper::Method;
use std::path::{Path, PathBuf};

/// Install a module on a node
#[derive(Args)]
pub struct Install {
    /// Module by name or path: `count` or `./mine.wasm`. Its signatures are read from MODULE.wasm.sig
    module: String,

    /// Name on the node [default: the manifest's]
    #[arg(long)]
    name: Option<String>,

    /// Source of packets on the node; required if it has several
    #[arg(long)]
    source: Option<String>,

    /// Value of a parameter; @FILE stands for that file's text
    #[arg(long, value_name = "PARAMETER=VALUE")]
    set: Vec<String>,

    /// Field by which the grant is narrowed further, as for `flame grant narrow`: `expose=headers`
    #[arg(long, value_name = "FIELD=VALUE")]
    narrow: Vec<String>,

    /// Priority: when a worker of the node is behind, modules of lower priorities receive no packets, lowest
    /// first [default: the highest, or what the grant states]
    #[arg(long, value_name = "NUMBER")]
    priority: Option<u32>,

    #[command(flatten)]
    reserve: ReserveArgs,

    /// Install nothing; measure on a capture what the module would need, and compare that with what is left
    /// on the node
    #[arg(long, value_name = "CAPTURE", conflicts_with = "reserve")]
    dry_run: Option<PathBuf>,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl Install {
    pub fn run(self) -> Result<Status, Error> {
        let (path, wasm) = read_module(&self.module)?;
        if let Some(capture) = &self.dry_run {
            return self.try_on(&wasm, capture);
        }
        let signatures = signatures(&path)?;
        let mut client = Client::open(&self.node)?;
        let request = InstallRequest {
            name: self.name,
            source: self.source,
            answer: client.answer(&flame_compile::hash_of(&wasm)),
            wasm,
            signatures,
            settings: values(&self.set)?,
            narrow: narrowings(&self.narrow)?.into_iter().chain(self.priority.map(priority)).collect(),
            reserve: self.reserve.reservation()?,
        };
        let module: Module = client.request(Method::POST, "/v1/modules", Some(&request))?;
        print_modules(std::slice::from_ref(&module), self.answer);
        for note in &module.notes {
            complain!("flame: note: {note}");
        }
        if !self.answer.is_json() {
            complain!(
                "flame: its records: flame records {} --follow{}",
                quoted(&module.name),
                self.node.words()
            );
        }
        Ok(Status::Done)
    }

    /// Prints what the module needs on a capture, and whether the node has as much left.
    fn try_on(&self, wasm: &[u8], capture: &Path) -> Result<Status, Error> {
        let measured = dry_run::measure(&self.module, wasm, values(&self.set)?, capture)?;
        let mut client = Client::open(&self.node)?;
        let Sources { sources } = client.get("/v1/sources")?;
        let chosen = sources.iter().find(|s| self.source.as_ref().is_none_or(|name| s.name == *name));
        let source = chosen.ok_or("the node has no such source")?;
        let (need, arithmetic) = measured.need(source.workers.into());
        let Capacity { free, .. } = client.get("/v1/capacity")?;
        let (comparison, fits) = dry_run::compare(&need, &free);
        if self.answer.is_json() {
            say_json!({
                "need": need, "free": free, "fits": fits, "arithmetic": arithmetic, "comparison": comparison,
                "faults": measured.faults,
            });
        } else {
            arithmetic.iter().for_each(|line| say!("{line}"));
            say!("on the node, source {}:", source.name);
            comparison.iter().for_each(|line| say!("{line}"));
            say!("{}: {}", if fits { "it fits" } else { "it does not fit" }, dry_run::option(&need));
        }
        measured.faults.iter().for_each(|fault| complain!("flame: fault: {fault}"));
        match (measured.faults.is_empty(), fits) {
            (false, _) => Ok(Status::Faulted),
            (true, false) => Ok(Status::Failed),
            (true, true) => Ok(Status::Done),
        }
    }
}

/// Returns the text of the signatures beside a module, if there are any.
pub fn signatures(module: &Path) -> Result<Option<String>, Error> {
    let path = flame_trust::file_of(module);
    match path.exists() {
        true => Ok(Some(String::from_utf8_lossy(&crate::files::read(&path)?).into_owned())),
        false => Ok(None),
    }
}

/// The field by which a priority is given.
pub const PRIORITY: &str = "priority";

/// Returns the narrowing that gives a module a priority.
pub fn priority(number: u32) -> Narrowing {
    Narrowing { field: PRIORITY.to_owned(), value: number.to_string() }
}

/// Parses values of `--narrow`.
pub fn narrowings(given: &[String]) -> Result<Vec<Narrowing>, Error> {
    let one = |text: &String| match text.split_once('=') {
        Some((field, value)) => Ok(Narrowing { field: field.to_owned(), value: value.to_owned() }),
        None => Err(format!("--narrow {text}: expected FIELD=VALUE").into()),
    };
    given.iter().map(one).collect()
}
