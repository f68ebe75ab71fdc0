//! Sessions that were refused. A client learns less about them than the log.

/// The sessions that were refused since the log was last written. Their number does not lengthen the log: it
/// has one line for all of them.
#[derive(Default)]
pub struct Refusals {
    count: u64,
    last: String,
}

impl Refusals {
    /// Adds a refusal, with the text for the operator.
    pub fn add(&mut self, peer: &str, reason: &str) {
        self.count += 1;
        self.last = format!("{peer}: {reason}");
    }

    /// Takes out the line for the log, if there is one.
    pub fn take(&mut self) -> Option<String> {
        let Self { count, last } = std::mem::take(self);
        match count {
            0 => None,
            1 => Some(format!("a session was refused: {last}")),
            n => Some(format!("{n} sessions were refused, the last one: {last}")),
        }
    }
}
