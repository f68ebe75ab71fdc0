//! The work that is available for each packet at a rate without loss, for three ways to receive: the
//! experiment of FLAME's Figure 5, with the fit of a power law and the number of modules of its Section 3.5.
//!
//! - `polling`: the receiver has a core for itself, and finds packets in the kernel's ring.
//! - `interrupts`: the kernel hands packets over on the receiver's core.
//! - `apart`: as that, with each module in a process of its own over libpcap, as in LAME.

use super::finding::Finding;
use super::{Figure, Setting, nanoseconds_of_spin as nanoseconds};
use crate::fixture::Error;
use crate::lossfree::{Program, Trial, hand_over_on_receiver};
use crate::made::spin;
use crate::net::in_namespace;
use flame_plot::{Scale, Shape};
use std::io;
use std::path::Path;
use std::time::Instant;

/// The steps of a module for a packet.
const STEPS: [u32; 6] = [500, 1000, 2000, 4000, 8000, 16_000];
/// The numbers of modules of [`EACH`] steps.
const MODULES: [usize; 4] = [1, 2, 4, 8];
const EACH: u32 = 500;
/// The shortest frames that a sender sends.
const FRAME: usize = 60;

/// Returns the nanoseconds of the same steps in native code, as the program over libpcap takes them.
fn native(steps: u32) -> f64 {
    let time = |_| {
        let start = Instant::now();
        (0..256).for_each(|_| crate::lossfree::spin(steps));
        start.elapsed().as_nanos() as f64 / 256.0
    };
    (0..20).map(time).fold(f64::INFINITY, f64::min)
}

/// Returns factor and exponent of the power law `y = a x^b` by least squares over the logarithms.
fn power_law(points: &[(f64, f64)]) -> (f64, f64) {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (sum_x, sum_y) = logs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let (of_xy, of_xx) = logs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x * y, b + x * x));
    let b = (n * of_xy - sum_x * sum_y) / (n * of_xx - sum_x * sum_x);
    (((sum_y - b * sum_x) / n).exp(), b)
}

/// The results: for each way its points (packets a second, nanoseconds of work), and the rates of several
/// modules.
type Results = (Vec<(&'static str, Vec<(f64, f64)>)>, Vec<(usize, f64)>);

fn measure(namespace: &str, setting: &Setting<'_>, folder: &Path) -> Result<Results, Error> {
    let (seconds, search) = if setting.quick { (0.2, 2) } else { (1.0, 7) };
    let trial = Trial { namespace, receivers: "0", sender: "1", frame: FRAME, seconds };
    let file = |steps: u32, copy: usize| -> Result<String, Error> {
        let name = format!("spin{steps}-{copy}");
        let path = folder.join(format!("{name}.wasm"));
        std::fs::write(&path, spin(&name, steps)?)?;
        Ok(path.display().to_string())
    };
    let steps = if setting.quick { &STEPS[..2] } else { &STEPS[..] };
    let mut ways = Vec::new();
    for (name, on_receiver, apart) in
        [("polling", false, false), ("interrupts", true, false), ("apart", true, true)]
    {
        hand_over_on_receiver(namespace, on_receiver)?;
        let mut points = Vec::new();
        for steps in steps {
            let (program, work) = match apart {
                true => (Program::libpcap(*steps)?, native(*steps)),
                false => (Program::flame(setting.flame, &file(*steps, 0)?), nanoseconds(*steps)?),
            };
            points.push((trial.highest(&[program], search)?, work));
        }
        ways.push((name, points));
    }
    hand_over_on_receiver(namespace, false)?;
    let mut several = Vec::new();
    for modules in MODULES {
        let files = (0..modules).map(|copy| file(EACH, copy)).collect::<Result<Vec<_>, _>>()?;
        let program = Program::flame(setting.flame, &files.join(","));
        several.push((modules, trial.highest(&[program], search)?));
    }
    Ok((ways, several))
}

/// Measures the work that is available.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let folder = tempfile::tempdir()?;
    let measured = in_namespace(&["tx0 rx0"], |namespace| {
        measure(namespace, setting, folder.path()).map_err(|e| io::Error::other(e.to_string()))
    });
    let (ways, several) = measured?;
    println!("work: nanoseconds available for a packet at the highest rate without loss (FLAME, Fig. 5)");
    println!("{:10}  {:>8}  {:>16}", "way", "work ns", "packets a second");
    for (name, points) in &ways {
        points.iter().for_each(|(rate, work)| println!("{name:10}  {work:8.0}  {rate:16.0}"));
    }
    let (a, b) = power_law(&ways[0].1);
    println!("polling: work = {a:.3e} ns * rate^{b:.3} (FLAME: 3e9 cycles * rate^-1.1216)");
    let at_first = |way: usize| ways[way].1.first().map_or(f64::NAN, |(rate, _)| *rate);
    println!("polling / interrupts at the least work: {:.2} (FLAME: about 2.5)", at_first(0) / at_first(1));
    println!("polling / apart at the least work: {:.2}", at_first(0) / at_first(2));
    let work = nanoseconds(EACH)?;
    println!("modules of {work:.0} ns each: measured and by the fit, the highest rate");
    for (modules, rate) in &several {
        let by_fit = (*modules as f64 * work / a).powf(1.0 / b);
        println!("{modules:3}  {rate:10.0}  {by_fit:10.0}");
    }
    let series = |(name, points): &(&str, Vec<(f64, f64)>)| {
        let points: Vec<_> = points.iter().map(|(rate, work)| (rate / 1e3, work.log10())).collect();
        (String::from(*name), Shape::Line(points))
    };
    let fitted = ways[0].1.iter().map(|(rate, _)| (rate / 1e3, (a * rate.powf(b)).log10())).collect();
    Figure {
        name: "work",
        title: "Work available for a packet at the highest rate without loss",
        notes: vec![format!("fit of polling: {a:.3e} ns * rate^{b:.3}")],
        x: ("rate [1000 packets/s]", Scale::FromZero),
        y: ("work for a packet", Scale::LogTime),
        series: ways.iter().map(series).chain([("fit of polling".to_owned(), Shape::Line(fitted))]).collect(),
    }
    .write(setting.folder)?;
    let off = several.iter().map(|(modules, rate)| {
        let by_fit = (*modules as f64 * work / a).powf(1.0 / b);
        (rate / by_fit).max(by_fit / rate)
    });
    let off = off.max_by(f64::total_cmp).unwrap_or(f64::NAN);
    Ok(vec![
        Finding::more(
            "FLAME Fig. 5",
            "polling over interrupts, at the least work",
            "times",
            2.5,
            at_first(0) / at_first(1),
        ),
        Finding::shape(
            "FLAME Fig. 5",
            "the work falls with the rate as a power of it: the exponent",
            "-1.12",
            format!("{b:.2}"),
            (-2.0..-0.8).contains(&b),
        ),
        Finding::shape(
            "FLAME Section 3.5",
            "the rate that the fit predicts for 1 to 8 modules: the factor by which it is off at most",
            "5 modules at 500,000 packets a second",
            format!("{off:.2}"),
            off < 1.5,
        ),
    ])
}
