//! The rate at which an IP router forwards, by the rate that is offered to it, between two pairs of veth
//! interfaces and in memory: the experiment of the Figure 5.3 of Patel's thesis. The router is on a core of
//! its own, and the kernel hands packets over on the sender's.
//!
//! - `hardwired`: native elements alone.
//! - `hybrid`: four untrusted elements more in the path, which send each packet on. Their bounds are proved,
//!   so their code has no counters.
//! - `dynamic`: the same, metered and preempted, each in a process of its own.
//! - `Click`: userlevel Click with the native elements, where it is installed.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::click::{FRAME, Forwarded, PAIRS, ROUTER, forward};
use crate::elements::null;
use crate::fixture::Error;
use crate::graph::Graph;
use crate::net::in_namespace;
use flame_plot::{Scale, Shape};
use std::io;
use std::process::Command;

/// The untrusted elements in the path.
const UNTRUSTED: usize = 4;
/// The rates that are offered, 0 for the sender's highest. The machine's state changes, so all systems are
/// measured at a rate before the next one.
const RATES: [f64; 7] = [5e4, 1e5, 1.5e5, 2e5, 3e5, 4e5, 0.0];

/// A router: the program and its options, and the elements before the router's own.
struct System {
    name: &'static str,
    program: String,
    options: &'static [&'static str],
    before: String,
}

/// Returns the router with a lookup that today's Click has as well.
fn router() -> String {
    ROUTER.replace("LookupIPRoute", "LinearIPLookup")
}

impl System {
    fn words(&self) -> Vec<String> {
        let graph =
            format!("FromDevice(rx0, PROMISC true) -> {}{} q -> ToDevice(out0)", self.before, router());
        let options = self.options.iter().map(|&option| option.to_owned());
        let words = [self.program.clone()].into_iter().chain(options);
        words.chain(["-e".to_owned(), graph]).collect()
    }

    fn point(&self, namespace: &str, rate: f64, seconds: f64) -> io::Result<Forwarded> {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let packets = if rate > 0.0 { rate } else { 5e5 } * seconds;
        forward(namespace, &words, packets as u64, rate)
    }
}

/// Returns whether the command `click` is userlevel Click: another program has this name, too.
fn has_click() -> bool {
    let out = Command::new("click").arg("--version").output();
    out.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("(Click)"))
}

fn systems(setting: &Setting<'_>, module: &str) -> Vec<System> {
    let flame = setting.flame.display().to_string();
    let of = |name, options, before| System { name, program: flame.clone(), options, before };
    let untrusted = format!("Module({module}) -> ").repeat(UNTRUSTED);
    let mut all = vec![
        of("hardwired", &["click"][..], String::new()),
        of("hybrid", &["click"], untrusted.clone()),
        of("dynamic", &["click", "--isolate", "--metered"], untrusted),
    ];
    match has_click() {
        true => {
            all.push(System { program: "click".to_owned(), options: &[], ..of("Click", &[], String::new()) })
        }
        false => println!("without Click: userlevel Click is not installed"),
    }
    all
}

/// Measures the rates.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let folder = tempfile::tempdir()?;
    let module = null(folder.path())?;
    println!("forwarding: packets a second of an IP router (Patel, Fig. 5.3)");
    let systems = systems(setting, &module);
    let (seconds, rates) = if setting.quick { (0.1, &RATES[5..]) } else { (2.0, &RATES[..]) };
    let measured = in_namespace(&PAIRS, |namespace| {
        let mut measured: Vec<Vec<Forwarded>> = systems.iter().map(|_| Vec::new()).collect();
        for rate in rates {
            for (system, points) in systems.iter().zip(&mut measured) {
                points.push(system.point(namespace, *rate, seconds)?);
            }
        }
        Ok(measured)
    })?;
    println!("{:10} {:>9} {:>10} {:>21}", "system", "offered", "forwarded", "ns of processor time");
    for (system, points) in systems.iter().zip(&measured) {
        for p in points {
            let ns = p.seconds * 1e9 / p.count;
            println!("{:10} {:9.0} {:10.0} {ns:21.0}", system.name, p.offered, p.rate);
        }
    }
    let packets = if setting.quick { 100_000 } else { 2_000_000 };
    // Click has no modules, and the measure in memory is for ours.
    for System { name, options, before, .. } in systems.iter().filter(|s| s.name != "Click") {
        let options = &options[1..];
        let graph = Graph { flame: setting.flame, options, data: FRAME, length: 100, burst: 64 };
        let ns = graph.nanoseconds(&format!("{before}{ROUTER} q -> Unqueue(64)"), packets)?;
        println!("{name:10} in memory: {ns:.0} ns for a packet, {:.0} a second", 1e9 / ns);
    }
    let line = |points: &[Forwarded]| points.iter().map(|p| (p.offered / 1e3, p.rate / 1e3)).collect();
    let series = systems.iter().zip(&measured);
    let series = series.map(|(system, points)| (system.name.to_owned(), Shape::Line(line(points))));
    Figure {
        name: "forwarding",
        title: "Rate of forwarding by offered rate",
        notes: vec![format!("hybrid and dynamic: {UNTRUSTED} untrusted elements in the path")],
        x: ("offered rate [1000 packets/s]", Scale::FromZero),
        y: ("forwarded [1000 packets/s]", Scale::FromZero),
        series: series.collect(),
    }
    .write(setting.folder)?;
    let most = |points: &[Forwarded]| points.iter().map(|p| p.rate).fold(0.0, f64::max);
    let of = |name: &str| {
        let found = systems.iter().zip(&measured).find(|(system, _)| system.name == name);
        found.map(|(_, points)| most(points))
    };
    let rate = |name: &str| of(name).unwrap_or(f64::NAN);
    let mut findings = vec![
        Finding::more(
            "Patel Table 2.1",
            "hybrid over dynamic, packets a second",
            "times",
            115.0 / 67.0,
            rate("hybrid") / rate("dynamic"),
        ),
        Finding::shape(
            "Patel Fig. 5.3",
            "order of the systems: hardwired, hybrid, dynamic",
            "hybrid forwards twice as many as dynamic",
            format!(
                "{:.0}, {:.0}, {:.0} packets a second",
                rate("hardwired"),
                rate("hybrid"),
                rate("dynamic")
            ),
            rate("hardwired") * 1.05 >= rate("hybrid") && rate("hybrid") > rate("dynamic"),
        ),
    ];
    let what = "our router over userlevel Click, packets a second";
    findings.push(match of("Click") {
        Some(click) => Finding::more("Patel Fig. 5.3", what, "times", 1.0, rate("hardwired") / click),
        None => Finding::missing(
            "Patel Fig. 5.3",
            what,
            "the same elements",
            "userlevel Click is not installed".to_owned(),
        ),
    });
    Ok(findings)
}
