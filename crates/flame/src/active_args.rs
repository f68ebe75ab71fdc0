//! Options and tables of the commands that are hosts among active nodes.

use crate::console::say;
use crate::error::Error;
use clap::Args;
use flame_active_link::Clock;
use flame_active_node::Times;
use flame_active_server::{Client, Config, Probe, Spans, Visited, clock};
use flame_capsule::Place;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The parts of the time at nodes, as SANE's figure 8 has them.
const PARTS: [&str; 5] = ["authentication", "loading", "marshalling", "running", "transmission"];

#[derive(Args)]
pub struct HostArgs {
    /// The host's configuration, with its node as the only neighbour
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    /// Seconds to wait for an answer
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    timeout: f64,
}

/// Options of the commands that measure the way to a node.
#[derive(Args)]
pub struct TargetArgs {
    /// The node, by the name in its credential
    #[arg(long, value_name = "NODE")]
    pub active: String,

    #[command(flatten)]
    pub host: HostArgs,

    /// Number of capsules, over which the times are divided
    #[arg(short, long, default_value_t = 10)]
    pub number: u32,
}

/// A host that measures the way to a node.
pub struct Measured {
    pub config: Config,
    pub target: Place,
    client: Host,
    probe: Probe,
    patience: Duration,
}

impl TargetArgs {
    /// Exchanges keys with the host's node.
    pub fn open(&self) -> Result<Measured, Error> {
        let (config, client, probe) = self.host.open()?;
        let target = config.place(&self.active);
        Ok(Measured { config, target, client, probe, patience: self.host.patience() })
    }

    /// Returns the reasons why nothing may have come back within the time; `way` is where it was lost.
    pub fn unanswered(&self, what: &str, way: &str) -> String {
        format!(
            "{what} {} within {} s: it does not run, has no way back, or the account may not `send` and \
             `deliver` {way}",
            self.active,
            self.host.patience().as_secs_f64()
        )
    }
}

impl Measured {
    /// Returns the nodes on the way.
    pub fn trace(&mut self) -> Result<Vec<Visited>, Error> {
        Ok(self.probe.trace(&mut self.client, self.target, self.patience)?)
    }

    /// Returns the time there and back, if something came back.
    pub fn ping(&mut self, with_code: bool) -> Result<Option<Duration>, Error> {
        Ok(self.probe.ping(&mut self.client, self.target, self.patience, with_code)?)
    }

    /// Returns the host's own time since this was asked last.
    pub fn spans(&mut self) -> Spans {
        std::mem::take(&mut self.client.spans)
    }
}

/// A host of this machine's clocks.
pub type Host = Client<Box<dyn FnMut() -> Clock>>;

impl HostArgs {
    /// Exchanges keys with the node, and prepares the capsules.
    pub fn open(&self) -> Result<(Config, Host, Probe), Error> {
        let config = Config::open(&self.config, flame_trust::time::now())?;
        let started = Instant::now();
        let clocks: Box<dyn FnMut() -> Clock> = Box::new(move || clock(started));
        let Some(client) = Client::open(&config, clocks, self.patience())? else {
            let file = self.config.display();
            let reason = match config.settings.map.neighbours().next() {
                Some((_, address)) => format!(
                    "no node at {address} exchanged keys within {} s: it does not run, or one of both does not \
                     accept the other's credential",
                    self.timeout
                ),
                None => "[neighbours] is empty: add the host's node".to_owned(),
            };
            return Err(format!("{file}: {reason}").into());
        };
        Ok((config, client, Probe::new()?))
    }

    /// Returns the time to wait for an answer.
    pub fn patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout).unwrap_or(Duration::from_secs(5))
    }
}

/// Capsules and times of several nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub capsules: u64,
    pub times: Times,
}

impl Sum {
    pub fn of(visited: &[Visited]) -> Self {
        let mut sum = Self::default();
        for one in visited {
            sum.capsules += one.capsules;
            sum.times.0.iter_mut().zip(one.times.0).for_each(|(sum, part)| *sum += part);
        }
        sum
    }

    pub fn less(mut self, other: Self) -> Self {
        self.capsules = self.capsules.saturating_sub(other.capsules);
        self.times.0.iter_mut().zip(other.times.0).for_each(|(sum, part)| *sum = sum.saturating_sub(part));
        self
    }

    /// Returns the microseconds of each part for one capsule.
    pub fn each(self) -> impl Iterator<Item = String> {
        let capsules = self.capsules.max(1) as f64;
        self.times.0.into_iter().map(move |part| format!("{:.2}", part as f64 / 1000.0 / capsules))
    }
}

/// Returns a row of numbers, or with the names of the parts behind them the head of the table.
pub fn row(numbers: impl Iterator<Item = String>, is_head: bool) -> String {
    let names = PARTS.iter().map(|name| format!("{name} µs")).filter(|_| is_head);
    numbers.chain(names).map(|text| format!("{text:>19}")).collect()
}

/// Prints on what the time of capsules was spent, there and back. Transmission is the time in calls of the
/// socket, in which the kernel may already wake the next node: so it is a part of kernel and wire.
pub fn parts(whole: Duration, own: Spans, mut nodes: Sum, count: u32) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    nodes.times.0[0] += ns(own.authentication);
    let [known @ .., sending] = nodes.times.0;
    let kernel = ns(whole).saturating_sub(known.iter().sum());
    let sending = sending + ns(own.transmission);
    let known = PARTS.into_iter().zip(known);
    for (name, part) in known.chain([("kernel and wire", kernel), ("  transmission", sending)]) {
        let share = part as f64 / ns(whole).max(1) as f64 * 100.0;
        say!("  {name:<16}{:>10.2} µs {share:>6.1} %", part as f64 / 1000.0 / f64::from(count));
    }
}
