//! Errors as problems of the API: a cause and a remedy.

use crate::source::SourceRunError;
use crate::store::StoreError;
use flame_api::{Code, Problem};
use flame_compile::{CompileError, InstallError};
use flame_node::NodeError;
use flame_worker::RunError;

pub fn problem(error: &StoreError) -> Problem {
    Problem::new(Code::Storage, format!("the change was not stored: {error}"), error.remedy())
}

/// Returns the problem of a module that is not run.
pub fn of_node(error: &NodeError) -> Problem {
    let inner = match error {
        NodeError::Module { source, .. } => source,
        error => error,
    };
    let text = inner.to_string();
    match inner {
        NodeError::Denied(_) | NodeError::Credential(_) => Problem::new(
            Code::Forbidden,
            text,
            "ask the one who is named for a wider credential, or for less",
        ),
        NodeError::View { .. } | NodeError::Manifest(_) => {
            Problem::new(Code::Refused, text, "change the field that is named")
        }
        NodeError::UnusedSettings(_) => Problem::new(Code::Invalid, text, "name settings of this module"),
        NodeError::Compile(CompileError::Stopped { .. }) => Problem::new(
            Code::Refused,
            text,
            "make the module smaller or simpler; `flame check` shows what it costs",
        ),
        NodeError::Compile(CompileError::Cache(_) | CompileError::Unnoted { .. })
        | NodeError::Audit(_)
        | NodeError::Quota(_) => {
            Problem::new(Code::Storage, text, "free space on the node's disks, and make its folders writable")
        }
        NodeError::Compile(_) => {
            Problem::new(Code::Refused, text, "`flame check MODULE` shows the reason in full")
        }
        NodeError::Install(InstallError::Compile(CompileError::Cache(_) | CompileError::Unnoted { .. })) => {
            Problem::new(Code::Storage, text, "free space on the node's disks, and make its folders writable")
        }
        NodeError::Install(_) => {
            Problem::new(Code::Refused, text, "`flame check MODULE` shows the reason in full")
        }
        NodeError::Policy(_) | NodeError::NoKey | NodeError::Challenge(_) => {
            Problem::new(Code::Unavailable, text, "the operator has to mend the node's policy")
        }
        NodeError::Module { .. } => Problem::new(Code::Refused, text, "see the reason"),
    }
}

/// Returns the problem of a module that the workers did not take.
pub fn of_source(error: &SourceRunError) -> Problem {
    let text = error.to_string();
    match error {
        SourceRunError::Down { .. } | SourceRunError::Source(_) | SourceRunError::Thread(_) => Problem::new(
            Code::Unavailable,
            text,
            "the source is opened again every second: repeat the request",
        ),
        SourceRunError::Run(RunError::Ended | RunError::Broken) => Problem::new(
            Code::Unavailable,
            text,
            "the source is opened again every second: repeat the request",
        ),
        SourceRunError::Run(_) => {
            Problem::new(Code::Refused, text, "change what is named, and install it again")
        }
    }
}
