//! Modules of a fleet: installed in waves, removed, listed and revoked.

use super::{Install, labels, warn};
use crate::folder::{MAX_MODULE, MAX_TEXT, Place};
use crate::follow::is_target;
use crate::state::{State, Wish};
use crate::{Error, node, now, service};
use flame_fleet_protocol::enrolment::Standing;
use flame_fleet_protocol::rollout::{Outcome, Plan, Progress, Rollout};
use flame_fleet_protocol::signed::hex;
use flame_fleet_protocol::{Action, Condition, Key};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between two looks at the state.
const WATCH: Duration = Duration::from_millis(100);

impl Install {
    pub(super) fn run(self, is_new: bool) -> Result<(), Error> {
        let place = Place::open(&self.folder.path)?;
        let file = if is_new { Some(PathBuf::from(&self.module)) } else { self.code.clone() };
        let of_file = Path::new(&self.module).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = match is_new {
            true => self.name.clone().or(of_file).unwrap_or_default(),
            false => self.module.clone(),
        };
        if !is_target(&name) {
            let expected = "expected a letter and at most 31 more of a to z, 0 to 9, _ and -";
            return Err(format!("the name {name:?}: {expected} (--name NAME)").into());
        }
        let hash = file.as_deref().map(|file| store(&place, file)).transpose()?;
        let parameters = self.set.iter().map(|set| {
            let (key, value) =
                set.split_once('=').ok_or_else(|| format!("--set {set}: expected PARAMETER=VALUE"))?;
            Ok((key.to_owned(), value.to_owned()))
        });
        let parameters: Vec<_> = parameters.collect::<Result<_, Error>>()?;
        let (state, rollout) = place.change(|state| {
            let before = state.targets.get(&name).filter(|wish| wish.action != Action::Stop);
            let (module, parameters, condition) = match (is_new, before) {
                (true, Some(_)) => {
                    return Err(
                        format!("{name} is installed: flame fleet update {name}, or --name NAME").into()
                    );
                }
                (false, None) => return Err(format!("{name} is not installed: flame fleet list").into()),
                (true, None) => (hash, parameters, self.r#where.clone()),
                (false, Some(wish)) => {
                    let Action::Run { module, parameters: old, .. } = &wish.action else {
                        return Err("it is not installed".into());
                    };
                    let parameters = if parameters.is_empty() { old.clone() } else { parameters };
                    let condition = self.r#where.clone().unwrap_or_else(|| wish.r#where.clone());
                    (hash.or_else(|| Some(module.clone())), parameters, Some(condition))
                }
            };
            let module = module.ok_or("the file of the module is missing")?;
            if state.revocations.revoked.contains(&module) {
                return Err(format!("the module {module} is revoked: build another one").into());
            }
            let action = Action::Run { module, credential: Vec::new(), parameters };
            self.begin(state, &name, condition.unwrap_or_default(), action)
        })?;
        watch(&place, &state, &name, rollout, self.detach)
    }

    fn begin(&self, state: &mut State, name: &str, condition: String, action: Action) -> Result<u64, Error> {
        let plan =
            Plan { waves: self.waves.clone(), failures: self.failures * 10, patience: self.patience.0 };
        begin(state, name, condition, action, plan, (self.lease.0, self.expires.0))
    }
}

/// Keeps a module and its signatures. Returns its SHA-256.
fn store(place: &Place, path: &Path) -> Result<String, Error> {
    let read = |path: &Path, most| {
        let bytes = std::fs::File::open(path).and_then(|file| flame_files::read_at_most(file, most));
        bytes.map_err(|e| Error::from(format!("{}: {e}", path.display())))
    };
    let bytes = read(path, MAX_MODULE)?;
    if !bytes.starts_with(b"\0asm") {
        return Err(
            format!("{}: it does not begin as WebAssembly, expected a .wasm file", path.display()).into()
        );
    }
    let hash = hex(&Sha256::digest(&bytes));
    place.put(&format!("module.{hash}"), &bytes)?;
    let signatures = path.with_added_extension("sig");
    if signatures.exists() {
        place.put(&format!("signatures.{hash}"), &read(&signatures, MAX_TEXT)?)?;
    }
    Ok(hash)
}

/// Begins a rollout. Returns its number.
fn begin(
    state: &mut State,
    name: &str,
    condition: String,
    action: Action,
    plan: Plan,
    (lease, expires): (u64, u64),
) -> Result<u64, Error> {
    let parsed = Condition::parse(&condition).map_err(|e| format!("--where, {e}"))?;
    let nodes = state.members.nodes().iter().filter(|(name, standing)| {
        let labels = state.labels.get(*name).map(labels).unwrap_or_default();
        matches!(standing, Standing::Member(_)) && parsed.holds(&labels)
    });
    let nodes: Vec<String> = nodes.map(|(name, _)| name.clone()).collect();
    state.counter += 1;
    state.rollout += 1;
    let rollout = Rollout::new(state.rollout, nodes, plan, now());
    let (counter, id) = (state.counter, state.rollout);
    let wish =
        Wish { counter, expires: now().saturating_add(expires), lease, r#where: condition, action, rollout };
    state.targets.insert(name.to_owned(), wish);
    Ok(id)
}

/// Prints what a rollout does until it ends. A rollout that halts is an error.
fn watch(place: &Place, begun: &State, name: &str, rollout: u64, detach: bool) -> Result<(), Error> {
    let start = Instant::now();
    let mut state = begun.clone();
    let mut said = HashSet::new();
    let mut waits = false;
    loop {
        let Some(wish) = state.targets.get(name).filter(|wish| wish.rollout.id() == rollout) else {
            return Err(format!("{name}: another change came first").into());
        };
        let (nodes, ends) = wish.rollout.waves();
        let count = nodes.count();
        let took = start.elapsed().as_secs_f64();
        for (node, outcome) in wish.rollout.outcomes() {
            let text = match outcome {
                Outcome::Running => continue,
                Outcome::Refused(reason) => format!("{node} refuses: {reason}"),
                Outcome::Failed(reason) => format!("{node} failed: {reason}"),
            };
            if said.insert(text.clone()) {
                println!("{text}");
            }
        }
        let followed = wish.rollout.outcomes().values().filter(|of| **of == Outcome::Running).count();
        match wish.rollout.progress() {
            Progress::Done => {
                println!("{name}: {followed} of {count} nodes follow, after {took:.2} s");
                return Ok(());
            }
            Progress::Halted { wave, failed, silent, of } => {
                return Err(format!(
                    "{name}: halted in wave {} of {}: of {of} nodes {failed} failed and {silent} were silent; \
                     the others keep what they had (flame fleet list)",
                    wave + 1,
                    ends.len()
                )
                .into());
            }
            Progress::Wave(_) if detach => return Ok(()),
            Progress::Wave(wave) => {
                let text = format!(
                    "wave {} of {}: up to {} nodes, after {took:.2} s",
                    wave + 1,
                    ends.len(),
                    ends[wave]
                );
                if said.insert(format!("wave {wave}")) {
                    println!("{text}");
                }
            }
        }
        if !waits && start.elapsed() > Duration::from_secs(5) {
            waits = true;
            warn(service::status(place).as_ref());
        }
        std::thread::sleep(WATCH);
        state = place.state()?;
    }
}

pub(super) fn remove(place: &Place, name: &str, detach: bool) -> Result<(), Error> {
    let (state, rollout) = place.change(|state| {
        let wish =
            state.targets.get(name).ok_or_else(|| format!("{name} is not installed: flame fleet list"))?;
        let (condition, lease) = (wish.r#where.clone(), wish.lease);
        let plan = Plan { waves: Vec::new(), failures: 1000, patience: 60 };
        begin(state, name, condition, Action::Stop, plan, (lease, 90 * 86_400))
    })?;
    watch(place, &state, name, rollout, detach)
}

pub(super) fn list(place: &Place, json: bool) -> Result<(), Error> {
    let state = place.state()?;
    for (name, wish) in &state.targets {
        let (nodes, ends) = wish.rollout.waves();
        let nodes: Vec<_> = nodes.collect();
        let text = |node: &str| match wish.rollout.outcomes().get(node) {
            None => ("silent", String::new()),
            Some(Outcome::Running) if wish.action == Action::Stop => ("removed", String::new()),
            Some(Outcome::Running) => ("running", String::new()),
            Some(Outcome::Refused(reason)) => ("refused", reason.clone()),
            Some(Outcome::Failed(reason)) => ("failed", reason.clone()),
        };
        if json {
            for node in nodes {
                let (outcome, reason) = text(node);
                let rollout = wish.rollout.id();
                let line = serde_json::json!({
                    "module": name, "node": node, "rollout": rollout, "outcome": outcome, "reason": reason,
                });
                println!("{line}");
            }
            continue;
        }
        let progress = match wish.rollout.progress() {
            Progress::Done => "done".to_owned(),
            Progress::Wave(wave) => format!("wave {} of {}", wave + 1, ends.len()),
            Progress::Halted { wave, .. } => format!("halted in wave {} of {}", wave + 1, ends.len()),
        };
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        nodes.iter().for_each(|node| *counts.entry(text(node).0).or_default() += 1);
        let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!("{name:<16} {progress:<16} {}  {}", counts.join(", "), wish.r#where);
        for node in nodes {
            let (outcome, reason) = text(node);
            if !reason.is_empty() {
                println!("  {node} {outcome}: {reason}");
            }
        }
    }
    warn(service::status(place).as_ref());
    Ok(())
}

pub(super) fn revoke(
    place: &Place,
    what: Option<String>,
    credential: Option<&Path>,
    detach: bool,
) -> Result<(), Error> {
    let what = match (what, credential) {
        (None, Some(path)) => {
            let lines = node::flame(&["grant", "inspect", &path.to_string_lossy(), "--format", "json"])?;
            let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap_or_default())?;
            last["id"].as_str().ok_or("the credential has no id")?.to_owned()
        }
        (what, _) => what.ok_or("state what to revoke")?,
    };
    let start = Instant::now();
    let (_, number) = place.change(|state| {
        let of_target = state.targets.get(&what).map(|wish| &wish.action);
        let what = match of_target {
            Some(Action::Run { module, .. }) => module.clone(),
            Some(Action::Stop) => return Err(format!("{what} is removed: state its SHA-256").into()),
            None if Key::parse(&what).is_some() => what,
            None if !what.is_empty() && what.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                what.to_ascii_lowercase()
            }
            None => {
                let expected = "a module of the fleet, a SHA-256, the id of a block, or ed25519/KEY";
                return Err(format!("{what:?}: expected {expected}").into());
            }
        };
        if !state.revocations.revoked.contains(&what) {
            state.revocations.revoked.push(what);
            state.revocations.number += 1;
        }
        Ok(state.revocations.number)
    })?;
    println!("the list of revocations has number {number}");
    watch_revocation(place, number, start, detach)
}

/// Waits until the list is in force on all nodes with contact.
fn watch_revocation(place: &Place, number: u64, start: Instant, detach: bool) -> Result<(), Error> {
    let mut waits = false;
    if detach {
        return Ok(());
    }
    loop {
        if let Some(status) = service::status(place) {
            let has = |seen: &service::Seen| seen.revoked >= number && seen.has_revoked;
            let near = status.nodes.values().filter(|seen| now() <= seen.at.saturating_add(15));
            let (all, done) = (near.clone().count(), near.filter(|seen| has(seen)).count());
            if all == done {
                let took = start.elapsed().as_secs_f64();
                println!("it is in force on all {all} nodes with contact, after {took:.2} s");
                return Ok(());
            }
        }
        if !waits && start.elapsed() > Duration::from_secs(5) {
            waits = true;
            warn(service::status(place).as_ref());
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(
                "it is not in force on some nodes with contact after 60 s: flame fleet members".into()
            );
        }
        std::thread::sleep(WATCH);
    }
}
