use crate::client::{Client, ModuleArgs, module_path};
use crate::console::{say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::reserve_args::percent_text;
use clap::Args;
use flame_api::Module;
use flame_trust::time;

/// Show an installed module: its state, account and records
#[derive(Args)]
pub struct Show {
    #[command(flatten)]
    module: ModuleArgs,
}

impl Show {
    pub fn run(self) -> Result<Status, Error> {
        let ModuleArgs { name, principal, node, answer } = self.module;
        let path = module_path(&name, "", principal.as_deref(), None);
        let m: Module = Client::open(&node)?.get(&path)?;
        if answer.is_json() {
            say_json!(m);
            return Ok(Status::Done);
        }
        let line = |name: &str, value: &str| say!("{name:12} {value}");
        line("module", &format!("{} {}", m.name, m.version));
        line("sha256", &m.hash);
        line("principal", m.principal.as_deref().unwrap_or("operator"));
        line("source", &m.source);
        line("state", &format!("{}{}", m.state.name(), m.reason.map_or(String::new(), |r| format!(": {r}"))));
        let of = m.process.map_or_else(String::new, |pid| format!(" {pid}"));
        m.place.iter().for_each(|place| line("place", &format!("{place}{of}")));
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
        if a.cut > 0 {
            line("cut", &format!("payload of {} packets was not shown: it contains a packet", a.cut));
        }
        for queue in &a.queues {
            let lost = format!("{} lost with all blocks in use", queue.overrun);
            line("queue", &format!("{}: {} packets, {lost}", queue.name, queue.packets));
        }
        line(
            "records",
            &format!("{}, {} withheld, {} lost by the module", a.records, a.withheld, a.records_lost),
        );
        if a.sent > 0 || !a.unsent.is_empty() {
            let unsent: Vec<_> =
                a.unsent.iter().map(|(cause, n)| format!(", {n} not sent: {cause}")).collect();
            line("frames", &format!("{} sent{}", a.sent, unsent.concat()));
        }
        if a.calls + a.calls_lost > 0 {
            line("calls", &format!("{}, {} not let out", a.calls, a.calls_lost));
        }
        if a.replies + a.replies_lost > 0 {
            line("replies", &format!("{}, {} too late or to no call", a.replies, a.replies_lost));
        }
        line("faults", &a.faults.to_string());
        let (u, r) = (&m.usage, &m.reserved);
        line(
            "used",
            &format!("{} ms of processor time, {} bytes of records sent", u.cpu_ns / 1_000_000, u.sent_bytes),
        );
        if !r.is_none() {
            let cpu = percent_text(r.cpu_ppm);
            let rest = format!("{} blocks, {} bytes of records/s", r.blocks, r.record_bytes);
            line("reserved", &format!("{cpu} of a processor, {} bytes of memory, {rest}", r.memory));
        }
        let s = &m.spool;
        line(
            "kept",
            &format!("{} rows in {} bytes from cursor {}; {} dropped", s.rows, s.bytes, s.first, s.dropped),
        );
        m.notes.iter().for_each(|note| line("note", note));
        Ok(Status::Done)
    }
}
