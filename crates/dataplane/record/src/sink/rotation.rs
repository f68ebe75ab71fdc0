//! The conditions under which files are completed, and their names.

use super::SinkError;
use super::out::packed;
use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Utc};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The rule by which files are completed and the next ones begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The time after which files are completed.
    pub every: Option<Duration>,
    pub clock: Clock,
    /// The size in bytes from which on a file is completed. It is exceeded by at most one batch of records or
    /// one packet.
    pub bytes: Option<u64>,
    /// The number of complete files of this output that are kept. Older ones are removed.
    pub keep: Option<usize>,
    /// The number of files after which the output is closed ([`super::Sink::closed`]).
    pub files: Option<u64>,
    pub names: Names,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { every: None, clock: Clock::Machine, bytes: None, keep: None, files: None, names: Names::Plain }
    }
}

/// The clock that [`Rotation::every`] follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Machine,
    /// The times of packets, as far as the output has packets: each file has the packets of its time, however
    /// fast they are read. A time without packets has no file.
    Packets,
    /// The packet time that [`super::Sink::passed`] states, from this time of the first packet on: each file
    /// has the records of a multiple of the time, up to its end.
    Ticks(u64),
}

/// The names of successive files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// The given name, and with the time while a file of that name is there.
    Plain,
    /// The time at which a file begins, in UTC: by the directives of strftime in the given name, or as
    /// `-20260131T235959Z` before its extension. No existing file is replaced.
    Time,
    /// `NAME`, `NAME1`, `NAME2` and so on, as tcpdump does for `-C`. Existing files are replaced.
    Numbered,
    /// A number of names that are used in turn, as tcpdump does for `-C` with `-W`.
    Ring(usize),
}

/// The name of one of several successive files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub path: PathBuf,
    /// The text that distinguishes the file from the others, if the path does not.
    pub text: String,
}

impl Part {
    /// Returns the path with the text before its extension.
    pub fn before_extension(&self) -> PathBuf {
        with_part(&self.path, &self.text)
    }

    /// Returns the path with a number at its end, as in tcpdump, or with another text before its extension.
    pub fn at_end(&self) -> PathBuf {
        if self.text.starts_with(|c: char| c.is_ascii_digit()) {
            let mut path = OsString::from(&self.path);
            path.push(&self.text);
            return path.into();
        }
        self.before_extension()
    }
}

/// Returns `path` with `part` before its extension.
pub(super) fn with_part(path: &Path, part: &str) -> PathBuf {
    if let Some((plain, _)) = packed(path) {
        let mut name = with_part(&plain, part).into_os_string();
        name.push(".");
        name.push(path.extension().unwrap_or_default());
        return name.into();
    }
    let Some(stem) = path.file_stem().filter(|_| !part.is_empty()) else { return path.to_owned() };
    let mut name = stem.to_owned();
    name.push(part);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// The names of the files of one output.
pub(super) struct Namer {
    path: PathBuf,
    names: Names,
}

impl Namer {
    /// Creates the names for `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if the path has directives that strftime does not know.
    pub(super) fn new(path: &Path, names: Names) -> Result<Self, SinkError> {
        let pattern = path.to_string_lossy().into_owned();
        let is_wrong = names == Names::Time
            && pattern.contains('%')
            && (path.to_str().is_none() || StrftimeItems::new(&pattern).any(|i| matches!(i, Item::Error)));
        if is_wrong {
            return Err(SinkError::Pattern { path: path.to_owned(), pattern });
        }
        Ok(Self { path: path.to_owned(), names })
    }

    /// Returns whether the given path has directives of strftime.
    pub(super) fn is_pattern(&self) -> bool {
        self.names == Names::Time && self.path.to_string_lossy().contains('%')
    }

    /// Returns the name for file `number`, from 0, that begins at `now`; for `attempt` above 0, the names
    /// before were taken.
    pub(super) fn name(&self, number: u64, attempt: u32, now: DateTime<Utc>) -> Part {
        let path = self.path.clone();
        let stamp = || now.format("-%Y%m%dT%H%M%SZ").to_string();
        // An underscore sorts after the dot of the extension, so that names sort by time.
        let again = |attempt: u32| if attempt == 0 { String::new() } else { format!("_{:03}", attempt + 1) };
        let (path, text) = match (self.names, self.path.to_str()) {
            (Names::Plain, _) if attempt == 0 => (path, String::new()),
            (Names::Plain, _) => (path, stamp() + &again(attempt - 1)),
            (Names::Time, Some(pattern)) if pattern.contains('%') => {
                (now.format(pattern).to_string().into(), again(attempt))
            }
            (Names::Time, _) => (path, stamp() + &again(attempt)),
            (Names::Numbered, _) if number == 0 => (path, String::new()),
            (Names::Numbered, _) => (path, number.to_string()),
            (Names::Ring(files), _) => {
                let files = files.max(1) as u64;
                let digits = files.saturating_sub(1).checked_ilog10().map_or(0, |n| n as usize + 1);
                (path, format!("{:0digits$}", number % files))
            }
        };
        Part { path, text }
    }

    /// Returns whether a name that is taken must not be used again.
    pub(super) fn spares_existing(&self, number: u64) -> bool {
        match self.names {
            Names::Plain => number > 0,
            Names::Time => true,
            Names::Numbered | Names::Ring(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, names: Names, number: u64, attempt: u32) -> Part {
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        Namer::new(Path::new(path), names).unwrap().name(number, attempt, now)
    }

    #[test]
    fn names_state_time_or_number() {
        let cases = [
            ("a/f.json", Names::Plain, 0, 0, "a/f.json", "a/f.json"),
            ("a/f.json", Names::Plain, 1, 1, "a/f-20231114T221320Z.json", "a/f-20231114T221320Z.json"),
            ("a/f.json", Names::Time, 0, 0, "a/f-20231114T221320Z.json", "a/f-20231114T221320Z.json"),
            ("f.json", Names::Time, 0, 2, "f-20231114T221320Z_003.json", "f-20231114T221320Z_003.json"),
            ("%Y/f%H.json", Names::Time, 5, 0, "2023/f22.json", "2023/f22.json"),
            ("%Y/f%H.json", Names::Time, 5, 1, "2023/f22_002.json", "2023/f22_002.json"),
            ("f.pcap", Names::Numbered, 0, 0, "f.pcap", "f.pcap"),
            ("f.pcap", Names::Numbered, 12, 0, "f12.pcap", "f.pcap12"),
            ("f.pcap", Names::Ring(11), 12, 0, "f01.pcap", "f.pcap01"),
            ("f.pcap", Names::Ring(10), 12, 0, "f2.pcap", "f.pcap2"),
            ("f", Names::Ring(1), 7, 0, "f0", "f0"),
        ];
        for (path, names, number, attempt, before, at_end) in cases {
            let part = named(path, names, number, attempt);
            assert_eq!(part.before_extension(), Path::new(before), "{path} {names:?}");
            assert_eq!(part.at_end(), Path::new(at_end), "{path} {names:?}");
        }
    }

    #[test]
    fn a_directive_that_is_none_is_refused() {
        for pattern in ["f%Q.json", "f%"] {
            let error = Namer::new(Path::new(pattern), Names::Time).map(drop).unwrap_err().to_string();
            assert!(error.contains("strftime"), "{error}");
            assert!(Namer::new(Path::new(pattern), Names::Plain).is_ok(), "no time is in the name");
        }
    }
}
