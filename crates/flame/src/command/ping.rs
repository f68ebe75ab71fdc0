use crate::active_args::{Sum, TargetArgs, parts};
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
    #[command(flatten)]
    to: TargetArgs,

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
        let TargetArgs { active, number, .. } = &self.to;
        let mut way = self.to.open()?;
        // The first two make the programs known everywhere; the second states what one costs.
        way.trace()?;
        let first = Sum::of(&way.trace()?);
        let second = Sum::of(&way.trace()?);
        if way.ping(false)?.is_none() {
            complain!("flame: {}", self.to.unanswered("nothing came back from", "there"));
            return Ok(Status::Failed);
        }
        let before = Sum::of(&way.trace()?);
        way.spans();
        let mut times: Vec<Duration> = Vec::new();
        for one in 0..*number {
            if one > 0 {
                std::thread::sleep(Duration::from_millis(self.interval));
            }
            match way.ping(self.code)? {
                Some(time) if self.quiet => times.push(time),
                Some(time) => {
                    say!("{active}: {} of {number}, {}", one + 1, ms(time));
                    times.push(time);
                }
                None => say!("{active}: {} of {number}, nothing came back", one + 1),
            }
        }
        let spans = way.spans();
        let after = Sum::of(&way.trace()?);
        let Some(count) = u32::try_from(times.len()).ok().filter(|count| *count > 0) else {
            return Ok(Status::Failed);
        };
        let whole: Duration = times.iter().sum();
        times.sort_unstable();
        let at = |part: usize| ms(times[(times.len() - 1) * part / 1000]);
        say!("{} of {number} came back", times.len());
        say!("least {}, median {}, p99 {}, most {}", at(0), at(500), at(990), at(1000));
        // Of what the nodes' accounts have gained, one trace is not the pings'.
        let spent = after.less(before).less(second.less(first));
        parts(whole, spans, spent, count);
        Ok(if times.len() == *number as usize { Status::Done } else { Status::Failed })
    }
}

fn ms(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}
