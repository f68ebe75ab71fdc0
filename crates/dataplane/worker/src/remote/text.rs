//! Texts of faults of modules under a grant: a process may be in the hands of its module, and no text that it
//! composes leaves.

/// The calls of a module, as `flame_run::Fault` names them.
const CALLS: [&str; 10] = [
    "instantiation",
    "flame_init",
    "flame_batch",
    "flame_tick",
    "flame_end",
    "flame_message",
    "flame_rest",
    "flame_export",
    "flame_import",
    "flame_pressure",
];

/// The beginnings of its descriptions, and what is shown for each.
const KINDS: [(&str, &str); 13] = [
    ("trap: ", "trap"),
    ("cut off: used up its budget", "cut off: used up its budget"),
    ("cut off: after the run was stopped", "cut off: after the run was stopped it used up its budget"),
    ("interrupted: ", "interrupted: it still ran after the run was stopped"),
    ("sent more than ", "sent more messages in one call than allowed"),
    ("bound violated: ", "bound violated: it ran past its deadline in code that no counter ends"),
    ("could not be started", "could not be started"),
    ("its output does not fit", "its output does not fit its manifest"),
    ("its output lies outside", "its output lies outside its memory or is too large"),
    ("asked for more than ", "asked for more further calls than allowed"),
    ("asked for flame_rest", "asked for flame_rest, which it does not export"),
    ("asked for further calls", "asked for further calls: a state is one blob"),
    ("returned a value", "returned a value that has no meaning"),
];

/// Returns the text for a fault that a process reports.
pub(super) fn of_grant(reported: &str) -> String {
    let (call, rest) = reported.split_once(": ").unwrap_or_default();
    let call = CALLS.iter().find(|name| **name == call);
    let kind = KINDS.iter().find(|(begin, _)| rest.starts_with(begin));
    match (call, kind) {
        (Some(call), Some((_, kind))) => format!("{call}: {kind}"),
        _ => "a fault that its process did not describe".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_texts_pass() {
        assert_eq!(of_grant("flame_batch: trap: secret, in function 7"), "flame_batch: trap");
        let budget = "flame_tick: cut off: used up its budget of 12345";
        assert_eq!(of_grant(budget), "flame_tick: cut off: used up its budget");
        for other in ["secret: trap: x", "flame_batch: secret", "secret", ""] {
            assert_eq!(of_grant(other), "a fault that its process did not describe");
        }
    }
}
