//! The rules of a manifest that its types do not enforce.

use super::{
    Column, ColumnType, MAX_COLUMNS, MAX_HELD, MAX_PORTS, MAX_TABLES, Manifest, ManifestError, Parameter,
    ParameterType, Step, Table, line,
};
use crate::CALL_UNITS;
use crate::layout::{MAX_DATA, MAX_MEMORY};
use std::collections::BTreeSet;

/// A violation of a rule, and the path of keys to it.
pub(super) struct Fault<'a> {
    path: Vec<Step<'a>>,
    place: String,
    reason: String,
}

impl Fault<'_> {
    /// Returns the error with the line of the fault in the manifest's text.
    pub fn of(self, text: &str) -> ManifestError {
        ManifestError::Invalid { line: line(text, &self.path), place: self.place, reason: self.reason }
    }
}

pub(super) type Checked<'a> = Result<(), Fault<'a>>;

pub(super) fn fault<'a>(
    path: &[Step<'a>],
    place: impl Into<String>,
    reason: impl Into<String>,
) -> Checked<'a> {
    Err(Fault { path: path.to_vec(), place: place.into(), reason: reason.into() })
}

/// The maximum number of values of an enum: a row holds the number of one in a byte.
const MAX_VALUES: usize = 255;
/// The maximum length of a table's description in bytes.
const MAX_DESCRIPTION: usize = 1024;
/// The maximum length of a column's unit in bytes.
const MAX_UNIT: usize = 64;
/// The maximum length of an enum's value in bytes.
const MAX_VALUE: usize = 256;
/// The maximum memory in MiB.
const MAX_MIB: u32 = MAX_MEMORY >> 20;

impl Manifest {
    pub(super) fn check(&self) -> Checked<'_> {
        name(&[Step::Key("name")], "name", &self.name)?;
        // What a module logs begins with its name, and what `flame` itself reports with this one.
        if self.name == "flame" {
            return fault(&[Step::Key("name")], "name", "this name is taken: choose another");
        }
        if self.version.is_empty() || self.version.len() > 64 {
            let found = if self.version.is_empty() { "is empty" } else { "is too long" };
            return fault(
                &[Step::Key("version")],
                "version",
                format!("{found}: write 1 to 64 bytes, as 1.0.0"),
            );
        }
        for (key, text) in [("version", &self.version), ("description", &self.description)] {
            one_line(&[Step::Key(key)], key, text)?;
        }
        self.check_limits()?;
        if let Some(ports) = &self.ports {
            for (key, count) in [("inputs", ports.inputs), ("outputs", ports.outputs)] {
                if !(1..=MAX_PORTS).contains(&count) {
                    let path = [Step::Key("ports"), Step::Key(key)];
                    return fault(
                        &path,
                        format!("ports.{key}"),
                        format!("{count} is not in 1 to {MAX_PORTS}"),
                    );
                }
            }
            if ports.held > MAX_HELD {
                let path = [Step::Key("ports"), Step::Key("held")];
                return fault(&path, "ports.held", format!("{} is not in 0 to {MAX_HELD}", ports.held));
            }
            if self.state.is_some() {
                let reason = "a module with ports keeps no state: remove one of the two";
                return fault(&[Step::Key("state")], "state", reason);
            }
            if self.packets {
                let reason = "a module with ports sends packets from its outputs: remove it";
                return fault(&[Step::Key("packets")], "packets", reason);
            }
        }
        self.check_queues()?;
        self.check_channels()?;
        self.check_services()?;
        self.check_shared()?;
        if let Some(state) = &self.state
            && !(1..=MAX_DATA).contains(&state.max)
        {
            let path = [Step::Key("state"), Step::Key("max")];
            return fault(&path, "state.max", format!("{} is not in 1 to {MAX_DATA}", state.max));
        }
        for (key, parameter) in &self.parameters {
            name(&[Step::Key("parameters"), Step::Key(key)], "parameters", key)?;
            parameter.check(key)?;
        }
        at_most(&[Step::Key("tables")], "tables", self.tables.len(), MAX_TABLES, "entries")?;
        let mut names = BTreeSet::new();
        for (index, table) in self.tables.iter().enumerate() {
            let path = [Step::Key("tables"), Step::Index(index)];
            name(&[path[0], path[1], Step::Key("name")], "tables", &table.name)?;
            if !names.insert(&table.name) {
                return fault(&path, format!("tables.{}", table.name), "appears twice: choose another name");
            }
            table.check(index)?;
        }
        self.check_plots()
    }

    fn check_limits(&self) -> Checked<'_> {
        let limits = &self.limits;
        let path = |key| [Step::Key("limits"), Step::Key(key)];
        if let Some(mib) = limits.memory_mib.filter(|mib| !(1..=MAX_MIB).contains(mib)) {
            let reason = format!("{mib} is not in 1 to {MAX_MIB}");
            return fault(&path("memory_mib"), "limits.memory_mib", reason);
        }
        for (key, budget, least) in
            [("packet_budget", limits.packet_budget, 1), ("call_budget", limits.call_budget, CALL_UNITS)]
        {
            if let Some(units) = budget.filter(|units| *units < least) {
                let reason = format!("{units} is too little: {least} at least");
                return fault(&path(key), format!("limits.{key}"), reason);
            }
        }
        Ok(())
    }
}

impl Parameter {
    fn check<'a>(&'a self, key: &'a str) -> Checked<'a> {
        let path = |field| [Step::Key("parameters"), Step::Key(key), Step::Key(field)];
        let place = |field: &str| format!("parameters.{key}.{field}");
        let kind = match self.kind {
            ParameterType::Text => "a text",
            ParameterType::Boolean => "a boolean",
            _ => "",
        };
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min > max
        {
            let reason = format!("{min} is more than max = {max}: exchange them");
            return fault(&path("min"), place("min"), reason);
        }
        one_line(&path("description"), &place("description"), &self.description)?;
        if let Err(reason) = self.encode(&self.default) {
            return fault(&path("default"), place("default"), reason);
        }
        for (field, limit) in [("min", self.min), ("max", self.max)] {
            if let (ParameterType::Text, "max", Some(limit)) = (self.kind, field, limit) {
                let most = crate::layout::MAX_TEXTS;
                if !(1..=most.into()).contains(&limit) {
                    return fault(&path(field), place(field), format!("{limit} is not in 1 to {most}"));
                }
                continue;
            }
            if limit.is_some() && !kind.is_empty() {
                return fault(&path(field), place(field), format!("{kind} has no limits: remove it"));
            }
        }
        Ok(())
    }
}

impl Table {
    fn check(&self, index: usize) -> Checked<'_> {
        let table = [Step::Key("tables"), Step::Index(index)];
        let columns = [table[0], table[1], Step::Key("columns")];
        let place = format!("tables.{}", self.name);
        let description = [table[0], table[1], Step::Key("description")];
        one_line(&description, &place, &self.description)?;
        at_most(&description, &place, self.description.len(), MAX_DESCRIPTION, "bytes of description")?;
        at_most(&columns, &place, self.columns.len(), MAX_COLUMNS, "columns")?;
        if self.columns.is_empty() {
            return fault(&columns, place, "has no columns: add one");
        }
        let mut names = BTreeSet::new();
        for (at, column) in self.columns.iter().enumerate() {
            let path = [columns[0], columns[1], columns[2], Step::Index(at), Step::Key("name")];
            name(&path, &place, &column.name)?;
            let place = format!("{place}.{}", column.name);
            if !names.insert(&column.name) {
                return fault(&path, place, "appears twice: choose another name");
            }
            // A record in JSON states its origin under these keys.
            if column.name == "module" || column.name == "table" {
                return fault(&path, place, "this name is taken: choose another");
            }
            column.check(&path, place)?;
        }
        Ok(())
    }
}

impl Column {
    fn check<'a>(&'a self, path: &[Step<'a>], place: String) -> Checked<'a> {
        let is_enum = self.kind == ColumnType::Enum;
        if is_enum == self.values.is_empty() {
            return fault(
                path,
                place,
                "an enum, and only an enum, lists its values, as values = [\"a\", \"b\"]",
            );
        }
        use ColumnType::{Duration, I64, Time, U8, U16, U32, U64};
        if self.optional && !matches!(self.kind, U8 | U16 | U32 | U64 | I64 | Time | Duration) {
            return fault(path, place, "only numbers, times and durations are optional: remove `optional`");
        }
        at_most(path, &place, self.values.len(), MAX_VALUES, "values")?;
        let mut words = BTreeSet::new();
        match self.values.iter().find(|word| !words.insert(*word)) {
            Some(twice) => fault(path, place, format!("value {twice:?} appears twice: remove one")),
            None => {
                let unit = self.unit.as_deref().unwrap_or("");
                one_line(path, &place, unit)?;
                at_most(path, &place, unit.len(), MAX_UNIT, "bytes of unit")?;
                let longest = self.values.iter().map(String::len).max().unwrap_or(0);
                at_most(path, &place, longest, MAX_VALUE, "bytes of a value")
            }
        }
    }
}

pub(super) fn at_most<'a>(
    path: &[Step<'a>],
    place: &str,
    found: usize,
    limit: usize,
    what: &str,
) -> Checked<'a> {
    match found > limit {
        true => fault(path, place, format!("{found} {what}, at most {limit} are allowed")),
        false => Ok(()),
    }
}

pub(super) fn one_line<'a>(path: &[Step<'a>], place: &str, text: &str) -> Checked<'a> {
    match text.chars().any(char::is_control) {
        true => fault(path, place, "has control characters: write one line"),
        false => Ok(()),
    }
}

/// Names become file names, JSON keys and column names, so they are plain.
pub(super) fn name<'a>(path: &[Step<'a>], place: &str, found: &str) -> Checked<'a> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let begins = found.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if begins && found.len() <= 32 && found.bytes().all(plain) {
        return Ok(());
    }
    let found: String = found.chars().take(40).collect();
    let rule = "is not a name: a lower-case letter, then lower-case letters, digits, _ or -, at most 32";
    fault(path, place, format!("{found:?} {rule}"))
}
