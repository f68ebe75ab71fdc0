//! Entries of the audit log about one module.

use crate::error::NodeError;
use flame_plan::Account;
use flame_trust::{Audit, Event, Secret};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The audit log and the key that signs it.
pub(crate) struct Log {
    pub(crate) audit: Audit,
    pub(crate) secret: Arc<Secret>,
}

impl Log {
    pub(crate) fn write(
        &self,
        event: Event,
        principal: &str,
        module: &str,
        text: &str,
    ) -> Result<(), NodeError> {
        Ok(self.audit.write(&self.secret, event, principal, module, text)?)
    }
}

/// A module whose install is in the audit log. If its end was not recorded when this value is dropped, an
/// entry states that the module did not run.
pub struct Entered {
    log: Option<Log>,
    /// The name of the module in the plan.
    pub name: String,
    principal: String,
    module: String,
    has_ended: AtomicBool,
}

impl Entered {
    pub(crate) fn new(log: Option<Log>, name: &str, principal: &str, module: &str) -> Self {
        let (name, principal, module) = (name.to_owned(), principal.to_owned(), module.to_owned());
        Self { log, name, principal, module, has_ended: AtomicBool::new(false) }
    }

    /// Records how the module ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the audit log cannot be written.
    pub fn ended(&self, faults: &[String], account: &Account) -> Result<(), NodeError> {
        self.has_ended.store(true, Ordering::Relaxed);
        let Some(log) = &self.log else { return Ok(()) };
        let Self { principal, module, .. } = self;
        faults.iter().try_for_each(|text| log.write(Event::Fault, principal, module, text))?;
        let Account { offered, processed, sampled, records, withheld, faults, .. } = account;
        let sampled = if *sampled > 0 { format!("{sampled} sampled out, ") } else { String::new() };
        let text = format!(
            "{offered} packets offered, {processed} processed, {sampled}{records} records, {withheld} withheld, {faults} faults"
        );
        log.write(Event::End, principal, module, &text)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(log) = self.log.as_ref().filter(|_| !*self.has_ended.get_mut()) {
            // A log that cannot be written refuses the next entry, too.
            let _ = log.write(
                Event::End,
                &self.principal,
                &self.module,
                "refused after its entry: it did not run",
            );
        }
    }
}
