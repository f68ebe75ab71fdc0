//! The shares of four sessions of a node over time, beside what they reserved: the experiment of RCANE's
//! Figure 11 on the kernel's deadline scheduler. All four always have work. One changes its reservation, one
//! gives up its own, and one has none.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::made;
use crate::node::{Connection, Node, bursts};
use flame_plot::{Scale, Shape};
use serde_json::json;
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The reservations in percent, from each time in seconds on. 0 stands for no reservation.
const PHASES: [(u64, [u64; 4]); 3] = [(0, [10, 20, 30, 0]), (4, [30, 20, 30, 0]), (8, [30, 20, 0, 0])];
const END: u64 = 12;
const WINDOW: Duration = Duration::from_millis(100);

/// The path of each session's module.
const PATH: &str = "/v1/modules/busy";
const CONFIG: &str = "[sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\n\
    [isolation]\nscheduler = \"deadline\"\n[capacity]\ncpu = \"400%\"\n";

/// The four sessions on a node.
struct Sessions<'a> {
    node: &'a Node,
    connections: Vec<Connection<'a>>,
}

impl Sessions<'_> {
    /// Gives each session its reservation of `now`, if it had another one, and notes its process in `pids`.
    fn reserve(
        &mut self,
        now: &[u64; 4],
        before: Option<&[u64; 4]>,
        pids: &mut [u32; 4],
    ) -> Result<(), Error> {
        for (n, (name, connection)) in NAMES.into_iter().zip(&mut self.connections).enumerate() {
            let reserve = |percent: u64| serde_json::json!({ "cpu_ppm": percent * 10_000 });
            match before.map(|before| before[n]) {
                None => drop(connection.install("busy", &made::busy()?, Some(reserve(now[n])))?),
                Some(same) if same == now[n] => continue,
                // To begin or end a reservation takes an update.
                Some(before) if before == 0 || now[n] == 0 => {
                    connection.request("PUT", PATH, Some(&json!({ "reserve": reserve(now[n]) })))?;
                }
                Some(_) => drop(connection.renew("busy", &made::busy()?, reserve(now[n]))?),
            }
            pids[n] = self.node.process("busy", name)?;
        }
        Ok(())
    }
}

/// Returns the nanoseconds that a process's main thread has run.
fn ran(pid: u32) -> Result<u64, Error> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// A window: its end in seconds, and the part of a processor that each session had in percent.
type Window = (f64, [f64; 4]);

fn measure(sessions: &mut Sessions<'_>) -> Result<Vec<Window>, Error> {
    let mut pids = [0; 4];
    sessions.reserve(&PHASES[0].1, None, &mut pids)?;
    // The first batches come with the first packets.
    std::thread::sleep(Duration::from_secs(1));
    let (begin, mut windows, mut phase) = (Instant::now(), Vec::new(), 0);
    let look = |pids: &[u32; 4]| -> Result<[(Instant, u64); 4], Error> {
        let mut all = [(begin, 0); 4];
        for (at, pid) in all.iter_mut().zip(pids) {
            *at = (Instant::now(), ran(*pid)?);
        }
        Ok(all)
    };
    let mut before = look(&pids)?;
    while begin.elapsed() < Duration::from_secs(END) {
        if let Some((at, now)) = PHASES.get(phase + 1)
            && begin.elapsed() >= Duration::from_secs(*at)
        {
            sessions.reserve(now, Some(&PHASES[phase].1), &mut pids)?;
            phase += 1;
            before = look(&pids)?;
        }
        std::thread::sleep(WINDOW);
        let now = look(&pids)?;
        let mut parts = [0.0; 4];
        for (n, part) in parts.iter_mut().enumerate() {
            let time = (now[n].0 - before[n].0).as_nanos() as f64;
            *part = 100.0 * now[n].1.saturating_sub(before[n].1) as f64 / time;
        }
        windows.push((begin.elapsed().as_secs_f64(), parts));
        before = now;
    }
    Ok(windows)
}

/// Returns the means of the sessions from the first phase's time on until the second's.
fn means(windows: &[Window]) -> [f64; 4] {
    let within = windows.iter().filter(|(end, _)| *end > 0.3 && *end <= PHASES[1].0 as f64);
    let all: Vec<&Window> = within.collect();
    [0, 1, 2, 3].map(|n| all.iter().map(|(_, parts)| parts[n]).sum::<f64>() / all.len().max(1) as f64)
}

fn findings(windows: &[Window]) -> Vec<Finding> {
    let (item, reserved, had) = ("SANE Fig. 11", PHASES[0].1, means(windows));
    let what = "the least part of its reservation that a session had";
    // Sessions that do not want their part say nothing about guarantees. All four have the same work, and a
    // reservation is also the most that a session gets: so the one without shows how much they want.
    let most = reserved.into_iter().max().unwrap_or_default() as f64;
    let free = reserved.iter().zip(had).filter(|(of, _)| **of == 0).map(|(_, had)| had);
    let wanted = free.fold(0.0, f64::max);
    if wanted <= most {
        let cause = format!("a session without reservation had {wanted:.0} %, so none may want {most:.0} %");
        return vec![Finding::missing(item, what, "all of it", cause)];
    }
    let parts = reserved.iter().zip(had).filter(|(of, _)| **of > 0).map(|(of, had)| had / *of as f64);
    let least = 100.0 * parts.fold(f64::INFINITY, f64::min);
    vec![Finding::shape(item, what, "all of it", format!("{least:.0} %"), least > 95.0)]
}

/// Measures the shares. The node must be allowed to guarantee them.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let node = Node::start(setting.flame, CONFIG, &[("dense.pcap", &bursts(20, 0))])?;
    let holders = NAMES.map(|name| node.principal(name, &[]));
    let holders = holders.into_iter().collect::<Result<Vec<_>, _>>()?;
    let connections = holders.iter().map(|holder| node.session(holder)).collect::<Result<_, _>>()?;
    let windows = measure(&mut Sessions { node: &node, connections })?;
    println!("shares: of a processor in percent, over windows of {WINDOW:?} (RCANE, Fig. 11)");
    println!("from s  session  reserved   mean  median off by  90 of 100 off by");
    for (n, (from, reserved)) in PHASES.iter().enumerate() {
        let until = PHASES.get(n + 1).map_or(END, |(from, _)| *from);
        // Without the window in which the reservations changed.
        let within = |(end, _): &&Window| *end > *from as f64 + 0.3 && *end <= until as f64;
        for (session, name) in NAMES.iter().enumerate() {
            let mut had: Vec<f64> = windows.iter().filter(within).map(|(_, parts)| parts[session]).collect();
            let mean = had.iter().sum::<f64>() / had.len().max(1) as f64;
            if reserved[session] == 0 {
                println!("{from:6}  {name:7}      none  {mean:5.1}");
                continue;
            }
            let of = reserved[session] as f64;
            had.iter_mut().for_each(|part| *part = (*part / of - 1.0).abs() * 100.0);
            had.sort_by(f64::total_cmp);
            let off = |part: f64| had.get((had.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
            println!("{from:6}  {name:7}  {of:6.0} %  {mean:5.1}  {:11.1} %  {:14.1} %", off(0.5), off(0.9));
        }
    }
    let series = |(n, name): (usize, &&str)| {
        (
            format!("session {name}"),
            Shape::Line(windows.iter().map(|(end, parts)| (*end, parts[n])).collect()),
        )
    };
    let reserved = PHASES.iter().map(|(from, r)| format!("from {from} s: {r:?} %"));
    let figure = Figure {
        name: "shares",
        title: "Shares of four busy sessions",
        notes: vec![format!("reserved {}", reserved.collect::<Vec<_>>().join(", "))],
        x: ("time [s]", Scale::FromZero),
        y: ("share of a processor [%]", Scale::FromZero),
        series: NAMES.iter().enumerate().map(series).collect(),
    };
    figure.write(setting.folder)?;
    Ok(findings(&windows))
}
