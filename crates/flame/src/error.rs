/// The error that ends a command. Its message states place and remedy.
pub type Error = Box<dyn std::error::Error>;
