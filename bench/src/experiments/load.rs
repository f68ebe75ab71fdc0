//! Offered load against throughput, loss and the division of the receiver's core, for one worker and several:
//! the experiments of Bunga and Wolf's Figures 3 to 5.
//!
//! - `one core`: the kernel hands packets over on the receiver's core, as in a PC with a plain card.
//! - `hand-over apart`: the receiver's core does nothing else, as with a card that writes to memory.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::lossfree::{Program, hand_over_on_receiver};
use crate::net::{Receiver, in_namespace, send};
use flame_plot::{Scale, Shape};
use std::io;
use std::time::Instant;

/// The shortest frames that a sender sends.
const FRAME: usize = 60;
/// The loads, in parts of the sender's highest.
const LOADS: u32 = 6;
/// The ticks of the kernel's times in a second.
const TICKS: f64 = 100.0;

/// One measurement: packets a second, parts of a core.
#[derive(Clone, Copy, Default)]
struct Point {
    offered: f64,
    throughput: f64,
    /// The part of the sent packets.
    lost: f64,
    user: f64,
    system: f64,
    /// Interrupts and the kernel's hand-over on core 0.
    interrupts: f64,
}

/// Returns the ticks of core 0 in interrupts.
fn interrupt_ticks() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu0 ")).unwrap_or_default();
    Ok(line.split(' ').skip(5).take(2).filter_map(|word| word.parse::<f64>().ok()).sum())
}

/// Returns the ticks of a process in user and system.
fn process_ticks(pid: u32) -> io::Result<[f64; 2]> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut words = text.rsplit(") ").next().unwrap_or_default().split(' ').skip(11);
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    Ok([next(), next()])
}

struct Place<'a> {
    namespace: &'a str,
    cores: &'a str,
    seconds: f64,
}

impl Place<'_> {
    /// Sends at a rate, 0 for the highest, to a run.
    fn point(&self, program: &Program, rate: f64) -> io::Result<Point> {
        let receiver = Receiver::start(self.namespace, self.cores, &program.words)?;
        let (before, interrupts) = (process_ticks(receiver.pid())?, interrupt_ticks()?);
        let begin = Instant::now();
        let packets = if rate > 0.0 { rate } else { 5e5 } * self.seconds;
        let sent = send(self.namespace, "1", FRAME, packets as u64, rate)?;
        let (after, until) = (process_ticks(receiver.pid())?, interrupt_ticks()?);
        // What waits in the kernel's ring is still processed, and its time counts.
        let out = receiver.end()?;
        let passed = (begin.elapsed().as_secs_f64() - CLOSING).max(sent.seconds);
        let processed = (program.processed)(&out).ok_or_else(|| io::Error::other("no count"))?;
        let part = |ticks: f64| ticks / TICKS / sent.seconds;
        Ok(Point {
            offered: sent.packets / sent.seconds,
            throughput: processed / passed,
            lost: 1.0 - processed / sent.packets,
            user: part(after[0] - before[0]),
            system: part(after[1] - before[1]),
            interrupts: part(until - interrupts),
        })
    }
}

/// The time in seconds that a run waits at its end for blocks that are not full.
const CLOSING: f64 = 0.06;

/// A series of measurements: its name, and its points by load.
type Series = (String, Vec<Point>);

fn measure(namespace: &str, setting: &Setting<'_>) -> io::Result<[Vec<Series>; 2]> {
    let (seconds, loads) = if setting.quick { (0.2, 2) } else { (3.0, LOADS) };
    let over = |place: &Place<'_>, program: &Program| -> io::Result<Vec<Point>> {
        let most = place.point(program, 0.0)?;
        let rates = (1..loads).map(|n| most.offered * f64::from(n) / f64::from(loads));
        let mut points = rates.map(|rate| place.point(program, rate)).collect::<io::Result<Vec<_>>>()?;
        points.push(most);
        Ok(points)
    };
    let mut systems = Vec::new();
    let place = Place { namespace, cores: "0", seconds };
    for (system, on_receiver) in [("one core", true), ("hand-over apart", false)] {
        hand_over_on_receiver(namespace, on_receiver)?;
        for module in ["count", "flow"] {
            let points = over(&place, &Program::flame(setting.flame, module))?;
            systems.push((format!("{module}, {system}"), points));
        }
    }
    // With two cores, the second worker shares one with the sender.
    let cores = std::thread::available_parallelism()?.get();
    let place = Place { cores: &format!("0-{}", cores.max(2) - 1), ..place };
    let mut workers = Vec::new();
    for number in 1..=cores.clamp(2, 4) {
        let mut program = Program::flame(setting.flame, "flow");
        program.words.extend(["--workers".to_owned(), number.to_string()]);
        workers.push((format!("{number} workers"), over(&place, &program)?));
    }
    Ok([systems, workers])
}

/// Measures throughput and loss.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let [systems, workers] = in_namespace(&["tx0 rx0"], |namespace| measure(namespace, setting))?;
    println!("load: packets a second, and parts of a core in percent (Bunga and Wolf, Fig. 3 to 5)");
    println!(
        "{:24} {:>9} {:>10} {:>6} {:>6} {:>6} {:>10}",
        "system", "offered", "throughput", "lost", "user", "system", "interrupts"
    );
    for (name, points) in systems.iter().chain(&workers) {
        for p in points {
            println!(
                "{name:24} {:9.0} {:10.0} {:5.1}% {:5.1}% {:5.1}% {:9.1}%",
                p.offered,
                p.throughput,
                p.lost * 100.0,
                p.user * 100.0,
                p.system * 100.0,
                p.interrupts * 100.0
            );
        }
    }
    let lines = |of: &[Series], y: fn(&Point) -> f64| {
        let points = |all: &[Point]| Shape::Line(all.iter().map(|p| (p.offered / 1e3, y(p))).collect());
        of.iter().map(|(name, all)| (name.clone(), points(all))).collect::<Vec<_>>()
    };
    let thousands: fn(&Point) -> f64 = |p| p.throughput / 1e3;
    let lost: fn(&Point) -> f64 = |p| p.lost * 100.0;
    let split = |name: &str, y: fn(&Point) -> f64| {
        let named = |(system, shape)| (format!("{system}: {name}"), shape);
        lines(&systems[..2], y).into_iter().map(named).collect::<Vec<_>>()
    };
    let parts = [
        split("user", |p| p.user * 100.0),
        split("system", |p| p.system * 100.0),
        split("interrupts", |p| p.interrupts * 100.0),
    ];
    let x = "offered load [1000 packets/s]";
    let throughput = "throughput [1000 packets/s]";
    for (name, title, y, series) in [
        ("load", "Throughput by load", throughput, lines(&systems, thousands)),
        ("load-loss", "Loss by load", "lost packets [%]", lines(&systems, lost)),
        ("load-processor", "Division of the receiver's core", "part of a core [%]", parts.concat()),
        ("load-workers", "Throughput of flow by load and workers", throughput, lines(&workers, thousands)),
    ] {
        let (x, y) = ((x, Scale::FromZero), (y, Scale::FromZero));
        Figure { name, title, notes: Vec::new(), x, y, series }.write(setting.folder)?;
    }
    let most = |(_, points): &Series| points.iter().map(|p| p.throughput).fold(0.0, f64::max);
    let without_loss = |(_, points): &Series| {
        points.iter().filter(|p| p.lost < 0.001).map(|p| p.offered).fold(0.0, f64::max)
    };
    let at_last = |(_, points): &Series, of: fn(&Point) -> f64| points.last().map_or(f64::NAN, of);
    let kernel = |p: &Point| p.interrupts + p.system;
    Ok(vec![
        Finding::more(
            "Bunga Fig. 3",
            "count on one core (System A)",
            "packets a second",
            180e3,
            most(&systems[0]),
        ),
        Finding::shape(
            "Bunga Fig. 3",
            "flow classification sustains less than count",
            "less, on each system",
            format!(
                "{:.0} and {:.0} packets a second at most, {:.0} and {:.0} without loss",
                most(&systems[1]),
                most(&systems[0]),
                without_loss(&systems[1]),
                without_loss(&systems[0])
            ),
            most(&systems[1]) < most(&systems[0]),
        ),
        Finding::shape(
            "Bunga Fig. 4",
            "most of a core goes to interrupts and system with count, and more to the program with flow",
            "interrupts dominate; flow takes more in user space",
            format!(
                "interrupts and system {:.0} %, user {:.0} % (count), {:.0} % (flow)",
                100.0 * at_last(&systems[0], kernel),
                100.0 * at_last(&systems[0], |p| p.user),
                100.0 * at_last(&systems[1], |p| p.user)
            ),
            at_last(&systems[0], kernel) > at_last(&systems[0], |p| p.user)
                && at_last(&systems[1], |p| p.user) > at_last(&systems[0], |p| p.user),
        ),
        Finding::grows(
            "Bunga Fig. 5",
            "one processor is a bottleneck, two are not",
            "throughput grows with the second",
            "packets a second",
            &workers.iter().take(2).map(most).collect::<Vec<_>>(),
        ),
    ])
}
