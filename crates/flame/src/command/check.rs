use crate::command::explain::Shown;
use crate::command::{Error, read};
use crate::exit::Status;
use crate::places;
use crate::say::say;
use clap::Args;
use flame_bounds::{Analysis, Entry, LoopReport, MAX_LENGTH, Rules, Turns, analyse};
use flame_plan::Limits;
use rustc_demangle::demangle;
use serde_json::json;

/// Show what a module's calls cost at most, found without running it
///
/// Bounds are numbers of executed instructions, of calls that return. L is the captured length of a packet. What no bound
/// is found for is counted while it runs, and cut off at its budget.
#[derive(Args)]
pub struct Check {
    /// A module by name or path
    module: String,

    /// Every loop: where it is, how often it goes back, what a turn costs
    #[arg(long)]
    explain: bool,

    /// Fail (exit status 1) unless a batch of 256 packets is proved to cost no more than this
    #[arg(long, value_name = "INSTRUCTIONS")]
    limit: Option<u64>,

    /// Packets are no longer than this
    #[arg(long, value_name = "BYTES", default_value_t = MAX_LENGTH)]
    snaplen: u64,

    #[arg(short, long, default_value = "table")]
    format: Shown,
}

impl Check {
    pub fn run(self) -> Result<Status, Error> {
        let path = places::module(&self.module)?;
        let wasm = read(&path)?;
        let named = |e: flame_bounds::ModuleError| format!("{}: {e}", path.display());
        let analysis = analyse(&wasm, &Rules::default(), None).map_err(named)?;
        match self.format {
            Shown::Json => self.json(&analysis),
            Shown::Table => self.table(&analysis),
        }
        match self.limit {
            None => Ok(Status::Done),
            Some(limit) => within(&analysis, limit, self.snaplen),
        }
    }

    fn json(&self, analysis: &Analysis) {
        for e in &analysis.entries {
            let at = |p: flame_bounds::Poly| p.at(self.snaplen).map(|n| u64::try_from(n).unwrap_or(u64::MAX));
            say!(
                "{}",
                json!({"entry": e.name, "call": e.bound.call.to_string(), "call_most": at(e.bound.call), "packet": e.bound.packet.to_string(),
                    "packet_most": at(e.bound.packet), "proved": proved(e), "why": e.why.as_deref().map(plain)})
            );
        }
        for l in analysis.loops.iter().filter(|_| self.explain) {
            let (turns, cost) = (turns(l), l.cost.to_string());
            say!(
                "{}",
                json!({"function": name(&l.function), "offset": l.offset, "turns": turns, "turn_costs": cost})
            );
        }
        for cycle in &analysis.cycles {
            say!("{}", json!({"recursion": cycle.iter().map(|f| name(f)).collect::<Vec<_>>()}));
        }
    }

    fn table(&self, analysis: &Analysis) {
        let budget = Limits::default();
        for e in &analysis.entries {
            let most = if e.name == "flame_batch" {
                "a packet's budget for each packet"
            } else {
                "the budget of a call"
            };
            let verdict = match &e.why {
                None if proved(e) => "proved".to_owned(),
                why => format!(
                    "counted, cut off at {most}: {}",
                    plain(why.as_deref().unwrap_or("no bound was found"))
                ),
            };
            say!("{:<14} {:<24} {verdict}", e.name, e.bound.call.to_string());
            if e.bound.packet != flame_bounds::Poly::ZERO {
                say!("{:<14} {:<24} for each packet", "", e.bound.packet.to_string());
            }
        }
        let counted = analysis.loops.iter().filter(|l| l.turns == Turns::Unknown).count();
        say!("\n{} loops end by themselves, {counted} by a counter", analysis.loops.len() - counted);
        say!(
            "budgets        {} a packet, {} a call, unless the manifest asks for more",
            budget.packet_budget,
            budget.call_budget
        );
        say!(
            "memory         {}",
            if analysis.grows { "may grow, up to its limit" } else { "stays as it is" }
        );
        for cycle in &analysis.cycles {
            let names: Vec<_> = cycle.iter().map(|f| name(f)).collect();
            say!("recursion      {}", names.join(" > "));
        }
        if self.explain {
            say!();
            for l in &analysis.loops {
                say!(
                    "loop at byte {:<8} {:<14} turns of {:<16} {}",
                    l.offset,
                    turns(l),
                    l.cost.to_string(),
                    name(&l.function)
                );
            }
        }
    }
}

fn proved(e: &Entry) -> bool {
    e.bound.call.is_bounded() && e.bound.packet.is_bounded()
}

fn within(analysis: &Analysis, limit: u64, snaplen: u64) -> Result<Status, Error> {
    let Some(batch) = analysis.entries.iter().find(|e| e.name == "flame_batch") else {
        return Ok(Status::Failed);
    };
    let packets = batch.bound.packet.times(flame_bounds::Poly::constant(flame_abi::MAX_BATCH as u64));
    match batch.bound.call.plus(packets).at(snaplen) {
        Some(most) if most <= u128::from(limit) => Ok(Status::Done),
        Some(most) => Err(format!("flame_batch may cost {most} instructions, more than {limit}").into()),
        None => {
            Err(format!("flame_batch has no bound: {}", plain(batch.why.as_deref().unwrap_or("unknown")))
                .into())
        }
    }
}

fn turns(l: &LoopReport) -> String {
    match l.turns {
        Turns::AtMost(n) => n.to_string(),
        Turns::Packets => "each packet".to_owned(),
        Turns::Unknown => "counted".to_owned(),
    }
}

fn name(function: &str) -> String {
    format!("{:#}", demangle(function))
}

/// A reason with the names in it as their source has them.
fn plain(text: &str) -> String {
    text.split(' ').map(name).collect::<Vec<_>>().join(" ")
}
