//! Entries of the audit log about one module.

use crate::error::NodeError;
use flame_plan::Account;
use flame_trust::{Audit, Event, Secret};
use std::sync::Arc;

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

/// A module whose install is in the audit log.
pub struct Entered {
    log: Option<Log>,
    /// The name of the module in the plan.
    pub name: String,
    principal: String,
    module: String,
}

impl Entered {
    pub(crate) fn new(log: Option<Log>, name: &str, principal: &str, module: &str) -> Self {
        Self { log, name: name.to_owned(), principal: principal.to_owned(), module: module.to_owned() }
    }

    /// Records how the module ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the audit log cannot be written.
    pub fn ended(&self, faults: &[String], account: &Account) -> Result<(), NodeError> {
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
