use super::charged::Charged;
use super::records::Records;
use flame_base::lock;
use flame_plan::{Account, Audience, Discipline, FaultReport, ModuleId, Reason, Shed, TimeLimit};
use flame_source::Progress;
use flame_worker::{Attached, MAX_FAULTS, Observer, Run, RunError};
use std::any::Any;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A receiver of lines for the operator: notes, warnings, faults and texts of modules.
pub type Notify = Arc<dyn Fn(&str) + Send + Sync>;

/// The reason why an element's module cannot start or continue. A fault of the module is never such an error.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// Its run failed: its memory, its process or the output of its records.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The program that prepared it failed: its engines, its files or its audit log.
    #[error(transparent)]
    Program(Box<dyn Error + Send + Sync>),
}

/// A value that exists as long as a module runs, such as its grant and the watch that evicts it.
pub trait Kept: Any + Send {
    /// Returns the readers of the module's account.
    fn audience(&self) -> Audience;

    /// Records the end of the module.
    ///
    /// # Errors
    ///
    /// Returns an error if the end cannot be recorded.
    fn ended(
        self: Box<Self>,
        faults: &[String],
        account: &Account,
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// A module that runs for an element.
pub struct Running {
    pub(crate) attached: Attached,
    discipline: Discipline,
    /// The account as of the last tick.
    released: Arc<Mutex<Account>>,
    faults: Arc<Mutex<Vec<String>>>,
    /// The faults after which the module was started again.
    restarts: Arc<AtomicU32>,
    /// The packets that passed while the module rested.
    rested: u64,
    /// The module and the time that is left to it, if it has a limit.
    charged: Option<(ModuleId, Charged)>,
    notify: Notify,
    kept: Box<dyn Kept>,
}

impl Running {
    /// Starts the module of `run`. `kept` exists until the module has ended.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Attached::start`]. The end is then recorded in `kept`.
    pub fn start(
        run: Run,
        discipline: Discipline,
        records: Records,
        notify: Notify,
        kept: Box<dyn Kept>,
    ) -> Result<Self, ModuleError> {
        let (faults, released, restarts) = (Arc::default(), Arc::default(), Arc::default());
        let observer = Notifying {
            notify: notify.clone(),
            faults: Arc::clone(&faults),
            released: Arc::clone(&released),
            restarts: Arc::clone(&restarts),
        };
        match Attached::start(run, discipline, Box::new(records), Box::new(observer)) {
            Ok(attached) => {
                let (rested, charged) = Default::default();
                Ok(Self { attached, discipline, released, faults, restarts, rested, charged, notify, kept })
            }
            Err(e) => {
                kept.ended(&[], &Account::default()).map_err(ModuleError::Program)?;
                Err(e.into())
            }
        }
    }

    /// Returns the module with this limit, to which all calls are charged.
    #[must_use]
    pub fn with_limit(self, id: ModuleId, limit: Option<TimeLimit>) -> Self {
        let limit = limit.filter(|_| self.discipline.limits_time());
        Self { charged: limit.map(|limit| (id, Charged::new(limit))), ..self }
    }

    /// Charges work that took a time until `now`, for which the module was given packets. Evicts a module
    /// that has used up what its limit leaves to it.
    pub(crate) fn worked(&mut self, now: Instant, took: Duration, packets: usize) {
        if let Some((id, charged)) = &mut self.charged
            && let Some(reason) = charged.worked(now, took, packets)
        {
            // It may have ended meanwhile.
            let _ = self.attached.handle().evict(*id, Reason::denied(reason));
            self.charged = None;
        }
    }

    /// Returns the value that exists as long as the module runs, if it is a `T`.
    pub fn kept<T: Kept>(&self) -> Option<&T> {
        (&*self.kept as &dyn Any).downcast_ref()
    }

    /// Returns the account of the packets offered so far, as its reader may know it: under a grant in a live
    /// graph, as of the last tick.
    pub(crate) fn account(&mut self) -> Account {
        match (self.kept.audience(), self.discipline.releases_by_interval()) {
            (Audience::Operator, _) => with_rested(self.attached.account(), self.rested),
            (Audience::Holder, true) => lock(&self.released).without_sampled(),
            (Audience::Holder, false) => self.attached.account().without_sampled(),
        }
    }

    /// Counts packets that passed while the module rested, in the account for the operator: which of them
    /// the module's view would have shown is not known.
    pub(crate) fn rested(&mut self, packets: usize) {
        self.rested += packets as u64;
    }

    /// Returns the number of times that the module was started again.
    pub(crate) fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Returns the texts of the first faults so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        lock(&self.faults).clone()
    }

    /// Makes the last calls, and completes the module's records. `is_interrupted` leaves them little time.
    ///
    /// # Errors
    ///
    /// Returns an error if the output failed, or if the end cannot be recorded.
    pub(crate) fn end(self, is_interrupted: bool) -> Result<(), ModuleError> {
        let Self { attached, faults, rested, notify, kept, .. } = self;
        if is_interrupted {
            attached.handle().stop();
        }
        let (report, _) = attached.end()?;
        for lost in &report.lost {
            let noun = lost.reason.noun();
            notify(&format!("{}: {} {noun} lost: {}", lost.module, lost.rows, lost.reason.explain()));
        }
        let Some((_, account)) = report.accounts.first() else { return Ok(()) };
        kept.ended(&lock(&faults), &with_rested(account.clone(), rested)).map_err(ModuleError::Program)
    }
}

fn with_rested(mut account: Account, rested: u64) -> Account {
    account.offer(rested, 0);
    account.shed(Shed::Share, rested);
    account
}

/// An observer that reports the events of a module to the operator.
struct Notifying {
    notify: Notify,
    faults: Arc<Mutex<Vec<String>>>,
    released: Arc<Mutex<Account>>,
    restarts: Arc<AtomicU32>,
}

impl Observer for Notifying {
    fn progress(&mut self, _: u64, _: Progress) {}

    fn log(&mut self, module: &str, text: &str) {
        (self.notify)(&format!("{module}: {}", flame_record::escape::line(text)));
    }

    fn fault(&mut self, report: &FaultReport) -> bool {
        self.restarts.fetch_add(report.restarted.into(), Ordering::Relaxed);
        let then = if report.restarted { "started anew" } else { "stopped" };
        let packet = report.packet.map_or(String::new(), |p| format!(" (packet {p})"));
        let text = format!("module {} {then}{packet}: {}", report.module, report.text);
        (self.notify)(&text);
        let mut faults = lock(&self.faults);
        // All are counted in the account; the texts of the first ones are kept.
        if faults.len() < MAX_FAULTS {
            faults.push(report.text.clone());
        }
        true
    }

    fn released(&mut self, accounts: &[(&str, Account)]) {
        if let [(_, account)] = accounts {
            lock(&self.released).clone_from(account);
        }
    }
}
