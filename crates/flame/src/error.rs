/// The error that a command ends with; its message has place and remedy.
pub type Error = Box<dyn std::error::Error>;
