//! The account of rows that reach no output.

use crate::error::RunError;
use crate::records::report::{LossReason, Lost};
use flame_plan::Account;
use flame_record::SinkError;
use std::collections::BTreeMap;

/// The losses of one module, by reason and table.
#[derive(Default)]
pub(crate) struct Losses {
    of_tables: BTreeMap<(LossReason, u16), u64>,
    named: BTreeMap<(LossReason, Option<String>), u64>,
}

impl Losses {
    /// Adds rows of a table, or of an unknown one.
    pub(crate) fn add(&mut self, reason: LossReason, table: Option<&str>, rows: u64) {
        if rows > 0 {
            let sum = self.named.entry((reason, table.map(str::to_owned))).or_default();
            *sum = sum.saturating_add(rows);
        }
    }

    /// Adds rows of a table by its number.
    pub(crate) fn add_rows(&mut self, reason: LossReason, table: u16, rows: u64) {
        let sum = self.of_tables.entry((reason, table)).or_default();
        *sum = sum.saturating_add(rows);
    }

    /// Counts the records of a module that was added after the sink fixed its files as lost, which ends no
    /// run.
    pub(crate) fn written(
        &mut self,
        result: Result<(), SinkError>,
        table: &str,
        rows: usize,
        account: &mut Account,
    ) -> Result<(), RunError> {
        match result {
            Err(SinkError::Unplanned { .. }) => {
                account.records = account.records.saturating_sub(rows as u64);
                account.records_lost = account.records_lost.saturating_add(rows as u64);
                self.add(LossReason::Unplanned, Some(table), rows as u64);
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// Returns the losses with the names of the module and its tables.
    pub(crate) fn report<'a>(self, module: &str, tables: impl Iterator<Item = &'a str>) -> Vec<Lost> {
        let tables: Vec<&str> = tables.collect();
        let lost = |table, rows, reason| Lost { module: module.to_owned(), table, rows, reason };
        let name = |table: u16| tables.get(usize::from(table)).map(|name| (*name).to_owned());
        let numbered =
            self.of_tables.into_iter().map(|((reason, table), rows)| lost(name(table), rows, reason));
        let named = self.named.into_iter().map(|((reason, table), rows)| lost(table, rows, reason));
        numbered.chain(named).collect()
    }
}
