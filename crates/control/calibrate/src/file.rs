//! Calibrations as files. The contents of a file are not trusted.

use crate::{CalibrateError, Calibration, Chain, MAX_PS, machine};
use flame_bounds::Class;
use flame_files::Staged;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use wasmtime::Engine;

/// Limits far above the size of any calibration.
const MAX_BYTES: u64 = 64 << 10;
const MAX_POINTS: usize = 64;
/// The largest working set in bytes: more than a module may own, and small enough that logarithms of
/// different sizes differ.
const MAX_BYTES_OF_SET: u64 = 1 << 40;

/// Returns the file name in the cache folder for a model of processor.
pub fn file_name(cpu: &str) -> String {
    let mut slug = String::new();
    for c in cpu.chars().take(64) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => slug.push(c),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    format!("calibration-{}.json", slug.trim_end_matches('-'))
}

/// Returns the calibration of this machine and engine in `folder`, and true. If it is missing, or with
/// `again`, measures and stores one, and returns it and false.
///
/// # Errors
///
/// Returns an error if `folder` cannot be created, or if the calibration cannot be measured or stored.
pub fn load_or_measure(
    engine: &Engine,
    folder: &Path,
    again: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<(Calibration, bool), CalibrateError> {
    // A file that is damaged or from another engine is treated as missing.
    if let Some(found) = load_calibration(engine, folder).filter(|_| !again) {
        return Ok((found, true));
    }
    let path = folder.join(file_name(&machine::cpu()));
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| CalibrateError::File { path: folder.display().to_string(), error })?;
    let measured = Calibration::measure(engine, progress)?;
    measured.store(&path)?;
    Ok((measured, false))
}

/// Returns the calibration of this machine and engine in `folder`, if there is one.
pub fn load_calibration(engine: &Engine, folder: &Path) -> Option<Calibration> {
    let cpu = machine::cpu();
    let found = Calibration::load(&folder.join(file_name(&cpu))).ok()?;
    (found.cpu == cpu && found.engine == machine::engine(engine)).then_some(found)
}

impl Calibration {
    /// Reads a file, whose content is not trusted.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if it holds no calibration that satisfies the
    /// descriptions of its fields.
    pub fn load(path: &Path) -> Result<Self, CalibrateError> {
        let mut bytes = Vec::new();
        let read = fs::File::open(path).and_then(|f| f.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| CalibrateError::File { path: path.display().to_string(), error })?;
        Self::parse(&bytes)
            .map_err(|reason| CalibrateError::Content { path: path.display().to_string(), reason })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("more than {MAX_BYTES} bytes"));
        }
        let read: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), String> {
        for (field, name) in [("cpu", &self.cpu), ("engine", &self.engine)] {
            // The name is shown to people.
            if name.chars().count() > machine::MAX_NAME || name.chars().any(char::is_control) {
                return Err(format!("{field}: expected a line of {} characters at most", machine::MAX_NAME));
            }
        }
        if let Some(class) = Class::ALL.iter().find(|c| !self.classes.contains_key(c.name())) {
            return Err(format!("classes: {} is missing", class.name()));
        }
        if self.classes.len() != Class::ALL.len() {
            return Err(format!("classes: {} of them, expected {}", self.classes.len(), Class::ALL.len()));
        }
        if self.classes.values().any(|c| c.dependent_ps < c.independent_ps) {
            return Err("classes: a dependent chain is faster than independent ones".to_owned());
        }
        if self.class(Class::Free) != Chain::default() {
            return Err("classes: free is not 0".to_owned());
        }
        let sizes: Vec<_> = self.latency.iter().map(|l| l.bytes).collect();
        if sizes.is_empty() || sizes.len() > MAX_POINTS || sizes[0] == 0 {
            return Err(format!("latency: expected 1 to {MAX_POINTS} working sets larger than 0"));
        }
        if sizes.iter().any(|bytes| *bytes > MAX_BYTES_OF_SET) {
            return Err(format!("latency: a working set of more than {MAX_BYTES_OF_SET} bytes"));
        }
        if !sizes.is_sorted_by(|a, b| a < b) {
            return Err("latency: working sets are not in ascending order".to_owned());
        }
        let classes = self.classes.values().flat_map(|c| [c.dependent_ps, c.independent_ps]);
        let all = classes.chain(self.latency.iter().map(|l| l.picoseconds));
        match all.chain([self.host_call_ps, self.dispatch_ps]).find(|ps| *ps > MAX_PS) {
            Some(ps) => Err(format!("{ps} picoseconds, expected {MAX_PS} at most")),
            None => Ok(()),
        }
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn store(&self, path: &Path) -> Result<(), CalibrateError> {
        let fail = |error| CalibrateError::File { path: path.display().to_string(), error };
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| fail(io::Error::other(e)))?;
        text.push(b'\n');
        let mut file = Staged::new(path).map_err(fail)?;
        file.write_all(&text).and_then(|()| file.finish()).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_harmless_characters() {
        for (cpu, name) in [
            ("AMD EPYC 9454 48-Core Processor", "calibration-amd-epyc-9454-48-core-processor.json"),
            ("Intel(R) Xeon(R) @ 2.60GHz", "calibration-intel-r-xeon-r-2-60ghz.json"),
            ("../../é", "calibration-.json"),
            ("", "calibration-.json"),
        ] {
            assert_eq!(file_name(cpu), name);
        }
    }
}
