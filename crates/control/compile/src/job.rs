//! The work on a foreign module's bytes. All of it happens here, in a child process or, if explicitly
//! requested, in this process.

use crate::answer::Answer;
use crate::dwarf::Lines;
use crate::step::Step;
use crate::{Artifact, Engines};
use flame_abi::layout::names;
use flame_abi::manifest::Manifest;
use flame_bounds::{Capsule, Costs, Rules};
use flame_meter::Metering;
use flame_plan::ModuleClass;
use serde::{Deserialize, Serialize};

/// Work on a module, in the form that the parent sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    Examine,
    Analyse {
        costs: Option<Costs>,
    },
    Compile {
        artifact: Artifact,
    },
    /// Check and compile a capsule.
    Capsule,
    /// Find the source lines of these offsets in the file.
    Lines {
        offsets: Vec<usize>,
    },
}

impl Job {
    pub(crate) fn step(&self) -> Step {
        match self {
            Self::Examine => Step::Examine,
            Self::Analyse { .. } => Step::Analyse,
            Self::Compile { .. } | Self::Capsule => Step::Compile,
            Self::Lines { .. } => Step::Lines,
        }
    }
}

/// Does the work. Machine code is returned apart from the answer.
pub(crate) fn perform(job: &Job, wasm: &[u8], engines: Option<&Engines>) -> (Answer, Vec<u8>) {
    let answered = match job {
        Job::Examine => examine(wasm),
        Job::Analyse { costs } => flame_bounds::analyse(wasm, &Rules::default(), costs.as_ref())
            .map(|analysis| Answer::Report(Box::new(analysis.into())))
            .map_err(|e| e.to_string()),
        Job::Compile { artifact } => match compile(wasm, *artifact, engines) {
            Ok(code) => return (Answer::Code { bytes: code.len() as u64 }, code),
            Err(reason) => Err(reason),
        },
        Job::Capsule => match capsule(wasm, engines) {
            Ok((bounds, code)) => return (Answer::Capsule { bytes: code.len() as u64, bounds }, code),
            Err(reason) => Err(reason),
        },
        Job::Lines { offsets } => {
            let lines = Lines::of(wasm);
            let at = |offset: &usize| lines.as_ref().and_then(|lines| lines.at(*offset));
            Ok(Answer::Lines(offsets.iter().map(at).collect()))
        }
    };
    (answered.unwrap_or_else(Answer::Refused), Vec::new())
}

fn examine(wasm: &[u8]) -> Result<Answer, String> {
    let checked = flame_bounds::check(wasm, &Rules::default()).map_err(|e| e.to_string())?;
    // The parent parses the manifest again, once parsing is known to end.
    let manifest = Manifest::parse(&checked.manifest).map_err(|e| e.to_string())?;
    match (manifest.ports.is_some(), checked.exports.push) {
        (true, false) => {
            return Err("the manifest has [ports], but flame_push is missing: export it".to_owned());
        }
        (false, true) => {
            return Err("flame_push is for a module that forwards: add [ports] to the manifest".to_owned());
        }
        _ => {}
    }
    match (manifest.state.is_some(), checked.exports.export, checked.exports.import) {
        (true, true, true) | (false, false, false) => {}
        (true, ..) => {
            return Err(
                "the manifest has [state], but flame_export or flame_import is missing: export both \
                        (in Rust `export!(NAME, state)`)"
                    .to_owned(),
            );
        }
        (false, ..) => {
            return Err("flame_export and flame_import are for a module that keeps state: add [state] with \
                        version and max to the manifest"
                .to_owned());
        }
    }
    let has_slow_path = checked.exports.message;
    for (table, call, entries, export) in [
        ("services", names::SERVE, &manifest.services, checked.exports.serve),
        ("uses", names::DONE, &manifest.uses, checked.exports.done),
    ] {
        match (entries.is_empty(), export) {
            (true, true) => return Err(format!("{call} is for a module with [[{table}]] in its manifest")),
            (false, _) if !export || !has_slow_path => {
                return Err(format!(
                    "the manifest has [[{table}]], but {call} or flame_message is missing: export both"
                ));
            }
            _ => {}
        }
    }
    Ok(Answer::ModuleInfo {
        manifest: checked.manifest,
        messages: checked.exports.message,
        size: checked.size,
    })
}

fn compile(wasm: &[u8], artifact: Artifact, engines: Option<&Engines>) -> Result<Vec<u8>, String> {
    let engines = engines.ok_or("no engine to compile for")?;
    let proved;
    let (count, class) = match artifact {
        Artifact::Bounded => {
            proved = flame_bounds::prove(wasm, &Rules::default()).map_err(|e| e.to_string())?;
            (
                Metering::Verified { uncounted: &proved.uncounted, diverging: &proved.diverging },
                ModuleClass::Bounded,
            )
        }
        Artifact::Metered => (Metering::All, ModuleClass::Metered),
        _ => (Metering::Nothing, ModuleClass::Bounded),
    };
    let rewritten = flame_meter::rewrite_polled(wasm, count).map_err(|e| e.to_string())?;
    engines.precompile(class, &rewritten).map_err(|e| format!("compiling: {e:#}"))
}

/// Compiles a capsule, whose globals are exported so that its instance can be wiped.
fn capsule(wasm: &[u8], engines: Option<&Engines>) -> Result<(Vec<Option<u64>>, Vec<u8>), String> {
    let engines = engines.ok_or("no engine to compile for")?;
    let Capsule { bounds, proved } = flame_bounds::capsule(wasm).map_err(|e| e.to_string())?;
    let count = Metering::Verified { uncounted: &proved.uncounted, diverging: &proved.diverging };
    let counted = flame_meter::rewrite(wasm, count).map_err(|e| e.to_string())?;
    let exported = flame_meter::export_globals(wasm, &counted).map_err(|e| e.to_string())?;
    let code = engines.precompile(ModuleClass::Bounded, &exported);
    code.map(|code| (bounds, code)).map_err(|e| format!("compiling: {e:#}"))
}
