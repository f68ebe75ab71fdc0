use crate::active_args::{Sum, TargetArgs, row};
use crate::console::{complain, say};
use crate::error::Error;
use crate::exit::Status;
use clap::Args;

/// Print the active nodes on the way to one of them, with the time that capsules take at each
///
/// The times are the account's at each node, where the configuration grants them by `times`.
///
/// Exit status: 0 the node was reached; 1 otherwise; 2 wrong usage.
#[derive(Args)]
pub struct Trace {
    #[command(flatten)]
    to: TargetArgs,
}

impl Trace {
    pub fn run(self) -> Result<Status, Error> {
        let mut way = self.to.open()?;
        way.trace()?;
        let first = way.trace()?;
        let mut last = Vec::new();
        for _ in 0..self.to.number.max(1) {
            last = way.trace()?;
        }
        say!("{:<4}{:<24}{}", "", "node", row(["capsules"].map(str::to_owned).into_iter(), true));
        for (hop, visited) in last.iter().enumerate() {
            let unknown = format!("{:016x}", visited.place.0);
            let name = way.config.names.get(&visited.place).unwrap_or(&unknown);
            let before = first.iter().find(|other| other.place == visited.place);
            let one = |all: &[_]| Sum::of(all);
            let gained = one(std::slice::from_ref(visited));
            let gained = before.map_or(gained, |before| gained.less(one(std::slice::from_ref(before))));
            let times = gained.each();
            say!(
                "{:<4}{name:<24}{}",
                hop + 1,
                row([gained.capsules.to_string()].into_iter().chain(times), false)
            );
        }
        if last.iter().any(|visited| visited.place == way.target) {
            return Ok(Status::Done);
        }
        complain!("flame: {}", self.to.unanswered("no answer of", "on the way"));
        Ok(Status::Failed)
    }
}
