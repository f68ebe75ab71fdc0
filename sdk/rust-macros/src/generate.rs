//! The items of a manifest as text.

use crate::names::{camel, field};
use flame_abi::manifest::{Access, Column, ColumnType, Manifest, Parameter, ParameterType, Shared, Table};
use flame_abi::output::MAX_PAYLOAD;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The attributes of every row type.
const DERIVE: &str = "#[derive(Clone, Copy, Debug, PartialEq)]";

pub fn items(manifest: &Manifest) -> Result<String, String> {
    let mut taken = BTreeSet::new();
    let mut text = String::new();
    if !manifest.parameters.is_empty() {
        taken.insert("Params".to_owned());
        text += &params(manifest)?;
    }
    for (number, table) in manifest.tables.iter().enumerate() {
        let place = format!("tables.{}", table.name);
        let name = unique(&mut taken, camel(&table.name), &place)?;
        for column in table.columns.iter().filter(|c| c.kind == ColumnType::Enum) {
            let place = format!("{place}.{}", column.name);
            let name = unique(&mut taken, enum_name(&name, column), &place)?;
            text += &words(&name, column, &place)?;
        }
        text += &row(&name, number, table)?;
    }
    if !manifest.queues.is_empty() {
        let all = manifest.queues.iter().map(|q| (&q.name, &q.description));
        text += &numbers(&mut taken, ("Queue", "queues", "of the event queues, as in `Batch::queue`"), all)?;
    }
    if !manifest.channels.is_empty() {
        let all = manifest.channels.iter().map(|c| (&c.name, &c.description));
        text += &numbers(&mut taken, ("Channel", "channels", "of the channels, for `Out::send_on`"), all)?;
    }
    for (entries, names) in [
        (&manifest.services, ("Service", "services", "of the services, as in `Request::service`")),
        (&manifest.uses, ("Use", "uses", "of the services that it calls, for `Out::call`")),
    ] {
        if !entries.is_empty() {
            text += &numbers(&mut taken, names, entries.iter().map(|s| (&s.name, &s.description)))?;
        }
    }
    if !manifest.shared.is_empty() {
        text += &areas(&mut taken, &manifest.shared)?;
    }
    Ok(text)
}

/// Returns the shared areas as constants of a type, of which only those that the module writes have setters.
fn areas(types: &mut BTreeSet<String>, areas: &[Shared]) -> Result<String, String> {
    let name = unique(types, "Shared".to_owned(), "shared")?;
    let mut taken = BTreeSet::new();
    let mut text = doc("The areas of memory that the module shares with others.");
    let _ = write!(text, "pub struct {name};\n#[allow(dead_code)]\nimpl {name} {{\n");
    for (number, area) in areas.iter().enumerate() {
        let upper = area.name.to_uppercase().replace('-', "_");
        let constant = unique(&mut taken, upper, &format!("shared.{}", area.name))?;
        let access = if area.access == Access::Write { "Write" } else { "Read" };
        let (about, kind) =
            (doc(&area.description), format!("::flame_module::SharedArea<::flame_module::{access}>"));
        let _ = writeln!(
            text,
            "    {about}    pub const {constant}: {kind} =
        ::flame_module::SharedArea::of_manifest({:?}, {number}, {});",
            area.name, area.bytes
        );
    }
    text += "}\n";
    Ok(text)
}

/// Returns the numbers of the entries of a table, with their names and descriptions, as constants of a type.
fn numbers<'a>(
    types: &mut BTreeSet<String>,
    (name, table, about): (&str, &str, &str),
    entries: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<String, String> {
    let name = unique(types, name.to_owned(), table)?;
    let mut taken = BTreeSet::new();
    let mut text = doc(&format!("The numbers {about}."));
    let _ = write!(text, "pub struct {name};\n#[allow(dead_code)]\nimpl {name} {{\n");
    for (number, (entry, description)) in entries.enumerate() {
        let upper = entry.to_uppercase().replace('-', "_");
        let constant = unique(&mut taken, upper, &format!("{table}.{entry}"))?;
        let about = doc(description);
        let _ = writeln!(text, "    {about}    pub const {constant}: ::core::primitive::u16 = {number};");
    }
    text += "}\n";
    Ok(text)
}

fn unique(taken: &mut BTreeSet<String>, name: String, place: &str) -> Result<String, String> {
    match taken.insert(name.clone()) {
        true => Ok(name),
        false => Err(format!("{place}: {name} is in Rust what another name of this manifest is: change one")),
    }
}

fn enum_name(table: &str, column: &Column) -> String {
    table.to_owned() + &camel(&column.name)
}

/// Returns `text` as a doc comment, without characters that could end it.
fn doc(text: &str) -> String {
    format!("#[doc = {text:?}]\n")
}

fn column_doc(column: &Column) -> String {
    match (column.kind, &column.unit) {
        (ColumnType::Time, _) => doc("Nanoseconds since 1970."),
        (ColumnType::Duration, _) => doc("Nanoseconds."),
        (_, Some(unit)) => doc(unit),
        _ => String::new(),
    }
}

/// Returns the Rust type of a column and its size in bytes, or `None` if the size differs between rows.
fn column_type(table: &str, column: &Column) -> (String, Option<usize>) {
    let (name, bytes) = match column.kind {
        ColumnType::Bool => ("::core::primitive::bool", 1),
        ColumnType::U8 => ("::core::primitive::u8", 1),
        ColumnType::U16 => ("::core::primitive::u16", 2),
        ColumnType::U32 => ("::core::primitive::u32", 4),
        ColumnType::U64 | ColumnType::Time => ("::core::primitive::u64", 8),
        ColumnType::I64 | ColumnType::Duration => ("::core::primitive::i64", 8),
        ColumnType::F64 => ("::core::primitive::f64", 8),
        ColumnType::Mac => ("[::core::primitive::u8; 6]", 6),
        ColumnType::Ip => ("::flame_module::Ip", 17),
        ColumnType::Text => return ("&'a ::core::primitive::str".to_owned(), None),
        ColumnType::Enum => return (enum_name(table, column), Some(1)),
    };
    (name.to_owned(), Some(bytes))
}

/// Returns an enum with the words of a column.
fn words(name: &str, column: &Column, place: &str) -> Result<String, String> {
    let mut taken = BTreeSet::new();
    let mut text = format!("{DERIVE}\n#[derive(Eq, PartialOrd, Ord)]\n#[repr(u8)]\npub enum {name} {{\n");
    let mut all = String::new();
    for word in &column.values {
        let variant = unique(&mut taken, camel(word), &format!("{place}: value {word:?}"))?;
        let _ = writeln!(text, "    {}    {variant},", doc(word));
        let _ = write!(all, "Self::{variant}, ");
    }
    let _ = write!(
        text,
        "}}\nimpl {name} {{
    /// Every word, in the order of their numbers.
    #[allow(dead_code)]
    pub const ALL: [Self; {}] = [{all}];
}}\n",
        column.values.len()
    );
    Ok(text)
}

/// Returns the struct of a table's rows.
fn row(name: &str, number: usize, table: &Table) -> Result<String, String> {
    let columns: Vec<_> = table.columns.iter().map(|c| (c, column_type(name, c))).collect();
    let mut taken = BTreeSet::new();
    for (column, _) in &columns {
        unique(&mut taken, field(&column.name), &format!("tables.{}.{}", table.name, column.name))?;
    }
    let generics = if columns.iter().any(|(_, (_, bytes))| bytes.is_none()) { "<'a>" } else { "" };
    let mut text = doc(&table.description);
    let _ = writeln!(text, "{DERIVE}\npub struct {name}{generics} {{");
    for (column, (kind, _)) in &columns {
        let _ = writeln!(text, "    {}    pub {}: {kind},", column_doc(column), field(&column.name));
    }
    // The columns of fixed size and the lengths of texts, in bytes.
    let fixed: usize = columns.iter().map(|(_, (_, bytes))| bytes.unwrap_or(2)).sum();
    let mut size = fixed.to_string();
    let longest = if generics.is_empty() { fixed } else { MAX_PAYLOAD };
    let (mut put, mut read) = (String::new(), String::new());
    // The offsets of columns after the first text are not known at compile time.
    let mut at = 0;
    let mut moved = false;
    for (i, (column, (_, bytes))) in columns.iter().enumerate() {
        let field = field(&column.name);
        let place = if moved { format!("at + {at}") } else { at.to_string() };
        let Some(bytes) = bytes else {
            let _ = write!(size, " + ::flame_module::record::text_len(self.{field})");
            let _ = writeln!(
                put,
                "        let at = ::flame_module::record::put_text(to, {place}, self.{field});"
            );
            let _ = writeln!(read, "        let (c{i}, at) = ::flame_module::record::text(from, {place})?;");
            (at, moved) = (0, true);
            continue;
        };
        let end = if moved { format!("at + {}", at + bytes) } else { (at + bytes).to_string() };
        let one = format!("to[{place}]");
        let _ = match column.kind {
            ColumnType::Bool | ColumnType::Enum => {
                writeln!(put, "        {one} = self.{field} as ::core::primitive::u8;")
            }
            ColumnType::U8 => writeln!(put, "        {one} = self.{field};"),
            ColumnType::Mac => writeln!(put, "        to[{place}..{end}].copy_from_slice(&self.{field});"),
            ColumnType::Ip => writeln!(
                put,
                "        {one} = self.{field}.family;\n        to[{place} + 1..{end}].copy_from_slice(&self.{field}.bytes);"
            ),
            _ => writeln!(put, "        to[{place}..{end}].copy_from_slice(&self.{field}.to_le_bytes());"),
        };
        let array = format!("*from.get({place}..{end})?.first_chunk()?");
        let found = match column.kind {
            ColumnType::Bool => format!("{array} != [0u8]"),
            ColumnType::Enum => {
                let kind = enum_name(name, column);
                format!(
                    "{{ let [n]: [::core::primitive::u8; 1] = {array}; *{kind}::ALL.get(usize::from(n))? }}"
                )
            }
            ColumnType::Mac => array,
            ColumnType::Ip => format!("::flame_module::Ip::from_bytes({array})"),
            _ => format!("{}::from_le_bytes({array})", column_type(name, column).0),
        };
        let _ = writeln!(read, "        let c{i} = {found};");
        at += bytes;
    }
    let fields: String =
        columns.iter().enumerate().map(|(i, (c, _))| format!("{}: c{i}, ", field(&c.name))).collect();
    // The length of the row is checked once, not for each column.
    let whole = if moved {
        String::new()
    } else {
        format!(
            "        let to: &mut [::core::primitive::u8; {fixed}] = match to.first_chunk_mut() {{ Some(to) => to, None => return }};\n"
        )
    };
    let _ = write!(
        text,
        "}}
impl<'a> ::flame_module::Record<'a> for {name}{generics} {{
    const TABLE: ::core::primitive::u16 = {number};
    const MAX_SIZE: ::core::primitive::usize = {longest};

    #[inline]
    fn size(&self) -> ::core::primitive::usize {{
        {size}
    }}

    #[inline]
    fn put(&self, to: &mut [::core::primitive::u8]) {{
{whole}{put}    }}

    fn read(from: &'a [::core::primitive::u8]) -> ::core::option::Option<Self> {{
{read}        ::core::option::Option::Some(Self {{ {fields}}})
    }}
}}\n"
    );
    Ok(text)
}

/// Returns the Rust type of a parameter and the expression that reads it.
fn parameter_type(parameter: &Parameter) -> (&'static str, &'static str) {
    match (parameter.kind, parameter.min, parameter.max) {
        // No value is lost, because the host only passes values in this range.
        (ParameterType::Integer, Some(0..), Some(max)) => match max {
            ..=0xff => ("::core::primitive::u8", "integer"),
            0x100..=0xffff => ("::core::primitive::u16", "integer"),
            0x1_0000..=0xffff_ffff => ("::core::primitive::u32", "integer"),
            _ => ("::core::primitive::u64", "integer"),
        },
        (ParameterType::Integer, ..) => ("::core::primitive::i64", "integer"),
        (ParameterType::Duration, ..) => ("::core::primitive::u64", "duration_ns"),
        (ParameterType::Number, ..) => ("::core::primitive::f64", "number"),
        (ParameterType::Boolean, ..) => ("::core::primitive::bool", "boolean"),
        (ParameterType::Text, ..) if parameter.max.is_some() => ("&'a ::core::primitive::str", "large_text"),
        (ParameterType::Text, ..) => ("&'a ::core::primitive::str", "text"),
    }
}

fn params(manifest: &Manifest) -> Result<String, String> {
    let is_text = |p: &Parameter| p.kind == ParameterType::Text;
    let generics = if manifest.parameters.values().any(is_text) { "<'a>" } else { "" };
    let mut text =
        format!("/// The parameters.\n{DERIVE}\n#[allow(dead_code)]\npub struct Params{generics} {{\n");
    let (mut reads, mut defaults) = (String::new(), String::new());
    let mut taken = BTreeSet::new();
    for (key, parameter) in &manifest.parameters {
        let place = format!("parameters.{key}");
        let field = unique(&mut taken, field(key), &place)?;
        let (kind, get) = parameter_type(parameter);
        let nanoseconds = if parameter.kind == ParameterType::Duration { ", in nanoseconds" } else { "" };
        let _ = writeln!(
            text,
            "    {}    pub {field}: {kind},",
            doc(&format!("{}{nanoseconds}", parameter.description))
        );
        let cast = if get == "integer" { format!(" as {kind}") } else { String::new() };
        let _ = writeln!(reads, "            {field}: init.{get}({key:?}){cast},");
        let bytes = parameter.encode(&parameter.default).map_err(|e| format!("{place}.default: {e}"))?;
        let _ = writeln!(defaults, "        ({key:?}, &{bytes:?}),");
    }
    let _ = write!(
        text,
        "}}
impl Params{} {{
    /// The values that the host passes for parameters that are not set, by name: for tests.
    #[allow(dead_code)]
    pub const DEFAULTS: &'static [(&'static ::core::primitive::str, &'static [::core::primitive::u8])] = &[
{defaults}    ];
}}
impl<'a> ::core::convert::From<&::flame_module::Init<'a>> for Params{generics} {{
    fn from(init: &::flame_module::Init<'a>) -> Self {{
        Self {{
{reads}        }}
    }}
}}\n",
        if generics.is_empty() { "" } else { "<'_>" }
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tables: &str) -> Result<String, String> {
        let text = format!("abi = 1\nname = \"x\"\nversion = \"1\"\ndescription = \"\"\n{tables}");
        items(&Manifest::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn names_that_become_one_in_rust_are_refused() {
        let column = "columns = [{ name = \"a\", type = \"u8\" }]";
        let twice = format!("[[tables]]\nname = \"a-b\"\n{column}\n[[tables]]\nname = \"a_b\"\n{column}");
        assert!(of(&twice).unwrap_err().contains("tables.a_b: AB is in Rust"));
        let params = "[parameters.a]\ntype = \"integer\"\ndefault = 1\ndescription = \"\"";
        let table = format!("{params}\n[[tables]]\nname = \"params\"\n{column}");
        assert!(of(&table).unwrap_err().contains("tables.params"));
        let values = "columns = [{ name = \"a\", type = \"enum\", values = [\"x y\", \"x-Y\"] }]";
        assert!(of(&format!("[[tables]]\nname = \"t\"\n{values}")).unwrap_err().contains("value \"x-Y\""));
    }

    #[test]
    fn a_shared_area_has_setters_if_the_module_writes_it() {
        let area = |name: &str, access: &str| {
            format!("[[shared]]\nname = \"{name}\"\nbytes = 9\naccess = \"{access}\"\n")
        };
        let made = of(&(area("own-routes", "write") + &area("hosts", "read"))).unwrap();
        for (constant, access, rest) in
            [("OWN_ROUTES", "Write", "(\"own-routes\", 0, 9)"), ("HOSTS", "Read", "(\"hosts\", 1, 9)")]
        {
            let kind = format!("pub const {constant}: ::flame_module::SharedArea<::flame_module::{access}>");
            assert!(made.contains(&kind) && made.contains(rest), "{made}");
        }
        let twice = area("a-b", "read") + &area("a_b", "read");
        assert!(of(&twice).unwrap_err().contains("shared.a_b: A_B is in Rust"));
    }

    #[test]
    fn a_parameter_has_the_smallest_type_that_holds_it() {
        let text = |limits: &str| {
            format!("[parameters.n]\ntype = \"integer\"\ndefault = 1\n{limits}\ndescription = \"\"")
        };
        for (limits, kind) in [
            ("min = 0\nmax = 255", "u8"),
            ("min = 1\nmax = 256", "u16"),
            ("min = 0\nmax = 4194304", "u32"),
            ("min = 0\nmax = 4294967296", "u64"),
            ("min = 0", "i64"),
            ("min = -1\nmax = 7", "i64"),
        ] {
            let made = of(&text(limits)).unwrap();
            assert!(made.contains(&format!("pub n: ::core::primitive::{kind},")), "{limits}: {made}");
        }
    }
}
