use crate::exit::Status;
use flame_api::{Code, Problem};

/// The error that ends a command. Its message states place and remedy.
pub type Error = Box<dyn std::error::Error>;

/// Returns the exit status of a command that ends with an error.
pub fn status(error: &(dyn std::error::Error + 'static)) -> Status {
    match error.downcast_ref::<Problem>().map(|problem| problem.code) {
        Some(Code::Forbidden | Code::Unauthenticated) => Status::Denied,
        _ => Status::Failed,
    }
}
