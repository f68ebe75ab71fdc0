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
        let (mut one, mut two, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=rounds {
            let of_one = time_on("0,1", &command(module, "1"))?;
            let of_two = time_on("0,1", &command(module, "2"))?;
            let of_both = side_by_side(&command(module, "1"))?;
            // The first round compiles the module, and does not count.
            if round > 0 {
                one.push(of_one);
                two.push(of_two);
                // Twice the work.
                apart.push(of_both / 2.0);
            }
        }
        let ratio = paired(&one, &two);
        let most = paired(&one, &apart);
        let detail = format!("{:.3} / {:.3} s", median(one.clone()), median(two));
        rows.push(
            Row::ratio(GROUP, format!("{module}: 2 workers"), ratio, detail).target(Target::AtLeast(least)),
        );
        let detail = format!("{:.3} / {:.3} s, of two runs for one", median(one), median(apart));
        rows.push(Row::ratio(GROUP, format!("{module}: 2 runs that share nothing"), most, detail));
    }
    Ok(rows)
}

/// Returns the seconds until two runs of a command have ended, each on a core of its own. They share nothing
/// but the machine, so no division of one run between two workers takes less than half of that.
fn side_by_side(words: &[String]) -> Result<f64, String> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| time_on("1", words));
        let this = time_on("0", words)?;
        other.join().map_err(|_| "a run panicked".to_owned())?.map(|other| this.max(other))
    })
}
