//! All modules in processes of their own, compared to all of them in the command's own process.

use crate::commands::time_on;
use crate::fixture::Error;
use crate::net::children_seconds;
use crate::row::{Row, Target, median, paired};
use crate::sharing::all_modules;
use std::path::Path;

const GROUP: &str = "processes: nine modules apart / in the command's own process, two cores";

pub fn rows(flame: &Path, trace: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let inline = all_modules(flame, trace);
    let apart = [&inline[..], &["--isolate".to_owned()]].concat();
    // Elapsed and processor time of each.
    let mut measured: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..=rounds {
        for (words, [elapsed, used]) in [&inline, &apart].into_iter().zip(&mut measured) {
            let before = children_seconds()?;
            let took = time_on("0,1", words)?;
            // The first round compiles the modules, and does not count.
            if round > 0 {
                elapsed.push(took);
                used.push(children_seconds()? - before);
            }
        }
    }
    let [inline, apart] = measured;
    let row = |name: &str, at: usize| {
        let detail = format!("{:.3} / {:.3} s", median(apart[at].clone()), median(inline[at].clone()));
        Row::ratio(GROUP, name, paired(&apart[at], &inline[at]), detail).target(Target::AtMost(1.15))
    };
    Ok(vec![row("elapsed time", 0), row("processor time", 1)])
}
