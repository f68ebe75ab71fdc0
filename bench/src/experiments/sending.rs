//! The bandwidth of three sessions of a node that always have frames to send, while one of them changes its
//! guarantee: the experiment of RCANE's Figure 12. What is not reserved is shared equally.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::made::sending;
use crate::net::{command, in_namespace};
use crate::node::{Node, bursts};
use flame_plot::{Scale, Shape};
use std::io;
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The bandwidth of the link, and the guarantees in Mbit/s, from each time in seconds on.
const LINK: u64 = 20;
const PHASES: [(u64, [u64; 3]); 3] = [(0, [2, 4, 6]), (4, [8, 4, 6]), (8, [2, 4, 6])];
const END: u64 = 12;
const WINDOW: Duration = Duration::from_millis(250);
/// The bytes of a frame. Rates are those of frames, without what an Ethernet adds.
const FRAME: usize = 1000;
/// The frames of a batch. Together they are more than the link carries.
const FRAMES: usize = 32;
/// The packets of a burst, and the time between two bursts in milliseconds. Frames leave after batches.
const BURST: (u32, u32) = (40, 1);

/// A window: its end in seconds, and the bandwidth of each session in Mbit/s.
type Window = (f64, [f64; 3]);

fn measure(setting: &Setting<'_>, namespace: &str) -> Result<Vec<Window>, Error> {
    let config = format!(
        "[links.out]\ninterface = \"tx0\"\nbandwidth = \"{LINK} Mbit/s\"\n\
         [sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\nlink = \"out\"\n"
    );
    let cores = "0-1023";
    let program = command(namespace, cores, &[setting.flame]);
    let node = Node::start_by(program, &config, &[("dense.pcap", &bursts(BURST.0, BURST.1))])?;
    let holders = NAMES.map(|name| node.principal(name, &[]));
    let holders = holders.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut sessions = holders.iter().map(|holder| node.session(holder)).collect::<Result<Vec<_>, _>>()?;
    let module = |guarantee: u64| sending(FRAMES, FRAME, guarantee * 1_000_000);
    for (session, guarantee) in sessions.iter_mut().zip(PHASES[0].1) {
        session.install("sending", &module(guarantee)?, None)?;
    }
    // The first batches come with the first packets.
    std::thread::sleep(Duration::from_secs(1));
    let look = || -> Result<Vec<(Instant, f64)>, Error> {
        let sent = |name: &&str| {
            let shown = node.show("sending", name)?;
            Ok((Instant::now(), shown["account"]["sent"].as_f64().unwrap_or(0.0)))
        };
        NAMES.iter().map(sent).collect()
    };
    let (end, begin, mut windows, mut phase) =
        (if setting.quick { 1 } else { END }, Instant::now(), Vec::new(), 0);
    let mut before = look()?;
    while begin.elapsed() < Duration::from_secs(end) {
        if let Some((at, guarantees)) = PHASES.get(phase + 1)
            && begin.elapsed() >= Duration::from_secs(*at)
        {
            for (n, session) in sessions.iter_mut().enumerate() {
                if guarantees[n] != PHASES[phase].1[n] {
                    session.update("sending", &module(guarantees[n])?)?;
                }
            }
            phase += 1;
            before = look()?;
        }
        std::thread::sleep(WINDOW);
        let now = look()?;
        let mut rates = [0.0; 3];
        for (n, rate) in rates.iter_mut().enumerate() {
            let frames = (now[n].1 - before[n].1).max(0.0);
            *rate = frames * (FRAME * 8) as f64 / (now[n].0 - before[n].0).as_secs_f64() / 1e6;
        }
        windows.push((begin.elapsed().as_secs_f64(), rates));
        before = now;
    }
    Ok(windows)
}

/// Measures the bandwidths.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let windows = in_namespace(&["tx0 rx0"], |namespace| {
        measure(setting, namespace).map_err(|e| io::Error::other(e.to_string()))
    })?;
    println!("sending: Mbit/s of a link of {LINK} over windows of {WINDOW:?} (RCANE, Fig. 12)");
    println!("from s  session  guarantee   mean  least");
    let mut kept = f64::INFINITY;
    for (n, (from, guarantees)) in PHASES.iter().enumerate() {
        let until = PHASES.get(n + 1).map_or(END, |(from, _)| *from);
        // Without the window in which the guarantees changed.
        let within = |(end, _): &&Window| *end > *from as f64 + 0.5 && *end <= until as f64;
        for (session, name) in NAMES.iter().enumerate() {
            let had: Vec<f64> = windows.iter().filter(within).map(|(_, rates)| rates[session]).collect();
            if had.is_empty() {
                continue;
            }
            let mean = had.iter().sum::<f64>() / had.len() as f64;
            let least = had.iter().copied().fold(f64::INFINITY, f64::min);
            kept = kept.min(mean / guarantees[session] as f64);
            println!("{from:6}  {name:7}  {:9}  {mean:5.2}  {least:5.2}", guarantees[session]);
        }
    }
    let series = NAMES.iter().enumerate().map(|(n, name)| {
        let line = windows.iter().map(|(end, rates)| (*end, rates[n])).collect();
        (format!("session {name}"), Shape::Line(line))
    });
    let guarantees = PHASES.map(|(from, all)| format!("from {from} s: {all:?} Mbit/s"));
    Figure {
        name: "sending",
        title: "Bandwidth of three sessions",
        notes: vec![format!("guarantees {}", guarantees.join(", "))],
        x: ("time [s]", Scale::FromZero),
        y: ("sent [Mbit/s]", Scale::FromZero),
        series: series.collect(),
    }
    .write(setting.folder)?;
    let item = "SANE Fig. 12";
    let what = "the least part of its guarantee that a session sent, on average of a phase";
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let ours =
        format!("{:.0} % (load of the machine {})", 100.0 * kept, load.split(' ').next().unwrap_or_default());
    Ok(vec![match kept.is_finite() {
        true => Finding::shape(item, what, "all of it", ours, kept > 0.9),
        false => Finding::missing(item, what, "all of it", "no window was measured".to_owned()),
    }])
}
