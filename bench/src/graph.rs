//! Graphs in memory: the processor time that a path of elements takes for a packet.

use crate::net::children_seconds;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A source of equal packets in memory, for paths on one core.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    pub flame: &'a Path,
    /// Options of `flame click`.
    pub options: &'a [&'a str],
    /// The bytes of a packet, as an argument of elements.
    pub data: &'a str,
    /// The length to which they are repeated or cut off.
    pub length: usize,
    /// The number of packets that come together.
    pub burst: u32,
}

/// The packets whose time stands for start and end.
const START: u64 = 5000;

impl Graph<'_> {
    /// Returns the nanoseconds of processor time for each of `packets` packets, without start and end.
    pub fn nanoseconds(&self, path: &str, packets: u64) -> io::Result<f64> {
        let start = self.seconds(path, START)?;
        Ok((self.seconds(path, packets)? - start).max(1e-9) * 1e9 / (packets - START) as f64)
    }

    /// Returns the processor time in seconds of a graph that sends `packets` packets along a path.
    fn seconds(&self, path: &str, packets: u64) -> io::Result<f64> {
        let Self { data, length, burst, .. } = self;
        let limits = format!("LENGTH {length}, LIMIT {packets}, BURST {burst}, STOP true");
        let source = format!("InfiniteSource(DATA {data}, {limits})");
        let graph = format!("{source} -> {path} -> k :: Counter -> Discard");
        let before = children_seconds()?;
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(self.flame).arg("click").args(self.options);
        let out = command.args(["-e", &graph, "-h", "k.count"]).stderr(Stdio::piped()).output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let count = text.lines().find_map(|line| line.trim().parse::<u64>().ok());
        match count {
            // The run stops with the source: what waits in a queue then is not counted.
            Some(count) if count + 4100 >= packets => Ok(children_seconds()? - before),
            _ => {
                let reason = String::from_utf8_lossy(&out.stderr).into_owned();
                Err(io::Error::other(format!("{path}: {} of {packets} packets: {reason}", text.trim())))
            }
        }
    }
}
