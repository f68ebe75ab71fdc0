//! Delays and round trips as two nodes see them, whose network is a graph of Click elements with known
//! delays: FLAME's Figures 3 and 4. One site is well connected; the other is behind a slow link, which
//! datagrams overload for a while. `scripts/sites.sh` makes the network and the traffic.

use super::finding::{Finding, short};
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::row::median;
use flame_plot::{Scale, Shape};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The seconds of traffic, and the part of them in which the slow link is overloaded.
const SECONDS: u64 = 20;
const OVERLOAD: (f64, f64) = (0.4, 0.6);
/// The packets that wait for the slow link, its rate in bits per second, and the bytes of a frame of the
/// overload.
const QUEUE: (f64, f64, f64) = (50.0, 2e6, 1000.0);
const SITES: [(&str, &str); 2] = [("1", "well connected"), ("2", "behind the slow link")];

/// The delays of the network in milliseconds.
struct Truth {
    slow: f64,
    targets: Vec<f64>,
}

impl Truth {
    fn read(said: &str) -> Option<Self> {
        let after = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(numbers);
        Some(Self { slow: *after("slow ")?.first()?, targets: after("targets ")? })
    }

    /// Returns the round-trip time from a site to a target.
    fn round_trip(&self, site: usize, target: usize) -> Option<f64> {
        Some(2.0 * (self.targets.get(target)? + if site == 0 { 0.0 } else { self.slow }))
    }

    /// Returns the delay over the slow link while its queue is full.
    fn overloaded(&self) -> f64 {
        let (packets, rate, bytes) = QUEUE;
        self.slow + 1000.0 * packets * bytes * 8.0 / rate
    }
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Returns the rows of a table in lines of JSON.
fn rows(text: &str, table: &str) -> Vec<Value> {
    let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|row| row["table"] == table).collect()
}

/// Returns times in seconds since the first packet and the delays in milliseconds from site 1 to site 2.
fn delays(setting: &Setting<'_>, folder: &Path) -> Result<Vec<(f64, f64)>, Error> {
    let mut join = Command::new(setting.flame);
    join.args(["join", "--window", "2s", "--interval", "250ms", "--format", "json"]);
    join.args(SITES.map(|(n, _)| format!("{n}={}", folder.join(format!("trajectory-{n}.json")).display())));
    let out = join.output()?;
    if !out.status.success() {
        return Err(format!("flame join: {}", String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    let rows = rows(&String::from_utf8_lossy(&out.stdout), "delay");
    let of = |row: &Value| {
        let is_way = row["path"] == "1 > 2";
        is_way.then_some(())?;
        Some((row["start_ns"].as_f64()? / 1e9, row["p50_ns"].as_f64()? / 1e6))
    };
    let points: Vec<_> = rows.iter().filter_map(of).collect();
    let begin = points.iter().map(|point| point.0).fold(f64::INFINITY, f64::min);
    Ok(points.into_iter().map(|(at, delay)| (at - begin, delay)).collect())
}

/// Returns the round-trip times in milliseconds of a site, by target.
fn round_trips(folder: &Path, site: &str) -> Result<BTreeMap<usize, Vec<f64>>, Error> {
    let text = std::fs::read_to_string(folder.join(format!("rtt-{site}.json")))?;
    let mut all: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for row in rows(&text, "handshake") {
        let target = row["dst"].as_str().and_then(|dst| dst.strip_prefix("10.7.3.")?.parse::<usize>().ok());
        let resent = row["syn_retransmits"].as_u64();
        if let (Some(target), Some(0), Some(ns)) = (target, resent, row["rtt_ns"].as_f64()) {
            all.entry(target - 1).or_default().push(ns / 1e6);
        }
    }
    Ok(all)
}

/// Measures the delays, as root.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let seconds = if setting.quick { 5 } else { SECONDS };
    let folder = tempfile::tempdir()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/sites.sh");
    let mut command = Command::new(script);
    let out =
        command.args([setting.flame, setting.modules, folder.path()]).arg(seconds.to_string()).output()?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned().into());
    }
    let truth = Truth::read(&String::from_utf8_lossy(&out.stdout)).ok_or("the script states no delays")?;
    let way = one_way(setting, &truth, &delays(setting, folder.path())?, seconds as f64)?;
    let trips = [round_trips(folder.path(), SITES[0].0)?, round_trips(folder.path(), SITES[1].0)?];
    Ok(vec![way, both(setting, &truth, &trips)?])
}

/// Compares the delays of the slow link with its latency, and with its queue while it is overloaded.
fn one_way(
    setting: &Setting<'_>,
    truth: &Truth,
    points: &[(f64, f64)],
    seconds: f64,
) -> Result<Finding, Error> {
    let (from, to) = (OVERLOAD.0 * seconds, OVERLOAD.1 * seconds);
    let within = |from: f64, to: f64| -> Vec<f64> {
        points.iter().filter(|(at, _)| (from..to).contains(at)).map(|point| point.1).collect()
    };
    let item = "FLAME Fig. 3";
    let what = "one-way delay over a link, at rest and while datagrams overload it";
    let theirs = "12 ms or more at rest (24 ms there and back), and a spike";
    // The traffic begins somewhat after the first packet.
    let (rest, spike) = (within(0.0, from - 0.5), within(from + 0.5, to));
    if rest.is_empty() || spike.is_empty() {
        return Ok(Finding::missing(item, what, theirs, "no packets of both times were seen".to_owned()));
    }
    let (rest, spike) = (median(rest), spike.into_iter().fold(0.0, f64::max));
    let (slow, full) = (truth.slow, truth.overloaded());
    println!("sites: delay over the slow link in ms, and the truth (FLAME, Fig. 3)");
    println!("at rest     {rest:6.2}  {slow:6.2}\noverloaded  {spike:6.2}  {full:6.2}, with a full queue");
    Figure {
        name: "delay",
        title: "One-way delay between two sites",
        notes: vec![format!("the link's latency is {slow} ms, and {full:.0} ms with a full queue")],
        x: ("time [s]", Scale::FromZero),
        y: ("delay [ms]", Scale::FromZero),
        series: vec![("from site 1 to site 2".to_owned(), Shape::Line(points.to_vec()))],
    }
    .write(setting.folder)?;
    let (at_rest, at_most) = (short(rest), short(spike));
    let ours = format!(
        "{at_rest} ms at rest, {at_most} ms overloaded; the network's own: {slow} ms, at most {full:.0} ms"
    );
    let holds = (slow..1.25 * slow).contains(&rest) && spike > 3.0 * rest && spike < 1.1 * full;
    Ok(Finding::shape(item, what, theirs, ours, holds))
}

/// Compares the round trips of both sites with the network's.
fn both(
    setting: &Setting<'_>,
    truth: &Truth,
    trips: &[BTreeMap<usize, Vec<f64>>; 2],
) -> Result<Finding, Error> {
    println!("sites: median round-trip times in ms to the same targets, and the truth (FLAME, Fig. 4)");
    println!("target  site 1   truth  site 2   truth");
    let (mut worst, mut shorter, mut series) = (0.0f64, 0, vec![Vec::new(), Vec::new()]);
    for target in 0..truth.targets.len() {
        let mut line = format!("{:6}", target + 1);
        let mut medians = Vec::new();
        for (site, of) in trips.iter().enumerate() {
            let known = truth.round_trip(site, target).unwrap_or(f64::NAN);
            let found = of.get(&target).map_or(f64::NAN, |all| median(all.clone()));
            line += &format!("  {found:6.2}  {known:6.2}");
            // A target that was not seen is as far from the truth as can be.
            worst = worst.max(if found.is_nan() { f64::INFINITY } else { (found - known).abs() });
            medians.push(found);
            series[site].push((known, found));
        }
        shorter += usize::from(medians[0] < medians[1]);
        println!("{line}");
    }
    let count = truth.targets.len();
    Figure {
        name: "round-trips",
        title: "Round trips to the same targets from two sites",
        notes: vec!["each point is the median to a target".to_owned()],
        x: ("the network's round-trip time [ms]", Scale::FromZero),
        y: ("round-trip time that the node states [ms]", Scale::FromZero),
        series: SITES.iter().zip(series).map(|(site, of)| (site.1.to_owned(), Shape::Points(of))).collect(),
    }
    .write(setting.folder)?;
    let item = "FLAME Fig. 4";
    let what = "round trips to the same targets from two sites";
    let ours = format!(
        "shorter to {shorter} of {count} targets from the well connected site; medians within {} ms of the \
         network's own",
        short(worst)
    );
    let theirs = "shorter from the well connected site";
    Ok(Finding::shape(item, what, theirs, ours, shorter == count && worst < 2.0))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    /// The figures are compared with the network's own delays, whatever the shape.
    #[test]
    fn delays_are_compared_with_the_truth() {
        let folder = tempfile::tempdir().unwrap();
        let setting =
            Setting { flame: Path::new(""), modules: Path::new(""), folder: folder.path(), quick: true };
        let truth = Truth::read("slow 12\ntargets 1 40\n").unwrap();
        assert_eq!((truth.round_trip(0, 1), truth.round_trip(1, 1)), (Some(80.0), Some(104.0)));
        let points = |rest: f64, spike: f64| -> Vec<_> {
            (0..20).map(|n| (f64::from(n) * 0.5, if (8..12).contains(&n) { spike } else { rest })).collect()
        };
        let way = |rest, spike| one_way(&setting, &truth, &points(rest, spike), 10.0).unwrap().verdict;
        assert_eq!(way(12.4, 190.0), Verdict::Reproduced);
        for (rest, spike) in [(12.4, 13.0), (11.0, 190.0), (30.0, 190.0), (12.4, 900.0)] {
            assert!(matches!(way(rest, spike), Verdict::Differs(_)), "{rest} {spike}");
        }
        let trips = |far: f64| [[2.1, 80.2], [26.1, far]].map(|all| all.map(|ms| vec![ms]));
        let of = |far| {
            let by_target = trips(far).map(|all| all.into_iter().enumerate().collect::<BTreeMap<_, _>>());
            both(&setting, &truth, &by_target).unwrap()
        };
        assert_eq!(of(104.3).verdict, Verdict::Reproduced);
        assert!(of(104.3).ours.contains("2 of 2 targets") && of(104.3).ours.contains("within 0.300 ms"));
        assert!(matches!(of(109.0).verdict, Verdict::Differs(_)));
        assert!(matches!(of(79.0).verdict, Verdict::Differs(_)));
    }

    #[test]
    fn handshakes_that_were_sent_again_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let row = |dst: &str, resent: u32, ns: u32| {
            format!(
                "{{\"table\":\"handshake\",\"dst\":\"{dst}\",\"syn_retransmits\":{resent},\"rtt_ns\":{ns}}}\n"
            )
        };
        let text = [row("10.7.3.1", 0, 2_000_000), row("10.7.3.1", 1, 9_000_000), row("10.7.2.100", 0, 1)];
        std::fs::write(folder.path().join("rtt-1.json"), text.concat()).unwrap();
        assert_eq!(round_trips(folder.path(), "1").unwrap(), BTreeMap::from([(0, vec![2.0])]));
    }
}
