//! Graphs of several threads: two paths that have nothing to do with each other, and a path that a queue cuts
//! in half, each in one thread and in two.

use crate::click::FRAME;
use crate::commands::time_on;
use crate::row::{Row, median, paired};
use std::path::Path;

const GROUP: &str = "threads: the time of one thread / that of two, packets in memory and two cores";

/// The elements of an IP router with one output each, so that the source waits for the queue behind them.
const HALF: &str = "Paint(1) -> Strip(14) -> CheckIPHeader -> LookupIPRoute(0.0.0.0/0 0) -> DropBroadcasts
  -> IPGWOptions(10.0.0.9) -> FixIPSrc(10.0.0.9) -> DecIPTTL -> IPFragmenter(1500)
  -> EtherEncap(0x0800, 2:0:0:0:0:3, 2:0:0:0:0:4)";

/// A multiple of the bursts. A source waits while a queue is full; of a burst that exceeds the room of one,
/// the rest would be lost, and the run would wait for the last packets for ever.
const QUEUE: &str = "Queue(4096)";

pub fn rows(flame: &Path, rounds: usize) -> Result<Vec<Row>, String> {
    let packets = if rounds > 3 { 3_000_000 } else { 100_000 };
    let source = format!("InfiniteSource(DATA {FRAME}, LENGTH 100, LIMIT {packets}, BURST 64)");
    let end = format!("Counter(COUNT_CALL {packets} stop) -> Discard;");
    let routed = |name: &str| {
        format!("s{name} :: {source} -> {HALF} -> {QUEUE} -> u{name} :: Unqueue(BURST 64) -> {end}")
    };
    let apart = format!(
        "{} {} DriverManager(wait_stop 2); StaticThreadSched(sa 0, ua 0, sb 1, ub 1)",
        routed("a"),
        routed("b")
    );
    let halves = format!(
        "s :: {source} -> {HALF} -> {QUEUE} -> u :: Unqueue(BURST 64) -> {HALF} -> {end}
         StaticThreadSched(s 0, u 1)"
    );
    let flame = flame.to_string_lossy();
    let command = |graph: &str, threads: &str| -> Vec<String> {
        ["click", "-j", threads, "-e", graph].iter().fold(vec![flame.to_string()], |mut all, word| {
            all.push((*word).to_owned());
            all
        })
    };
    let mut rows = Vec::new();
    for (name, graph) in [("two paths", apart), ("one path with a queue in its middle", halves)] {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..rounds.min(5) {
            one.push(time_on("0,1", &command(&graph, "1"))?);
            two.push(time_on("0,1", &command(&graph, "2"))?);
        }
        let ratio = paired(&one, &two);
        let detail = format!("{:.3} / {:.3} s", median(one), median(two));
        rows.push(Row::ratio(GROUP, name, ratio, detail));
    }
    Ok(rows)
}
