//! The file of `flame run --state`: the state with which modules begin, and which they have at the end.
//!
//! ```text
//! flame states 1 SHA-256 of all that follows
//! entries in JSON, in one line
//! the states, one after the other
//! ```
//!
//! The file is replaced as a whole once the run has ended, with the permissions that it had. What is damaged
//! in it is not given to any module.

use crate::console::complain;
use crate::error::Error;
use flame_plan::{ModuleId, ModulePlan};
use flame_record::escape;
use flame_worker::{Begun, Keep, News, OnNews, Place, State};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"flame states 1 ";
/// Maximum length of the file in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The states of a run, and the file that has them.
pub struct StateFile {
    /// The file itself, where the requested path is a symbolic link.
    path: PathBuf,
    /// The digest of the file as it was read.
    found: String,
    workers: usize,
    /// The modules that keep a state: name in the run, name in the manifest, version.
    modules: Vec<(String, String, u32, Keep)>,
    keeps: BTreeMap<ModuleId, Keep>,
}

/// The state of one instance in the file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The name of the module in the run.
    name: String,
    /// Its name in the manifest.
    module: String,
    version: u32,
    workers: usize,
    /// The worker of a fast instance, or nothing for the slow one.
    worker: Option<usize>,
    bytes: usize,
}

impl StateFile {
    /// Reads the states of `modules` on `workers` workers. A file that is not there is begun.
    ///
    /// # Errors
    ///
    /// Returns an error if there is another file at `path`, if its folder cannot be written, or if no module
    /// keeps a state.
    pub fn open(path: &Path, modules: &[ModulePlan], workers: usize, quiet: bool) -> Result<Self, Error> {
        let shown = path.display();
        let failed = |e: std::io::Error| format!("--state {shown}: {e}");
        let other = || {
            format!(
                "--state {shown}: this is no file of states, and it would be replaced: choose another name"
            )
        };
        let found = match std::fs::metadata(path) {
            Ok(file) if !file.is_file() => return Err(other().into()),
            Ok(_) => Some(read(path).map_err(failed)?),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e).into()),
        };
        let place = if found.is_some() { path.canonicalize().map_err(failed)? } else { path.to_owned() };
        // Otherwise the state of the whole run would be lost at its end.
        partial(&place).map_err(failed)?;
        let is_empty_file = found.as_ref().is_some_and(Vec::is_empty);
        let found = found.unwrap_or_default();
        if !found.is_empty() && !found.starts_with(MAGIC) {
            return Err(other().into());
        }
        let note = |text: String| {
            if !quiet {
                complain!("flame: note: {text}");
            }
        };
        if is_empty_file {
            note(format!("--state {shown}: the file is empty: all modules begin empty"));
        }
        let mut entries = match parse(&found) {
            Ok(entries) => entries,
            Err(reason) => {
                note(format!("--state {shown}: {reason}: all modules begin empty"));
                Vec::new()
            }
        };
        let (mut kept, mut keeps) = (Vec::new(), BTreeMap::new());
        for plan in modules {
            let Some(state) = plan.manifest.state else { continue };
            let (name, module) = (plan.name.clone(), plan.manifest.name.clone());
            let mut mine: Vec<_> = entries.extract_if(.., |(entry, _)| entry.name == name).collect();
            let why = mine.iter().find_map(|(Entry { module: of, version, workers: on, .. }, _)| match () {
                () if *of != module => Some(format!("the state is of module {of:?}")),
                () if *version != state.version => {
                    Some(format!("the state has version {version}, this module has {}", state.version))
                }
                () if *on != workers => Some(format!("the state is of {on} workers, this run has {workers}")),
                () => None,
            });
            if let Some(why) = why {
                note(format!("{name} begins empty: {why}"));
                mine.clear();
            }
            mine.retain(|(entry, bytes)| {
                let place = Place::of(entry.worker);
                let fits = Keep::fits(state.max, workers, place, bytes);
                if !fits {
                    let (bytes, max) = (bytes.len(), state.max);
                    note(format!(
                        "{name} ({place}) begins empty: the state has {bytes} bytes, 1 to {max} fit"
                    ));
                }
                fits
            });
            let states = mine.into_iter().map(|(entry, state)| (Place::of(entry.worker), state));
            let keep = Keep::new((state.max, 0), workers, states, on_news(name.clone(), quiet));
            keeps.insert(plan.id, keep.clone());
            kept.push((name, module, state.version, keep));
        }
        if kept.is_empty() {
            return Err("--state: none of these modules keeps a state ([state] in module.toml)".into());
        }
        for (entry, _) in entries {
            note(format!(
                "--state {shown}: the state of {} is left out at the end: it does not run",
                escape::line(&entry.name)
            ));
        }
        Ok(Self { path: place, found: digest(&found), workers, modules: kept, keeps })
    }

    /// Returns the states for the run, by the numbers of the modules.
    pub fn keeps(&self) -> BTreeMap<ModuleId, Keep> {
        self.keeps.clone()
    }

    /// Replaces the file by the states that the modules have now.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written, or if another run has replaced it since it was read. It then
    /// is as before; in the second case, the error names the file that has the states of this run.
    pub fn write(&self) -> Result<(), Error> {
        let (mut entries, mut bytes) = (Vec::new(), Vec::new());
        for (name, module, version, keep) in &self.modules {
            for (place, state) in keep.states().1 {
                let (name, module, worker) = (name.clone(), module.clone(), place.worker());
                let (version, workers) = (*version, self.workers);
                entries.push(Entry { name, module, version, workers, worker, bytes: state.len() });
                bytes.extend_from_slice(&state);
            }
        }
        let new = encode(&entries, &bytes)?;
        let failed = |e: std::io::Error| format!("--state {}: {e}", self.path.display());
        let mut file = partial(&self.path).map_err(failed)?;
        file.write_all(&new).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        let now = match read(&self.path) {
            Ok(now) => now,
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(failed(e).into()),
        };
        if digest(&now) != self.found {
            let (_, kept) = file.keep().map_err(|e| failed(e.error))?;
            let (path, kept) = (self.path.display(), kept.display());
            return Err(format!(
                "--state {path}: another run has replaced it meanwhile; the states of this run are in {kept}"
            )
            .into());
        }
        if let Ok(before) = std::fs::metadata(&self.path) {
            file.as_file().set_permissions(before.permissions()).map_err(failed)?;
        }
        file.persist(&self.path).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    flame_files::read_at_most(std::fs::File::open(path)?, MAX_BYTES)
}

/// Creates the file that is to replace `path`.
fn partial(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new().suffix(".partial").tempfile_in(folder)
}

/// Prints what becomes of the state of a module.
fn on_news(name: String, quiet: bool) -> OnNews {
    Box::new(move |place, news| match news {
        News::Begun(Begun::Refused) if !quiet => {
            complain!("flame: note: {name} ({place}): the module refused its state, and begins empty");
        }
        News::Dropped => {
            complain!("flame: warning: {name} ({place}): its state is dropped with the instance");
        }
        News::CutOff => {
            complain!(
                "flame: warning: {name} ({place}): its last calls were cut off, and the state before them stays"
            );
        }
        News::Begun(_) | News::Stored(_) => {}
    })
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns the file of these entries, whose states are `bytes`.
fn encode(entries: &[Entry], bytes: &[u8]) -> serde_json::Result<Vec<u8>> {
    let body = [serde_json::to_string(entries)?.as_bytes(), b"\n", bytes].concat();
    Ok([MAGIC, digest(&body).as_bytes(), b"\n", &body].concat())
}

/// Returns the entries of a file with their states.
fn parse(file: &[u8]) -> Result<Vec<(Entry, State)>, &'static str> {
    const DAMAGED: &str = "the file is damaged";
    let Some(rest) = file.strip_prefix(MAGIC) else { return Ok(Vec::new()) };
    let line = |bytes: &[u8]| bytes.iter().position(|b| *b == b'\n').ok_or(DAMAGED);
    let (hash, body) = rest.split_at(line(rest)?);
    let body = &body[1..];
    if digest(body).as_bytes() != hash {
        return Err(DAMAGED);
    }
    let (entries, states) = body.split_at(line(body)?);
    let mut states = &states[1..];
    let entries: Vec<Entry> = serde_json::from_slice(entries).map_err(|_| DAMAGED)?;
    let mut places = BTreeSet::new();
    let each = entries.into_iter().map(|entry| {
        let (state, rest) = states.split_at_checked(entry.bytes).ok_or(DAMAGED)?;
        states = rest;
        let is_first = places.insert((entry.name.clone(), entry.worker));
        is_first.then_some((entry, state.into())).ok_or(DAMAGED)
    });
    let all = each.collect::<Result<_, _>>()?;
    if states.is_empty() { Ok(all) } else { Err(DAMAGED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let place = (any::<u32>(), any::<usize>(), any::<Option<usize>>());
        (".*", ".*", place, 0..40_usize).prop_map(|(name, module, (version, workers, worker), bytes)| Entry {
            name,
            module,
            version,
            workers,
            worker,
            bytes,
        })
    }

    proptest! {
        /// A file is read as it was written. Other lengths, and bytes that are no list of entries, are
        /// refused, although the digest fits.
        #[test]
        fn a_file_is_read_as_it_was_written(
            entries in proptest::collection::vec(entry(), 0..6),
            noise in proptest::collection::vec(any::<u8>(), 0..40),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<u8> = (0..entries.iter().map(|entry| entry.bytes).sum()).map(|n| n as u8).collect();
            let places: BTreeSet<_> = entries.iter().map(|entry| (&entry.name, entry.worker)).collect();
            let whole = encode(&entries, &bytes).unwrap();
            match parse(&whole) {
                Ok(found) => {
                    let states: Vec<u8> = found.iter().flat_map(|(_, state)| state.to_vec()).collect();
                    prop_assert_eq!(states, bytes.clone());
                    prop_assert_eq!(found.into_iter().map(|(entry, _)| entry).collect::<Vec<_>>(), entries);
                }
                Err(_) => prop_assert!(places.len() < entries.len()),
            }
            let body = &whole[MAGIC.len() + 65..];
            let seal = |body: &[u8]| [MAGIC, digest(body).as_bytes(), b"\n", body].concat();
            for body in [&body[..cut.index(body.len())], &[body, &[7]].concat(), &noise] {
                prop_assert!(parse(&seal(body)).is_err(), "{:?}", body);
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let body =
            b"[{\"name\":\"m\",\"module\":\"m\",\"version\":1,\"workers\":1,\"worker\":0,\"bytes\":3}]\nabc";
        let file = |body: &[u8]| [MAGIC, digest(body).as_bytes(), b"\n", body].concat();
        let whole = file(body);
        let found = parse(&whole).unwrap();
        assert_eq!((found.len(), &*found[0].1), (1, &b"abc"[..]));
        for end in MAGIC.len()..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end}");
            let mut changed = whole.clone();
            changed[end] ^= 1;
            assert!(parse(&changed).is_err(), "{end}");
        }
        // A digest that fits makes nothing valid that is not.
        for body in [&body[..body.len() - 1], b"[]", b"x\n", b"[{}]\n", b""] {
            assert!(parse(&file(body)).is_err(), "{body:?}");
        }
        let entry = std::str::from_utf8(&body[1..body.len() - 5]).unwrap();
        for body in [format!("[{entry}]\nabcd"), format!("[{entry},{entry}]\nabcabc")] {
            assert!(parse(&file(body.as_bytes())).is_err(), "{body}");
        }
        let most = "[{\"name\":\"m\",\"module\":\"m\",\"version\":1,\"workers\":1,\"worker\":0,\"bytes\":18446744073709551615}]\n";
        assert!(parse(&file(most.as_bytes())).is_err());
    }
}
