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

impl Errors {
    pub fn add(&mut self, landmark: impl Into<String>, text: impl Into<String>) {
        match self.messages.len() < MOST {
            true => self.messages.push(Message { landmark: landmark.into(), text: text.into() }),
            false => self.omitted += 1,
        }
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
