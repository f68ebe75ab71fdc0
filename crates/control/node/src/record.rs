//! Entries of the audit log about one module.

use crate::error::NodeError;
use flame_base::lock;
use flame_plan::Account;
use flame_trust::{Audit, Event, Secret, time};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The audit log and the key that signs it.
pub(crate) struct Log {
    pub(crate) audit: Audit,
    pub(crate) secret: Arc<Secret>,
    pub(crate) owed: Arc<Owed>,
}

/// The entries that could not be written, the first one first. They come before every later entry: an install
/// without an end would be taken for a killed one.
#[derive(Default)]
pub(crate) struct Owed(Mutex<VecDeque<Entry>>);

struct Entry {
    event: Event,
    principal: String,
    module: String,
    text: String,
}

impl Owed {
    pub(crate) fn is_any(&self) -> bool {
        !lock(&self.0).is_empty()
    }
}

impl Log {
    pub(crate) fn write(
        &self,
        event: Event,
        principal: &str,
        module: &str,
        text: &str,
    ) -> Result<(), NodeError> {
        self.write_owed()?;
        Ok(self.audit.write(&self.secret, event, principal, module, text)?)
    }

    /// Writes an entry of something that has happened. If that fails, it is written later, with the time at
    /// which it happened.
    fn record(&self, event: Event, principal: &str, module: &str, text: &str) -> Result<(), NodeError> {
        self.write(event.clone(), principal, module, text).inspect_err(|_| {
            let text = format!("{text}; at {}", time::show(time::now()));
            let (principal, module) = (principal.to_owned(), module.to_owned());
            lock(&self.owed.0).push_back(Entry { event, principal, module, text });
        })
    }

    pub(crate) fn write_owed(&self) -> Result<(), NodeError> {
        let mut owed = lock(&self.owed.0);
        while let Some(Entry { event, principal, module, text }) = owed.front() {
            self.audit.write(&self.secret, event.clone(), principal, module, text)?;
            owed.pop_front();
        }
        Ok(())
    }
}

/// A module whose install is in the audit log. If its end was not recorded when this value is dropped, an
/// entry states whether the module ran.
pub struct Entered {
    log: Option<Log>,
    /// The name of the module in the plan.
    pub name: String,
    principal: String,
    module: String,
    has_run: AtomicBool,
    has_ended: AtomicBool,
}

impl Entered {
    pub(crate) fn new(log: Option<Log>, name: &str, principal: &str, module: &str) -> Self {
        let (name, principal, module) = (name.to_owned(), principal.to_owned(), module.to_owned());
        let (has_run, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { log, name, principal, module, has_run, has_ended }
    }

    /// States that the module was given to a worker.
    pub fn runs(&self) {
        self.has_run.store(true, Ordering::Relaxed);
    }

    /// Records how the module ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the audit log cannot be written. The entries are then written before the next one.
    pub fn ended(&self, faults: &[String], account: &Account) -> Result<(), NodeError> {
        self.has_ended.store(true, Ordering::Relaxed);
        let Some(log) = &self.log else { return Ok(()) };
        let Self { principal, module, .. } = self;
        let mut recorded = Ok(());
        for text in faults {
            recorded = recorded.and(log.record(Event::Fault, principal, module, text));
        }
        let Account { offered, processed, sampled, records, withheld, faults, .. } = account;
        let sampled = if *sampled > 0 { format!("{sampled} sampled out, ") } else { String::new() };
        let text = format!(
            "{offered} packets offered, {processed} processed, {sampled}{records} records, {withheld} withheld, {faults} faults"
        );
        recorded.and(log.record(Event::End, principal, module, &text))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(log) = self.log.as_ref().filter(|_| !*self.has_ended.get_mut()) {
            let text = match *self.has_run.get_mut() {
                true => "ended before its start was complete: its packets were not counted",
                false => "refused after its entry: it did not run",
            };
            // It is written later otherwise.
            let _ = log.record(Event::End, &self.principal, &self.module, text);
        }
    }
}
