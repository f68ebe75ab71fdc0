//! The line of a key in the text of a manifest.

use toml::de::{DeTable, DeValue};

/// A step of the path to a key: into a table, or into an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Returns the line, from 1, of the key at the end of `path`, or of the last step that exists.
pub fn line(text: &str, path: &[Step<'_>]) -> usize {
    let Ok(table) = DeTable::parse(text) else { return 1 };
    let mut at = table.span().start;
    let mut table = Some(table.get_ref());
    let mut array = None;
    for step in path {
        let found = match step {
            Step::Key(key) => table
                .and_then(|t| t.iter().find(|(k, _)| k.get_ref() == key))
                .map(|(key, value)| (key.span().start, value.get_ref())),
            Step::Index(index) => array
                .and_then(|a: &toml::de::DeArray<'_>| a.get(*index))
                .map(|value| (value.span().start, value.get_ref())),
        };
        let Some((place, value)) = found else { break };
        at = place;
        table = if let DeValue::Table(table) = value { Some(table) } else { None };
        array = if let DeValue::Array(array) = value { Some(array) } else { None };
    }
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Index, Key};

    #[test]
    fn lines_are_those_of_the_keys() {
        let text = "abi = 1\n\n[parameters.port]\ntype = \"x\"\nmin = 1\n\n[[tables]]\nname = \"a\"\ncolumns = [\n  { name = \"x\" },\n  { name = \"y\" },\n]\n[[tables]]\nname = \"b\"\ncolumns = []\n";
        let tables = |rest: &[Step<'static>]| [&[Key("tables")], rest].concat();
        for (path, expected) in [
            (vec![Key("abi")], 1),
            (vec![Key("parameters"), Key("port"), Key("min")], 5),
            // A missing key has the line of its table.
            (vec![Key("parameters"), Key("port"), Key("max")], 3),
            (tables(&[Index(0), Key("columns"), Index(1), Key("name")]), 11),
            (tables(&[Index(1)]), 13),
            (tables(&[Index(1), Key("columns"), Index(0)]), 15),
            (vec![Key("nothing")], 1),
        ] {
            assert_eq!(line(text, &path), expected, "{path:?}");
        }
        assert_eq!(line("= no toml", &[Key("abi")]), 1);
    }
}
