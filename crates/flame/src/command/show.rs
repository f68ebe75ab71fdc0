use crate::client::{AnswerArgs, Client, NodeArgs, module_path};
use crate::console::{say, say_json};
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use flame_api::Module;
use flame_trust::time;

/// Show an installed module: its state, account and records
#[derive(Args)]
pub struct Show {
    /// Name of the module on the node
    name: String,

    /// Principal of the module, for the operator
    #[arg(long)]
    principal: Option<String>,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

impl Show {
    pub fn run(self) -> Result<Status, Error> {
        let path = module_path(&self.name, "", self.principal.as_deref(), None);
        let m: Module = Client::open(&self.node)?.get(&path)?;
        if self.answer.is_json() {
            say_json!(m);
            return Ok(Status::Done);
        }
        let line = |name: &str, value: &str| say!("{name:12} {value}");
        line("module", &format!("{} {}", m.name, m.version));
        line("sha256", &m.hash);
        line("principal", m.principal.as_deref().unwrap_or("operator"));
        line("source", &m.source);
        line("state", &format!("{}{}", m.state.name(), m.reason.map_or(String::new(), |r| format!(": {r}"))));
        m.class.iter().for_each(|class| line("class", class));
        line("revision", &m.revision.to_string());
        line("installed", &time::show(m.installed));
        m.expires.iter().for_each(|end| line("expires", &time::show(*end)));
        m.settings.iter().for_each(|(name, value)| line("setting", &format!("{name} = {value}")));
        m.narrow.iter().for_each(|n| line("narrowed", &format!("{} = {}", n.field, n.value)));
        let a = &m.account;
        let shed: Vec<_> = a.shed.iter().map(|(cause, n)| format!(" + {n} {cause}")).collect();
        line(
            "packets",
            &format!("{} = {} processed + {} filtered{}", a.offered, a.processed, a.filtered, shed.concat()),
        );
        line(
            "records",
            &format!("{}, {} withheld, {} lost by the module", a.records, a.withheld, a.records_lost),
        );
        line("faults", &a.faults.to_string());
        let s = &m.spool;
        line(
            "kept",
            &format!("{} rows in {} bytes from cursor {}; {} dropped", s.rows, s.bytes, s.first, s.dropped),
        );
        m.notes.iter().for_each(|note| line("note", note));
        Ok(Status::Done)
    }
}
