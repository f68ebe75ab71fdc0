//! Two workers on a capture, compared to one.

use crate::commands::time_on;
use crate::row::{Row, Target, median, paired};
use std::path::Path;

const GROUP: &str = "workers: the time of one worker / that of two, on a capture and two cores";
/// Each module with the least ratio.
const MODULES: [(&str, f64); 3] = [("count", 1.0), ("flow", 1.5), ("ids", 1.8)];

pub fn rows(flame: &Path, trace: &Path, rounds: usize) -> Result<Vec<Row>, String> {
    let (flame, trace) = (flame.to_string_lossy(), trace.to_string_lossy());
    // Once: packets of files that overlap in time would be merged, which is no work of workers.
    let files = ["-r", &*trace];
    let command = |module: &str, workers: &str| -> Vec<String> {
        let words = [&[&*flame, "run", module][..], &files, &["-q", "--format", "json", "-o", "/dev/null"]];
        let words = [&words.concat()[..], &["--workers", workers]].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let mut rows = Vec::new();
    for (module, least) in MODULES {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let of_one = time_on("0,1", &command(module, "1"))?;
            let of_two = time_on("0,1", &command(module, "2"))?;
            // The first round compiles the module, and does not count.
            if round > 0 {
                one.push(of_one);
                two.push(of_two);
            }
        }
        let ratio = paired(&one, &two);
        let detail = format!("{:.3} / {:.3} s", median(one), median(two));
        rows.push(
            Row::ratio(GROUP, format!("{module}: 2 workers"), ratio, detail).target(Target::AtLeast(least)),
        );
    }
    Ok(rows)
}
