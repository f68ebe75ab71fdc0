use std::fmt;

/// An error at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `file:line`.
    pub landmark: String,
    pub text: String,
}

/// All errors of a configuration, in order of their discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    messages: Vec<Message>,
    omitted: usize,
}

/// Errors beyond this number are only counted.
const MOST: usize = 100;
/// Characters of a message or place that are kept: a text may repeat names of many megabytes.
const LONGEST: usize = 2000;

/// Returns a text, or its beginning if it is long.
fn shortened(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

impl Errors {
    /// Adds a message, or only counts it if there are 100 already.
    pub fn add(&mut self, landmark: impl Into<String>, text: impl Into<String>) {
        match self.messages.len() < MOST {
            true => self.add_limit(landmark, text),
            false => self.omitted += 1,
        }
    }

    /// Adds the error that ended the reading, which is kept even if many came before it.
    pub fn add_limit(&mut self, landmark: impl Into<String>, text: impl Into<String>) {
        let (landmark, text) = (shortened(landmark.into()), shortened(text.into()));
        self.messages.push(Message { landmark, text });
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, m) in self.messages.iter().enumerate() {
            write!(f, "{}{}: {}", if i > 0 { "\n" } else { "" }, m.landmark, m.text)?;
        }
        if self.omitted > 0 {
            write!(f, "\n(and {} more errors)", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
