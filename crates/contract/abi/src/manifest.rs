//! The manifest, `module.toml`: the name of a module, its needs and the records it emits.
//!
//! The text is stored in the custom section `flame.manifest`. It is untrusted input: sizes are limited,
//! unknown keys are errors, and every error names the key.

mod channel;
mod check;
mod place;
mod plot;
mod queue;
mod service;
mod shared;

pub use channel::{Channel, MAX_CHANNELS, bits_per_second};
pub use place::{Step, line};
pub use plot::{MAX_PLOTS, Plot, PlotKind};
pub use queue::{MAX_QUEUE_BLOCKS, MAX_QUEUES, Queue};
pub use service::{MAX_SERVICES, Service};
pub use shared::{Access, Shared};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest manifest in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// The maximum number of tables of a module.
pub const MAX_TABLES: usize = 64;
/// The maximum number of columns of a table.
pub const MAX_COLUMNS: usize = 128;

/// The manifest of a module, as `module.toml` holds it.
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
    /// Whether the module emits texts for the operator, which `flame run` prints on standard error.
    #[serde(default)]
    pub log: bool,
    /// The ports of a module that forwards packets, as an element of a graph.
    #[serde(default)]
    pub ports: Option<Ports>,
    /// The state that the module keeps beyond the life of an instance.
    #[serde(default)]
    pub state: Option<State>,
    /// The event queues among which its packets are divided, in the order of their numbers.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// The channels on which the module sends frames, in the order of their numbers.
    #[serde(default)]
    pub channels: Vec<Channel>,
    /// The services that the module offers to others, in the order of their numbers.
    #[serde(default)]
    pub services: Vec<Service>,
    /// The services that the module calls, in the order of their numbers.
    #[serde(default)]
    pub uses: Vec<Service>,
    /// The areas of memory that the module shares with others, in the order of their numbers.
    #[serde(default)]
    pub shared: Vec<Shared>,
    /// The parameters by name. `--set NAME.PARAMETER=VALUE` sets one.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// The tables, in the order of their indices in output frames.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// The pictures of these tables.
    #[serde(default, rename = "plot")]
    pub plots: Vec<Plot>,
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
    /// Whether the module uses random numbers, so that it gets a seed.
    #[serde(default)]
    pub random: bool,
}

/// The limits that a module asks for. `None` stands for the host's default.
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

/// The state that each instance of a module exports, and that a later one may import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The version of its form. A module gets only state of its own version.
    pub version: u32,
    /// The largest size of one instance's state in bytes.
    pub max: u32,
}

/// The most ports of a module on each side.
pub const MAX_PORTS: u32 = 64;

/// The most packets that a module holds.
pub const MAX_HELD: u32 = 4096;

/// The ports of a module that forwards packets, and the further rights that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// The number of inputs.
    #[serde(default = "one")]
    pub inputs: u32,
    /// The number of outputs.
    #[serde(default = "one")]
    pub outputs: u32,
    /// Whether it changes bytes of packets.
    #[serde(default)]
    pub modify: bool,
    /// Whether it makes packets.
    #[serde(default)]
    pub transmit: bool,
    /// The number of slots for packets that it holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn one() -> u32 {
    1
}

/// A parameter, whose value is set where the module is started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    #[serde(rename = "type")]
    pub kind: ParameterType,
    pub default: toml::Value,
    pub description: String,
    #[serde(default)]
    pub min: Option<i64>,
    /// The largest size of a text, in bytes.
    #[serde(default)]
    pub max: Option<i64>,
}

/// The type of a parameter's values.
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

/// A kind of record that the module emits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    #[serde(default)]
    pub description: String,
    pub columns: Vec<Column>,
}

/// A value of each record of a table.
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
    /// Whether tables for people leave the column out if they are too wide with it.
    #[serde(default)]
    pub detail: bool,
    /// Whether a 0 states that the value is unknown. It is written as null.
    #[serde(default)]
    pub optional: bool,
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
    /// The parser's words name line and column.
    #[error("manifest: {0}")]
    Syntax(String),
    #[error(
        "manifest, line {line}: abi = {found}, this host speaks {expected}: rebuild the module with this host's SDK"
    )]
    Abi { line: usize, found: u32, expected: u32 },
    #[error("manifest, line {line}: {place}: {reason}")]
    Invalid { line: usize, place: String, reason: String },
}

impl Manifest {
    /// Parses and checks an untrusted manifest. The only other entry point is [`Manifest::from_toml`].
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest is too large, not UTF-8, not valid TOML, of another ABI version or
    /// inconsistent.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_BYTES {
            return Err(ManifestError::TooLarge(bytes.len()));
        }
        Self::checked(std::str::from_utf8(bytes).map_err(|e| ManifestError::NotText(e.valid_up_to()))?)
    }

    fn checked(text: &str) -> Result<Self, ManifestError> {
        // The version comes first: another version may have other keys.
        #[derive(Deserialize)]
        struct Version {
            abi: u32,
        }
        let version: Version = toml::from_str(text).map_err(syntax)?;
        if version.abi != crate::VERSION {
            let line = line(text, &[Step::Key("abi")]);
            return Err(ManifestError::Abi { line, found: version.abi, expected: crate::VERSION });
        }
        let manifest: Self = toml::from_str(text).map_err(syntax)?;
        manifest.check().map_err(|fault| fault.of(text))?;
        Ok(manifest)
    }

    /// Parses and checks a text of [`Manifest::to_toml`]. It may be longer than the module's own, which can
    /// have a column in 21 bytes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Manifest::parse`].
    pub fn from_toml(text: &str) -> Result<Self, ManifestError> {
        if text.len() > 8 * MAX_BYTES {
            return Err(ManifestError::TooLarge(text.len()));
        }
        Self::checked(text)
    }

    /// Returns the manifest as TOML, which [`Manifest::from_toml`] can read.
    ///
    /// # Errors
    ///
    /// Returns an error if a value has no form in TOML.
    pub fn to_toml(&self) -> Result<String, ManifestError> {
        toml::to_string(self).map_err(|e| ManifestError::Syntax(e.to_string()))
    }
}

/// Returns the parser's message, with an example of the key if a required one is missing.
fn syntax(error: toml::de::Error) -> ManifestError {
    let mut text = error.to_string().trim_end().to_owned();
    let missing = error.message().strip_prefix("missing field `").and_then(|m| m.strip_suffix('`'));
    let example = missing.and_then(|key| EXAMPLES.iter().find(|(k, _)| *k == key));
    if let Some((key, value)) = example {
        text += &format!("\nadd it, for example {key} = {value}");
    }
    ManifestError::Syntax(text)
}

/// An example value of each required key.
const EXAMPLES: [(&str, &str); 16] = [
    ("abi", "1"),
    ("name", "\"my-module\""),
    ("version", "\"0.1.0\", or 1 in [state]"),
    ("description", "\"what it is\""),
    ("type", "\"integer\" in a parameter, \"u64\" in a column"),
    ("default", "0, or \"text\" for the type text"),
    ("columns", "[{ name = \"packets\", type = \"u64\" }]"),
    ("kind", "\"line\""),
    ("table", "\"total\""),
    ("x", "\"ts_ns\""),
    ("max", "65_536"),
    ("filter", "\"icmp\""),
    ("rate", "\"1 Mbit/s\""),
    ("bytes", "65_536"),
    ("access", "\"read\""),
    ("select", "\"port 53\""),
];

impl Parameter {
    /// Returns the encoding of `value` that the module receives (see [`crate::config`]).
    ///
    /// # Errors
    ///
    /// Returns a description of the fault if `value` has another type or is out of range.
    pub fn encode(&self, value: &toml::Value) -> Result<Vec<u8>, String> {
        let outside = |value: &dyn std::fmt::Display| {
            let end = |v: Option<i64>| v.map_or("…".to_owned(), |v| v.to_string());
            Err(format!("{value} is not in {} to {}", end(self.min), end(self.max)))
        };
        let integer = |n: i64| {
            if self.min.is_some_and(|m| n < m) || self.max.is_some_and(|m| n > m) {
                return outside(&n);
            }
            Ok(n.to_le_bytes().to_vec())
        };
        let number = |x: f64| {
            // No number at all lies outside of any limits.
            let inside = self.min.is_none_or(|m| x >= m as f64) && self.max.is_none_or(|m| x <= m as f64);
            if inside { Ok(x.to_le_bytes().to_vec()) } else { outside(&x) }
        };
        match (self.kind, value) {
            (ParameterType::Integer, toml::Value::Integer(n)) => integer(*n),
            (ParameterType::Duration, toml::Value::String(s)) => integer(duration_ns(s)?),
            (ParameterType::Number, toml::Value::Float(x)) => number(*x),
            (ParameterType::Number, toml::Value::Integer(n)) => number(*n as f64),
            (ParameterType::Boolean, toml::Value::Boolean(b)) => Ok(u64::from(*b).to_le_bytes().to_vec()),
            (ParameterType::Text, toml::Value::String(s)) => {
                let most = self.max.unwrap_or(crate::layout::MAX_DATA.into());
                if s.len() as i64 > most {
                    return Err(format!("a text of {} bytes, at most {most} fit", s.len()));
                }
                Ok(s.as_bytes().to_vec())
            }
            (kind, value) => Err(format!("expected {kind:?}, found {value}").to_lowercase()),
        }
    }

    /// Parses a value from its form on the command line.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault if the text is no value of this type, or is out of range.
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
///
/// # Errors
///
/// Returns a description of the fault if the number or its unit is missing or unknown, or if the duration
/// is longer than 285 years.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid manifest, from its second line on.
    const GOOD: &str = r#"
        abi = 1
        name = "probe"
        version = "1.0.0"
        description = "counts"
        [needs]
        select = "tcp"
        [limits]
        memory_mib = 16
        packet_budget = 5
        call_budget = 2000
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
    fn each_fault_is_named_with_its_line_and_a_remedy() {
        let wide = format!("values = [{}]", (0..300).map(|n| format!("\"w{n}\",")).collect::<String>());
        // What is replaced by what; the line; what is said.
        let cases = [
            ("abi = 1", "abi = 2", 2, "abi = 2, this host speaks 1: rebuild"),
            ("name = \"probe\"", "name = \"../probe\"", 3, "\"../probe\" is not a name: a lower-case letter"),
            ("\"1.0.0\"", "\"\"", 4, "version: is empty: write 1 to 64 bytes, as 1.0.0"),
            ("\"counts\"", "\"a\\nb\"", 5, "description: has control characters: write one line"),
            ("select = \"tcp\"", "select = 1", 7, "expected a string"),
            ("memory_mib = 16", "memory_mib = 2000", 9, "limits.memory_mib: 2000 is not in 1 to 1024"),
            (
                "packet_budget = 5",
                "packet_budget = 0",
                10,
                "limits.packet_budget: 0 is too little: 1 at least",
            ),
            (
                "call_budget = 2000",
                "call_budget = 9",
                11,
                "limits.call_budget: 9 is too little: 1024 at least",
            ),
            ("[parameters.port]", "[parameters.Port]", 12, "\"Port\" is not a name"),
            ("type = \"integer\"", "type = \"int\"", 13, "expected one of `integer`"),
            ("type = \"integer\"", "type = \"text\"", 14, "parameters.port.default: expected text, found 80"),
            ("default = 80", "default = \"x\"", 14, "parameters.port.default: expected integer, found \"x\""),
            ("default = 80", "default = 70000", 14, "70000 is not in 0 to 65535"),
            (
                "min = 0",
                "min = 65536",
                15,
                "parameters.port.min: 65536 is more than max = 65535: exchange them",
            ),
            ("max = 65535", "max = 65535\n        colour = 1", 17, "unknown field `colour`, expected one of"),
            ("name = \"total\"", "name = \"a b\"", 19, "tables: \"a b\" is not a name"),
            ("\"packets\", type", "\"end\", type", 20, "tables.total.end: appears twice"),
            ("\"packets\", type", "\"module\", type", 20, "this name is taken: choose another"),
            ("type = \"u64\"", "type = \"u24\"", 20, "expected one of `bool`"),
            (
                "values = [\"idle\"]",
                "values = []",
                20,
                "tables.total.end: an enum, and only an enum, lists its values",
            ),
            (
                "values = [\"idle\"]",
                "values = [\"a\", \"a\"]",
                20,
                "tables.total.end: value \"a\" appears twice",
            ),
            ("values = [\"idle\"]", &wide, 20, "300 values, at most 255 are allowed"),
            (
                "[[tables]]",
                "[[tables]]\n        name = \"total\"\n        columns = []\n        [[tables]]",
                20,
                "has no columns: add one",
            ),
        ];
        for (old, new, line, expected) in cases {
            let text = GOOD.replacen(old, new, 1);
            assert_ne!(text, GOOD, "{old}");
            let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains(&format!("line {line}")) && error.contains(expected),
                "{new}: line {line}: {error}"
            );
        }
        for (key, value) in [("abi", "1"), ("name", "\"probe\""), ("version", "\"1.0.0\""), ("default", "80")]
        {
            let error =
                Manifest::parse(GOOD.replacen(&format!("{key} = {value}"), "", 1).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(&format!("add it, for example {key} = ")), "{error}");
        }
        let again = format!(
            "{GOOD}    [[tables]]\n    name = \"total\"\n    columns = [{{ name = \"a\", type = \"u8\" }}]\n"
        );
        assert!(
            Manifest::parse(again.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("line 21: tables.total: appears twice")
        );
        assert_eq!(Manifest::parse(&vec![b' '; MAX_BYTES + 1]), Err(ManifestError::TooLarge(MAX_BYTES + 1)));
        assert_eq!(Manifest::parse(b"a\xff"), Err(ManifestError::NotText(1)));
    }

    #[test]
    fn limits_of_numbers_hold_and_those_of_texts_are_refused() {
        let text = GOOD.replacen("type = \"integer\"", "type = \"number\"", 1);
        let port = Manifest::parse(text.as_bytes()).unwrap().parameters["port"].clone();
        assert!(port.parse("65535").is_ok() && port.parse("0.5").is_ok());
        for outside in ["-0.5", "65535.5", "nan", "inf"] {
            assert!(port.parse(outside).unwrap_err().contains("is not in 0 to 65535"), "{outside}");
        }
        let text = GOOD.replacen(
            "type = \"integer\"\n        default = 80",
            "type = \"text\"\n        default = \"\"",
            1,
        );
        let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 15: parameters.port.min: a text has no limits: remove it"), "{error}");
    }

    /// Every key and type that the parser knows is in the reference, and the reference's example is good.
    #[test]
    fn the_reference_is_whole() {
        let page = include_str!("../../../../docs/manifest.md");
        let example = page.split("```toml\n").nth(1).and_then(|t| t.split("```").next()).unwrap();
        Manifest::parse(example.as_bytes()).unwrap();
        let mut known = 0;
        for (old, new) in [
            ("abi = 1", "abi = 1\nx = 1"),
            ("[needs]", "[needs]\nx = 1"),
            ("[limits]", "[limits]\nx = 1"),
            ("min = 2", "x = 2"),
            ("description = \"A host,", "x = \"A host,"),
            ("{ name = \"src\"", "{ x = 1, name = \"src\""),
            ("type = \"integer\"", "type = \"x\""),
            ("type = \"ip\"", "type = \"x\""),
            ("x = \"ts_ns\"", "z = 1"),
            ("kind = \"events\"", "kind = \"x\""),
            ("[[plot]]", "[[queues]]\nx = 1\n[[plot]]"),
            ("[[plot]]", "[[channels]]\nx = 1\n[[plot]]"),
            ("[[plot]]", "[[services]]\nx = 1\n[[plot]]"),
            ("[[plot]]", "[[shared]]\nx = 1\n[[plot]]"),
            ("[[plot]]", "[[shared]]\nname = \"a\"\nbytes = 1\naccess = \"x\"\n[[plot]]"),
        ] {
            let text = example.replacen(old, new, 1);
            assert_ne!(text, example, "{old}");
            let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
            let (_, keys) = error.rsplit_once("expected ").unwrap();
            for key in keys.split('`').skip(1).step_by(2) {
                assert!(page.contains(&format!("`{key}`")), "{key}: {error}");
                known += 1;
            }
        }
        assert_eq!(known, 18 + 3 + 3 + 5 + 3 + 6 + 5 + 13 + 13 + 4 + 4 + 6 + 2 + 4 + 2);
    }

    #[test]
    fn a_state_has_a_version_and_a_size_that_fits() {
        let with = |state: &str| Manifest::parse(format!("{GOOD}    [state]\n    {state}\n").as_bytes());
        let most = crate::layout::MAX_DATA;
        assert_eq!(with("version = 3\n    max = 64").unwrap().state, Some(State { version: 3, max: 64 }));
        assert!(with(&format!("version = 0\n    max = {most}")).is_ok());
        for (state, said) in [
            ("version = 1\n    max = 0".to_owned(), "line 23: state.max: 0 is not in 1 to"),
            (format!("version = 1\n    max = {}", most + 1), "line 23: state.max"),
            ("version = -1\n    max = 1".to_owned(), "invalid value"),
            ("version = 1".to_owned(), "add it, for example max = 65_536"),
        ] {
            let error = with(&state).unwrap_err().to_string();
            assert!(error.contains(said), "{state}: {error}");
        }
        let ports = GOOD.replacen(
            "[parameters.port]",
            "[state]\nversion = 1\nmax = 1\n[ports]\n[parameters.port]",
            1,
        );
        let error = Manifest::parse(ports.as_bytes()).unwrap_err().to_string();
        assert!(
            error.contains("state: a module with ports keeps no state: remove one of the two"),
            "{error}"
        );
    }

    #[test]
    fn durations() {
        assert_eq!(duration_ns("250ms"), Ok(250_000_000));
        assert_eq!(duration_ns("1.5s"), Ok(1_500_000_000));
        assert!(duration_ns("10").is_err() && duration_ns("s").is_err() && duration_ns("9e99h").is_err());
    }
}
