//! The bounds on which a verdict is based, from the cache or from an analysis in a child process.

use crate::answer::Answer;
use crate::job::Job;
use crate::step::Step;
use crate::{Artifact, CompileError, Compiler, ModuleInfo, Report, Stopped, cache};
use flame_admit::{Admission, BatchBounds, Verdict, decide};
use flame_bounds::Costs;
use flame_plan::Expose;

/// The outcome of an analysis.
#[derive(Clone, Debug)]
pub enum Analysed {
    Report(Box<Report>),
    /// The analysis was stopped at a limit, for this reason. The module can run metered.
    Exceeded(String),
}

impl Compiler<'_> {
    /// Returns the class that a module is to run in.
    pub(crate) fn verdict(
        &self,
        wasm: &[u8],
        module: &ModuleInfo,
        expose: Expose,
        costs: Option<&Costs>,
        admission: &Admission,
    ) -> Result<Verdict, CompileError> {
        decide(self.cut_off(&module.hash), || self.batches(wasm, module, costs), expose, admission)
    }

    fn batches(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        costs: Option<&Costs>,
    ) -> Result<Result<BatchBounds, String>, CompileError> {
        let of = identity(examined, costs);
        if let Some(known) = self.known(&of, Artifact::Verdict).and_then(|b| BatchBounds::from_bytes(&b)) {
            return Ok(Ok(known));
        }
        let report = match self.analyse(wasm, examined, costs)? {
            Analysed::Report(report) => report,
            Analysed::Exceeded(why) => return Ok(Err(why)),
        };
        let found = report.batches();
        self.keep(&of, Artifact::Verdict, &found.to_bytes())?;
        Ok(Ok(found))
    }

    /// Computes bounds on the cost of a module's calls, and estimates of their time if `costs` are given.
    ///
    /// # Errors
    ///
    /// Returns an error if the module is refused, if the work cannot be started, or if the cache cannot be
    /// written. An analysis that exceeds its limits is no error but [`Analysed::Exceeded`].
    pub fn analyse(
        &self,
        wasm: &[u8],
        examined: &ModuleInfo,
        costs: Option<&Costs>,
    ) -> Result<Analysed, CompileError> {
        let of = identity(examined, costs);
        if let Some(report) = self.known(&of, Artifact::Report).and_then(|b| postcard::from_bytes(&b).ok()) {
            return Ok(Analysed::Report(report));
        }
        if let Some(why) = self.known(&of, Artifact::Unanalysed).and_then(|b| String::from_utf8(b).ok()) {
            return Ok(Analysed::Exceeded(why));
        }
        match self.perform(&Job::Analyse { costs: costs.cloned() }, (wasm, examined.size), &examined.hash) {
            Ok((Answer::Report(report), _)) => {
                if let Ok(bytes) = postcard::to_stdvec(&report) {
                    self.keep(&of, Artifact::Report, &bytes)?;
                }
                Ok(Analysed::Report(report))
            }
            Ok(_) => Err(crate::unexpected(Step::Analyse)),
            // A failed analysis must not prevent the module from running metered.
            Err(CompileError::Stopped { stopped, .. }) if stopped.is_the_modules() => {
                let why = format!("its analysis was stopped: {stopped}");
                // Failures that depend on the load of the machine are not cached, so that the analysis is
                // repeated next time.
                if matches!(stopped, Stopped::Cpu { .. } | Stopped::Memory { .. }) {
                    self.keep(&of, Artifact::Unanalysed, why.as_bytes())?;
                }
                Ok(Analysed::Exceeded(why))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the hash of the inputs of an analysis: the module, and the machine's costs if estimates are
/// requested.
fn identity(examined: &ModuleInfo, costs: Option<&Costs>) -> [u8; 32] {
    cache::identity_of(&examined.hash, costs)
}
