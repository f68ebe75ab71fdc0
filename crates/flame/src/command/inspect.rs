use crate::command::modules::examine;
use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use crate::paths;
use clap::Args;
use flame_abi::manifest::Access;

/// Show a module's needs, its parameters and the tables it emits
#[derive(Args)]
pub struct Inspect {
    /// A module by name or path
    module: String,
}

impl Inspect {
    pub fn run(self) -> Result<Status, Error> {
        let path = paths::module(&self.module)?;
        let compiler = crate::compiler::looking()?;
        let (wasm, examined) = examine(&compiler, &path).map_err(|e| format!("{}: {e}", path.display()))?;
        let m = examined.manifest;
        let hash: String = examined.hash.iter().map(|b| format!("{b:02x}")).collect();
        say!("{} {}: {}", m.name, m.version, m.description);
        say!("file     {} ({} bytes)", path.display(), wasm.len());
        say!("sha256   {hash}");
        say!("abi      {}", m.abi);
        say!("expose   {}", m.needs.expose.as_deref().unwrap_or("headers"));
        say!("select   {}", m.needs.select.as_deref().unwrap_or("(every packet)"));
        if m.log {
            say!("log      texts for the operator");
        }
        for c in &m.channels {
            let extra = if c.extra { ", and more if the link is idle" } else { "" };
            say!("\nchannel {}  {}\n  sends {:?}, {}{extra}", c.name, c.description, c.filter, c.rate);
        }
        for (verb, all) in [("serves", &m.services), ("calls", &m.uses)] {
            all.iter().for_each(|s| say!("\n{verb}  {}  {}", s.name, s.description));
        }
        for area in &m.shared {
            let verb = if area.access == Access::Write { "writes" } else { "reads" };
            say!("\n{verb}  {}, {} bytes  {}", area.name, area.bytes, area.description);
        }
        for (name, p) in &m.parameters {
            let kind = format!("{:?}", p.kind).to_lowercase();
            say!("\nparameter {name} ({kind}, default {})\n  {}", p.default, p.description);
        }
        for t in &m.tables {
            say!("\ntable {}  {}", t.name, t.description);
            for c in &t.columns {
                let kind = format!("{:?}", c.kind).to_lowercase();
                let detail = match (&c.unit, c.values.as_slice()) {
                    (Some(unit), _) => unit.clone(),
                    (None, values) => values.join(" | "),
                };
                say!("  {:20} {kind:9} {detail}", c.name);
            }
        }
        Ok(Status::Done)
    }
}
