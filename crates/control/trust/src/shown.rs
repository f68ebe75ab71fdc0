//! The tables of the operator that queries of a fleet's archive show to a role.
//!
//! ```toml
//! [shows.researcher."flow.flow"]   # of the role researcher: MODULE.TABLE
//! columns = ["node", "proto"]
//! sums = ["bytes_fwd"]             # with a group only
//! group = 20                       # least number of rows for which one row stands
//! ```

use serde::Deserialize;

/// A table of the operator as a role sees it. Without a group, these are its rows, with these columns. With
/// one, a row stands for all rows that are equal in these columns, with their number and the sums of others,
/// and is there only for `group` rows or more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShownTable {
    pub columns: Vec<String>,
    #[serde(default)]
    pub sums: Vec<String>,
    #[serde(default)]
    pub group: u64,
}

impl ShownTable {
    /// Checks the statement about the table `name`.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        if name.split_once('.').is_none_or(|(module, table)| module.is_empty() || table.is_empty()) {
            return Err(format!("{name:?}: expected MODULE.TABLE in quotes, as in \"flow.flow\""));
        }
        if self.columns.is_empty() {
            return Err(format!("{name}: columns is empty, expected names of columns"));
        }
        let all: Vec<_> = self.columns.iter().chain(&self.sums).collect();
        if let Some((_, twice)) = all.iter().enumerate().find(|(n, column)| all[..*n].contains(column)) {
            return Err(format!("{name}: the column {twice:?} is stated twice"));
        }
        match self.group > 1 {
            true if all.contains(&&ROWS.to_owned()) => {
                Err(format!("{name}: {ROWS:?} is the number of rows of a group, and no column of it"))
            }
            false if !self.sums.is_empty() => Err(format!("{name}: sums are of groups: state group = 10")),
            _ => Ok(()),
        }
    }
}

/// The column of a group with the number of its rows.
pub const ROWS: &str = "rows";
