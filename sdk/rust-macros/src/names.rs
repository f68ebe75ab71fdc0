//! Names in the manifest as Rust identifiers.

/// Keywords that `r#` makes valid identifiers.
const KEYWORDS: [&str; 46] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where",
];

/// Returns the name of a field: `-` becomes `_`.
pub fn field(name: &str) -> String {
    let name = name.replace('-', "_");
    match name.as_str() {
        // These are not identifiers even with `r#`.
        "self" | "super" | "crate" => format!("{name}_"),
        "while" | "yield" => format!("r#{name}"),
        plain if KEYWORDS.contains(&plain) => format!("r#{name}"),
        _ => name,
    }
}

/// Returns the name of a type or variant: `tcp_syn` becomes `TcpSyn`. A word of an enum may be any text, so
/// characters that an identifier cannot contain are left out.
pub fn camel(name: &str) -> String {
    let mut camel = String::new();
    for word in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        camel.extend(letters);
    }
    match camel.as_str() {
        "Self" => "Self_".to_owned(),
        c if c.is_empty() || c.starts_with(|c: char| c.is_ascii_digit()) => format!("N{c}"),
        _ => camel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_manifest_is_one_of_rust() {
        let fields = ["end_ns", "tcp-flags", "type", "self", "yield", "union"].map(field);
        assert_eq!(fields, ["end_ns", "tcp_flags", "r#type", "self_", "r#yield", "union"]);
        let types = ["tcp_syn", "a-b", "self", "4in6", "", "HTTP/1.1"].map(camel);
        assert_eq!(types, ["TcpSyn", "AB", "Self_", "N4in6", "N", "HTTP11"]);
    }
}
