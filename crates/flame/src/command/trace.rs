use crate::active_args::{HostArgs, Sum, row};
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
    /// The node, by the name in its credential
    #[arg(long, value_name = "NODE")]
    active: String,

    #[command(flatten)]
    host: HostArgs,

    /// Number of capsules, over which the times are divided
    #[arg(short, long, default_value_t = 10)]
    number: u32,
}

impl Trace {
    pub fn run(self) -> Result<Status, Error> {
        let (config, mut client, mut probe) = self.host.open()?;
        let target = config.place(&self.active);
        let patience = self.host.patience();
        probe.trace(&mut client, target, patience)?;
        let first = probe.trace(&mut client, target, patience)?;
        let mut last = Vec::new();
        for _ in 0..self.number.max(1) {
            last = probe.trace(&mut client, target, patience)?;
        }
        say!("{:<4}{:<24}{}", "", "node", row(["capsules"].map(str::to_owned).into_iter(), true));
        for (hop, visited) in last.iter().enumerate() {
            let unknown = format!("{:016x}", visited.place.0);
            let name = config.names.get(&visited.place).unwrap_or(&unknown);
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
        if last.iter().any(|visited| visited.place == target) {
            return Ok(Status::Done);
        }
        complain!(
            "flame: {} did not answer within {} s: it does not run, has no way back, or the account may not \
             `send` and `deliver` on the way",
            self.active,
            patience.as_secs_f64()
        );
        Ok(Status::Failed)
    }
}
