//! Everyday questions and the modules that answer them, for the help of `flame run` and the README.

/// Questions, and the command after `flame run` that answers each.
pub const QUESTIONS: [(&str, &str); 10] = [
    ("which names do clients ask for, and who answers?", "dns -r FILE --expose payload:4096"),
    ("which TLS and QUIC servers do clients reach?", "tls -r FILE --expose payload:4096"),
    ("which pages are fetched, with which status?", "http -r FILE --expose payload:4096"),
    ("what is sent again, lost, refused, slow?", "tcp -r FILE"),
    ("who sends most, per second?", "talkers -r FILE --interval 1s"),
    ("who scans hosts or ports?", "scan -r FILE"),
    ("who talks to whom, how much?", "flow -r FILE"),
    ("how much of each protocol?", "count -r FILE"),
    ("how long are round trips?", "rtt -r FILE --plot term"),
    ("which packets match these rules?", "ids -r FILE --expose all --set ids.rules=@RULES"),
];

/// Returns them as text for the end of the help.
pub fn text() -> String {
    let lines = QUESTIONS.map(|(question, command)| format!("  {question}\n          flame run {command}\n"));
    format!("Questions that the standard modules answer:\n{}", lines.concat())
}
