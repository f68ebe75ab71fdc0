//! What was meant by a command or a name that does not exist.

use crate::paths;
use clap::error::ErrorKind;
use std::path::Path;

/// The most letters that are wrong, missing, too many or swapped in a name that is recognised.
const SLIPS: usize = 2;

/// Returns the command that was probably meant by arguments that were refused.
pub fn of(error: &clap::Error, given: &[String]) -> Option<String> {
    let is_module = |name: &String| paths::installed().contains(name);
    let words = |words: &[&[String]]| {
        let words: Vec<_> = words.concat().iter().map(|word| quoted(word)).collect();
        format!("flame {}", words.join(" "))
    };
    match error.kind() {
        // `flame count -r FILE`
        ErrorKind::InvalidSubcommand => {
            let at = given.iter().position(|word| !word.starts_with('-'))?;
            let modules = given[at].split(',').map(str::to_owned).collect::<Vec<_>>();
            let run = || words(&[&given[..at], &["run".to_owned()], &given[at..]]);
            modules.iter().all(is_module).then(run)
        }
        // `flame run count FILE`
        ErrorKind::MissingRequiredArgument if given.first().is_some_and(|word| word == "run") => {
            let at = given.iter().rposition(|word| Path::new(word).is_file() && !is_module(word))?;
            let before = at.checked_sub(1).map(|before| given[before].as_str()).unwrap_or_default();
            let read = || words(&[&given[..at], &["-r".to_owned()], &given[at..]]);
            (!before.starts_with('-')).then(read)
        }
        _ => None,
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-._/:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns the name among `known` that differs least from `given`, if that is by at most two slips and by
/// fewer than half of its letters.
pub fn similar<'a>(given: &str, known: &'a [String]) -> Option<&'a String> {
    let most = SLIPS.min(given.chars().count().saturating_sub(1) / 2);
    let near = known.iter().map(|name| (slips(given, name), name)).filter(|(n, _)| *n <= most);
    near.min().map(|(_, name)| name)
}

/// Returns the number of slips between two names: the optimal string alignment distance.
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_names_are_not() {
        let known = ["flow", "count", "dns", "tls", "talkers"].map(str::to_owned);
        let of = |given| similar(given, &known).map(String::as_str);
        for (given, meant) in [("flwo", "flow"), ("flows", "flow"), ("conut", "count"), ("talker", "talkers")]
        {
            assert_eq!(of(given), Some(meant), "{given}");
        }
        for given in ["", "x", "ds", "rtt", "scan", "flame"] {
            assert_eq!(of(given), None, "{given}");
        }
    }
}
