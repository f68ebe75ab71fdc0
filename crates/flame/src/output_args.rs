//! Options for the files that a run writes: when they are completed, how they are called, the form of times.

use crate::error::Error;
use clap::{Args, ValueEnum, builder::PossibleValue};
use flame_abi::manifest::duration_ns;
use flame_plan::Catalog;
use flame_record::{Clock, Format, Names, Options, Rotation, Sink, SinkError, TimeFormat};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Default)]
pub struct OutputArgs {
    /// Complete the files of -o and -w after this time or size, and begin the next ones: 10m, 1h, 100MB,
    /// 1GiB, or both as 1h,1GB. A file gets its final name when complete. Directives of strftime in the name
    /// stand for the time at which a file begins, in UTC: flows-%Y%m%d-%H%M%S.parquet; without any,
    /// -20260131T235959Z is put before the extension. SIGHUP and SIGUSR1 complete the files at once
    #[arg(long, value_name = "TIME|SIZE", value_delimiter = ',', value_parser = Limit::parse,
          conflicts_with_all = ["seconds", "megabytes"])]
    rotate: Vec<Limit>,

    /// Keep this many complete files of this run, and remove older ones
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// Complete a file after this time, like --rotate with a time, as in tcpdump. With -r FILE it is the time
    /// of packets, not of this machine
    #[arg(short = 'G', value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// Complete a file after this many millions of bytes, as in tcpdump: the next one is NAME1, then NAME2
    #[arg(short = 'C', value_name = "MEGABYTES", value_parser = clap::value_parser!(u32).range(1..))]
    megabytes: Option<u32>,

    /// End the run after this many files with -G; reuse the first name after this many with -C alone
    #[arg(short = 'W', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    files: Option<u32>,

    /// Stop after this time, by the clock of this machine: 10s, 1h
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,

    /// Form of times in json, csv and parquet
    #[arg(long, value_name = "FORM")]
    time: Option<TimeArg>,
}

/// One limit of `--rotate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Time(Duration),
    Bytes(u64),
}

impl Limit {
    fn parse(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 9] = [
            ("kB", 1_000),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("TB", 1_000_000_000_000),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
        ];
        let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let Some((number, unit)) = unit else {
            return time(text).map(Self::Time).map_err(|_| {
                format!("{text:?}: expected a time such as 10s, 5m or 1h, or a size such as 100MB or 1GiB")
            });
        };
        let bytes = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0);
        bytes
            .map(Self::Bytes)
            .ok_or_else(|| format!("{text:?}: expected a whole number above 0 before the unit"))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match duration_ns(text)? {
        ns if ns > 0 => Ok(Duration::from_nanos(ns as u64)),
        _ => Err(format!("{text:?}: must be longer than 0")),
    }
}

/// A value of `--time`.
#[derive(Clone, Copy)]
struct TimeArg(TimeFormat);

impl ValueEnum for TimeArg {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(TimeFormat::Ns), Self(TimeFormat::Rfc3339), Self(TimeFormat::Unix)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.about()))
    }
}

impl OutputArgs {
    /// Returns the form of times that was asked for.
    pub fn time(&self) -> Option<TimeFormat> {
        self.time.map(|time| time.0)
    }

    fn rotates(&self) -> bool {
        !self.rotate.is_empty() || self.seconds.is_some() || self.megabytes.is_some()
    }

    fn rotation(&self) -> Rotation {
        let mut rotation = Rotation { keep: self.keep.map(|n| n as usize), ..Rotation::default() };
        for limit in &self.rotate {
            rotation.names = Names::Time;
            match limit {
                Limit::Time(time) => rotation.every = Some(*time),
                Limit::Bytes(bytes) => rotation.bytes = Some(*bytes),
            }
        }
        rotation.bytes = rotation.bytes.or(self.megabytes.map(|n| u64::from(n) * 1_000_000));
        if let Some(seconds) = self.seconds {
            rotation.every = Some(Duration::from_secs(seconds.into()));
            rotation.files = self.files.map(u64::from);
            rotation.names = Names::Time;
        } else if self.megabytes.is_some() {
            rotation.names = self.files.map_or(Names::Numbered, |files| Names::Ring(files as usize));
        }
        rotation
    }

    /// Opens the output of records. `captures` are the files from which packets are read: times of packets
    /// complete files of the output then.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be opened.
    pub fn records(
        &self,
        format: Format,
        output: Option<&Path>,
        (catalog, options): (&Catalog, &Options),
        captures: &[PathBuf],
    ) -> Result<Box<dyn Sink>, SinkError> {
        let Some(path) = output.filter(|path| is_file(path)) else {
            return flame_record::open(format, output, catalog, options);
        };
        let (catalog, options) = (catalog.clone(), options.clone());
        let mut rotation = self.rotation();
        if let Some(first_ns) = rotation.every.and_then(|_| flame_source::first_time(captures)) {
            rotation.clock = Clock::Ticks(first_ns);
        }
        flame_record::rotating(path, rotation, move |part| {
            let options = Options { part: part.text.clone(), ..options.clone() };
            flame_record::open(format, Some(&part.path), &catalog, &options)
        })
    }

    /// Opens an output of packets at `path`, each file of which is opened by `open`. `clock` completes files
    /// after a time.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be opened.
    pub fn packets(
        &self,
        path: &Path,
        clock: Clock,
        mut open: impl FnMut(&Path) -> Result<Box<dyn Sink>, SinkError> + Send + 'static,
    ) -> Result<Box<dyn Sink>, SinkError> {
        if !is_file(path) {
            return open(path);
        }
        let rotation = Rotation { clock, ..self.rotation() };
        flame_record::rotating(path, rotation, move |part| open(&part.at_end()))
    }

    /// Checks the options together.
    ///
    /// # Errors
    ///
    /// Returns an error for options that do not fit together, or need a file and have none.
    pub fn check(&self, outputs: [Option<&Path>; 2]) -> Result<(), Error> {
        if self.files.is_some() && self.seconds.is_none() && self.megabytes.is_none() {
            return Err("-W COUNT counts the files of -G SECONDS or -C MEGABYTES: add one of them".into());
        }
        let times = self.rotate.iter().filter(|limit| matches!(limit, Limit::Time(_))).count();
        let sizes = self.rotate.len() - times;
        if times > 1 || sizes > 1 {
            return Err("--rotate takes one time and one size: --rotate 1h,1GB".into());
        }
        if self.rotates() && !outputs.into_iter().flatten().any(is_file) {
            return Err("--rotate, -G and -C complete files: add -o FILE, or -w FILE for packets".into());
        }
        Ok(())
    }

    /// Sets `stop` after the time of `--duration`, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be started for it.
    pub fn stop_in_time(&self, stop: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let Some(duration) = self.duration else { return Ok(()) };
        let wait = move || {
            std::thread::sleep(duration);
            stop();
        };
        std::thread::Builder::new().name("duration".to_owned()).spawn(wait).map(drop)
    }
}

/// Returns whether an output is a file or folder, which can be completed and followed by another.
fn is_file(path: &Path) -> bool {
    path.as_os_str() != "-" && std::fs::metadata(path).map_or(true, |m| m.is_file() || m.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_times_and_sizes() {
        assert_eq!(Limit::parse("10m"), Ok(Limit::Time(Duration::from_secs(600))));
        assert_eq!(Limit::parse("100MB"), Ok(Limit::Bytes(100_000_000)));
        assert_eq!(Limit::parse("1GiB"), Ok(Limit::Bytes(1 << 30)));
        for wrong in ["", "0s", "10", "0MB", "-1MB", "1.5GB", "MB", "99999999999TB"] {
            assert!(Limit::parse(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }

    #[test]
    fn the_options_of_tcpdump_are_rotations() {
        let of =
            |seconds, megabytes, files| OutputArgs { seconds, megabytes, files, ..OutputArgs::default() };
        let both = of(Some(60), Some(5), Some(3)).rotation();
        assert_eq!((both.every, both.bytes), (Some(Duration::from_secs(60)), Some(5_000_000)));
        assert_eq!((both.files, both.names), (Some(3), Names::Time));
        assert_eq!(of(None, Some(1), None).rotation().names, Names::Numbered);
        assert_eq!(of(None, Some(1), Some(4)).rotation().names, Names::Ring(4));
        let file = Some(Path::new("f"));
        assert!(of(None, None, Some(1)).check([file, None]).unwrap_err().to_string().contains("add one"));
        let on_stdout = of(Some(1), None, None).check([Some(Path::new("-")), None]).unwrap_err();
        assert!(on_stdout.to_string().contains("add -o FILE"), "{on_stdout}");
    }
}
