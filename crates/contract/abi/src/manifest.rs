//! The manifest, `module.toml`: the name of a module, its needs and the records it emits.
//!
//! The text is stored in the custom section `flame.manifest`. It is untrusted input: sizes are limited,
//! unknown keys are errors, and every error names the key.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The largest manifest in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// The maximum number of tables of a module.
pub const MAX_TABLES: usize = 64;
/// The maximum number of columns of a table.
pub const MAX_COLUMNS: usize = 128;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the ABI for which the module was built.
    pub abi: u32,
    /// The name: at most 32 bytes, lower-case letters, digits, `_` and `-`, of which the first is a letter.
    pub name: String,
    pub version: String,
    /// A description in one line, for `flame modules`.
    pub description: String,
    #[serde(default)]
    pub needs: Needs,
    #[serde(default)]
    pub limits: ManifestLimits,
    /// Whether the module emits packets, which go to a capture file (`flame run -w FILE`).
    #[serde(default)]
    pub packets: bool,
    /// The parameters by name. `--set NAME.PARAMETER=VALUE` sets one.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// The tables, in the order of their indices in output frames.
    #[serde(default)]
    pub tables: Vec<Table>,
}

/// The needs of a module. It never receives more than this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// The bytes to expose: `count`, `none` (descriptors only), `headers`, `payload:N` or `all`. The default
    /// is `headers`.
    #[serde(default)]
    pub expose: Option<String>,
    /// A pcap filter. Packets that do not match never reach the module.
    #[serde(default)]
    pub select: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestLimits {
    /// The work that one packet may cost: loop iterations and calls, weighted by their instructions.
    pub packet_budget: Option<u64>,
    /// The work that a call of init, tick, end or message may cost, in the unit of `packet_budget`.
    pub call_budget: Option<u64>,
    /// The memory of one instance in MiB.
    pub memory_mib: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    #[serde(rename = "type")]
    pub kind: ParameterType,
    pub default: toml::Value,
    pub description: String,
    #[serde(default)]
    pub min: Option<i64>,
    #[serde(default)]
    pub max: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterType {
    Integer,
    Number,
    Boolean,
    Text,
    /// A duration, written as `10s`, `250ms`, `5us`, `7ns`, `2m` or `1h` and passed to the module in
    /// nanoseconds.
    Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: ColumnType,
    /// The unit, such as `ns`, `bytes` or `packets`, for display and for the metadata of Parquet.
    #[serde(default)]
    pub unit: Option<String>,
    /// The names of an enum's values, in the order of their numbers.
    #[serde(default)]
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I64,
    F64,
    Time,
    Duration,
    Mac,
    Ip,
    Text,
    Enum,
}

/// The reason why a manifest was refused.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ManifestError {
    #[error("manifest is {0} bytes, at most {MAX_BYTES} are read")]
    TooLarge(usize),
    #[error("manifest is not UTF-8 at byte {0}")]
    NotText(usize),
    #[error("manifest: {0}")]
    Syntax(String),
    #[error("manifest: abi = {found}, this host speaks {expected}: rebuild the module with this host's SDK")]
    Abi { found: u32, expected: u32 },
    #[error("manifest: {place}: {found:?} {rule}")]
    Name { place: String, found: String, rule: &'static str },
    #[error("manifest: {place}: {reason}")]
    Invalid { place: String, reason: String },
}

impl Manifest {
    /// Parses and checks an untrusted manifest. There is no other entry point.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest is too large, not UTF-8, not valid TOML, of another ABI version or
    /// inconsistent.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_BYTES {
            return Err(ManifestError::TooLarge(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|e| ManifestError::NotText(e.valid_up_to()))?;
        // The version comes first: another version may have other keys.
        #[derive(Deserialize)]
        struct Version {
            abi: u32,
        }
        let syntax = |e: toml::de::Error| ManifestError::Syntax(e.to_string().trim_end().to_owned());
        let version: Version = toml::from_str(text).map_err(syntax)?;
        if version.abi != crate::VERSION {
            return Err(ManifestError::Abi { found: version.abi, expected: crate::VERSION });
        }
        let manifest: Self = toml::from_str(text).map_err(syntax)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Returns the manifest as TOML, which [`Manifest::parse`] can read.
    pub fn to_toml(&self) -> Result<String, ManifestError> {
        toml::to_string(self).map_err(|e| ManifestError::Syntax(e.to_string()))
    }

    fn check(&self) -> Result<(), ManifestError> {
        name("name", &self.name)?;
        for (key, parameter) in &self.parameters {
            name("parameters", key)?;
            let place = format!("parameters.{key}.default");
            parameter
                .encode(&parameter.default)
                .map_err(|reason| ManifestError::Invalid { place, reason })?;
        }
        at_most("tables", self.tables.len(), MAX_TABLES)?;
        unique("tables", self.tables.iter().map(|t| &t.name))?;
        for table in &self.tables {
            name("tables", &table.name)?;
            let place = format!("tables.{}", table.name);
            at_most(&place, table.columns.len(), MAX_COLUMNS)?;
            unique(&place, table.columns.iter().map(|c| &c.name))?;
            if table.columns.is_empty() {
                return Err(invalid(&place, "has no columns"));
            }
            for column in &table.columns {
                name(&place, &column.name)?;
                // JSON records use these keys for their origin.
                if column.name == "module" || column.name == "table" {
                    return Err(invalid(
                        &format!("{place}.{}", column.name),
                        "this name is taken: choose another",
                    ));
                }
                let is_enum = column.kind == ColumnType::Enum;
                if is_enum == column.values.is_empty() {
                    let place = format!("{place}.{}", column.name);
                    return Err(invalid(&place, "an enum, and only an enum, lists its values"));
                }
                at_most(&place, column.values.len(), 255)?;
            }
        }
        Ok(())
    }
}

impl Parameter {
    /// Returns the encoding of `value` that the module receives (see [`crate::config`]).
    ///
    /// # Errors
    ///
    /// Returns a description of the fault if `value` has another type or is out of range.
    pub fn encode(&self, value: &toml::Value) -> Result<Vec<u8>, String> {
        let integer = |n: i64| {
            if self.min.is_some_and(|m| n < m) || self.max.is_some_and(|m| n > m) {
                let end = |v: Option<i64>| v.map_or("…".to_owned(), |v| v.to_string());
                return Err(format!("{n} is not in {} to {}", end(self.min), end(self.max)));
            }
            Ok(n.to_le_bytes().to_vec())
        };
        match (self.kind, value) {
            (ParameterType::Integer, toml::Value::Integer(n)) => integer(*n),
            (ParameterType::Duration, toml::Value::String(s)) => integer(duration_ns(s)?),
            (ParameterType::Number, toml::Value::Float(x)) => Ok(x.to_le_bytes().to_vec()),
            (ParameterType::Number, toml::Value::Integer(n)) => Ok((*n as f64).to_le_bytes().to_vec()),
            (ParameterType::Boolean, toml::Value::Boolean(b)) => Ok(u64::from(*b).to_le_bytes().to_vec()),
            (ParameterType::Text, toml::Value::String(s)) => Ok(s.as_bytes().to_vec()),
            (kind, value) => Err(format!("expected {kind:?}, found {value}").to_lowercase()),
        }
    }

    /// Parses a value from its form on the command line.
    pub fn parse(&self, text: &str) -> Result<toml::Value, String> {
        let wrong = |what: &str| format!("{text:?} is not {what}");
        let value = match self.kind {
            ParameterType::Integer => toml::Value::Integer(text.parse().map_err(|_| wrong("an integer"))?),
            ParameterType::Number => toml::Value::Float(text.parse().map_err(|_| wrong("a number"))?),
            ParameterType::Boolean => toml::Value::Boolean(text.parse().map_err(|_| wrong("true or false"))?),
            ParameterType::Text | ParameterType::Duration => toml::Value::String(text.to_owned()),
        };
        self.encode(&value)?;
        Ok(value)
    }
}

/// Parses a duration such as `10s`, `250ms`, `5us`, `7ns`, `2m` or `1h` and returns it in nanoseconds.
pub fn duration_ns(text: &str) -> Result<i64, String> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let unit = match &text[digits..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return Err(format!("{text:?}: expected a number and ns, us, ms, s, m or h")),
    };
    let number: f64 = text[..digits].parse().map_err(|_| format!("{text:?}: expected a number first"))?;
    let ns = number * unit;
    if ns > 9e18 { Err(format!("{text:?} is longer than 285 years")) } else { Ok(ns.round() as i64) }
}

fn invalid(place: &str, reason: &str) -> ManifestError {
    ManifestError::Invalid { place: place.to_owned(), reason: reason.to_owned() }
}

fn at_most(place: &str, found: usize, limit: usize) -> Result<(), ManifestError> {
    if found > limit {
        return Err(invalid(place, &format!("{found} entries, at most {limit} are allowed")));
    }
    Ok(())
}

fn unique<'a>(place: &str, names: impl Iterator<Item = &'a String>) -> Result<(), ManifestError> {
    let mut seen = BTreeSet::new();
    for n in names {
        if !seen.insert(n) {
            return Err(invalid(place, &format!("{n:?} appears twice")));
        }
    }
    Ok(())
}

/// Checks that a name is plain, because names become file names, JSON keys and column names.
fn name(place: &str, found: &str) -> Result<(), ManifestError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    if found.is_empty()
        || found.len() > 32
        || !found.bytes().all(plain)
        || !found.as_bytes()[0].is_ascii_lowercase()
    {
        return Err(ManifestError::Name {
            place: place.to_owned(),
            found: found.chars().take(40).collect(),
            rule: "is not a name: a lower-case letter, then lower-case letters, digits, _ or -, at most 32",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        abi = 1
        name = "probe"
        version = "1.0.0"
        description = "counts"
        [parameters.port]
        type = "integer"
        default = 80
        min = 0
        max = 65535
        description = "TCP port"
        [[tables]]
        name = "total"
        columns = [{ name = "packets", type = "u64" }, { name = "end", type = "enum", values = ["idle"] }]
    "#;

    #[test]
    fn a_good_manifest_parses() {
        let m = Manifest::parse(GOOD.as_bytes()).unwrap();
        assert_eq!((m.name.as_str(), m.tables[0].columns[1].kind), ("probe", ColumnType::Enum));
        assert_eq!(m.parameters["port"].parse("8080").unwrap(), toml::Value::Integer(8080));
        assert!(m.parameters["port"].parse("65536").unwrap_err().contains("0 to 65535"));
    }

    #[test]
    fn each_fault_is_named() {
        let cases = [
            ("abi = 1", "abi = 2", "abi = 2"),
            ("name = \"probe\"", "name = \"../probe\"", "../probe"),
            ("default = 80", "default = \"x\"", "parameters.port.default"),
            ("values = [\"idle\"]", "values = []", "tables.total.end"),
            ("version = \"1.0.0\"", "colour = \"red\"", "colour"),
            ("\"packets\"", "\"end\"", "appears twice"),
            ("\"packets\"", "\"module\"", "tables.total.module: this name is taken"),
        ];
        for (old, new, expected) in cases {
            let text = GOOD.replacen(old, new, 1);
            let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{new}: {error}");
        }
        assert_eq!(Manifest::parse(&vec![b' '; MAX_BYTES + 1]), Err(ManifestError::TooLarge(MAX_BYTES + 1)));
        assert_eq!(Manifest::parse(b"a\xff"), Err(ManifestError::NotText(1)));
    }

    #[test]
    fn durations() {
        assert_eq!(duration_ns("250ms"), Ok(250_000_000));
        assert_eq!(duration_ns("1.5s"), Ok(1_500_000_000));
        assert!(duration_ns("10").is_err() && duration_ns("s").is_err() && duration_ns("9e99h").is_err());
    }
}
