use crate::active_args::{HostArgs, Sum, parts};
use crate::console::{complain, say};
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use std::time::Duration;

/// Send capsules to an active node and back, and print the times, and on what they were spent
///
/// Exit status: 0 all came back; 1 otherwise; 2 wrong usage.
#[derive(Args)]
pub struct Ping {
    /// The node, by the name in its credential
    #[arg(long, value_name = "NODE")]
    active: String,

    #[command(flatten)]
    host: HostArgs,

    /// Number of capsules
    #[arg(short, long, default_value_t = 10)]
    number: u32,

    /// Milliseconds between two capsules
    #[arg(short, long, default_value_t = 100)]
    interval: u64,

    /// Send the code in each capsule, as the first active networks did
    #[arg(long)]
    code: bool,

    /// Print only the summary
    #[arg(short, long)]
    quiet: bool,
}

impl Ping {
    pub fn run(self) -> Result<Status, Error> {
        let (config, mut client, mut probe) = self.host.open()?;
        let target = config.place(&self.active);
        let patience = self.host.patience();
        // The first two make the programs known everywhere; the second states what one costs.
        probe.trace(&mut client, target, patience)?;
        let first = Sum::of(&probe.trace(&mut client, target, patience)?);
        let second = Sum::of(&probe.trace(&mut client, target, patience)?);
        let known = probe.ping(&mut client, target, patience, false)?;
        if known.is_none() {
            complain!(
                "flame: nothing came back from {} within {} s: the node does not run, has no way back, or the \
                 account may not `send` and `deliver` there",
                self.active,
                patience.as_secs_f64()
            );
            return Ok(Status::Failed);
        }
        let before = Sum::of(&probe.trace(&mut client, target, patience)?);
        client.spans = Default::default();
        let mut times: Vec<Duration> = Vec::new();
        for number in 0..self.number {
            if number > 0 {
                std::thread::sleep(Duration::from_millis(self.interval));
            }
            match probe.ping(&mut client, target, patience, self.code)? {
                Some(time) if self.quiet => times.push(time),
                Some(time) => {
                    say!("{}: {} of {}, {}", self.active, number + 1, self.number, ms(time));
                    times.push(time);
                }
                None => say!("{}: {} of {}, nothing came back", self.active, number + 1, self.number),
            }
        }
        let spans = client.spans;
        let after = Sum::of(&probe.trace(&mut client, target, patience)?);
        let Some(count) = u32::try_from(times.len()).ok().filter(|count| *count > 0) else {
            return Ok(Status::Failed);
        };
        let whole: Duration = times.iter().sum();
        times.sort_unstable();
        let at = |part: usize| ms(times[(times.len() - 1) * part / 1000]);
        say!("{} of {} came back", times.len(), self.number);
        say!("least {}, median {}, p99 {}, most {}", at(0), at(500), at(990), at(1000));
        // Of what the nodes' accounts have gained, one trace is not the pings'.
        let spent = after.less(before).less(second.less(first));
        parts(whole, spans, spent, count);
        Ok(if times.len() == self.number as usize { Status::Done } else { Status::Failed })
    }
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}
