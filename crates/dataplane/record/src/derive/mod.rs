//! Columns that follow from others of a row: those by which records of flows join those of other tools. They
//! are computed where records leave, not by the module, so that packets pay nothing for them.
//!
//! A table of flows has the columns of [`NEEDED`]. Its further columns:
//!
//! | column | type | value |
//! | --- | --- | --- |
//! | `duration_ns` | duration | `last_ns - first_ns` |
//! | `proto_name` | text | `TCP`, `UDP`, `ICMP`, …; the number in three digits where there is no name |
//! | `flags_fwd`, `flags_rev` | text | the TCP flags as letters, `CEUAPRSF`, each `.` if it was not seen; empty for other protocols |
//! | `community_id` | text | Community ID, version 1, with seed 0 |
//! | `app` | text | the application that uses the lower known port, or nothing; only on request |

pub(crate) mod absent;
pub(crate) mod applications;
pub(crate) mod flow;

use crate::community;
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int64Array};
use flame_abi::manifest::{Column, ColumnType, Table};
use flow::{Flow, Letters};
use std::sync::Arc;

/// The columns of a table of flows.
const NEEDED: [&str; 7] = ["proto", "src", "sport", "dst", "dport", "first_ns", "last_ns"];

/// Returns whether a table has a row for each flow.
pub(crate) fn holds_flows(table: &Table) -> bool {
    NEEDED.iter().all(|name| table.columns.iter().any(|column| column.name == *name))
}

/// A column that follows from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Derived {
    Duration,
    ProtoName,
    FlagsFwd,
    FlagsRev,
    CommunityId,
    App,
}

impl Derived {
    pub(crate) const ALL: [Self; 6] =
        [Self::Duration, Self::ProtoName, Self::FlagsFwd, Self::FlagsRev, Self::CommunityId, Self::App];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Duration => "duration_ns",
            Self::ProtoName => "proto_name",
            Self::FlagsFwd => "flags_fwd",
            Self::FlagsRev => "flags_rev",
            Self::CommunityId => "community_id",
            Self::App => "app",
        }
    }

    /// Returns whether the column is only there if it is named.
    pub(crate) fn is_on_request(self) -> bool {
        self == Self::App
    }

    /// Returns the derived columns that a table can have. A column of the module with such a name stays.
    pub(crate) fn of(table: &Table) -> Vec<Self> {
        let has = |name: &str| table.columns.iter().any(|column| column.name == name);
        if !holds_flows(table) {
            return Vec::new();
        }
        let fits = |derived: &Self| match derived {
            Self::FlagsFwd => has("tcp_flags_fwd"),
            Self::FlagsRev => has("tcp_flags_rev"),
            _ => true,
        };
        Self::ALL.into_iter().filter(|derived| !has(derived.name()) && fits(derived)).collect()
    }

    pub(crate) fn column(self) -> Column {
        let kind = if self == Self::Duration { ColumnType::Duration } else { ColumnType::Text };
        Column {
            name: self.name().to_owned(),
            kind,
            unit: None,
            values: Vec::new(),
            detail: true,
            optional: false,
        }
    }

    /// Computes the column for the rows of a batch.
    pub(crate) fn values(self, rows: &[Flow<'_>]) -> ArrayRef {
        let texts = |append: fn(&mut StringBuilder, &Flow<'_>)| -> ArrayRef {
            let mut texts = StringBuilder::with_capacity(rows.len(), rows.len() * 8);
            rows.iter().for_each(|flow| append(&mut texts, flow));
            Arc::new(texts.finish())
        };
        match self {
            Self::Duration => Arc::new(Int64Array::from_iter_values(rows.iter().map(Flow::duration_ns))),
            Self::ProtoName => {
                texts(|texts, flow| texts.append_value(crate::protocols::name(flow.proto.into())))
            }
            Self::FlagsFwd => texts(|texts, flow| append(texts, flow.letters(flow.tcp_flags_fwd))),
            Self::FlagsRev => texts(|texts, flow| append(texts, flow.letters(flow.tcp_flags_rev))),
            Self::CommunityId => texts(|texts, flow| {
                texts.append_value(flow.community_id().as_ref().map_or("", community::Id::as_str));
            }),
            Self::App => texts(|texts, flow| texts.append_value(flow.application().unwrap_or_default())),
        }
    }
}

fn append(texts: &mut StringBuilder, letters: Option<Letters>) {
    texts.append_value(letters.as_ref().map_or("", Letters::as_str));
}
