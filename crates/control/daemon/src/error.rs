//! Errors as problems of the API: a cause and a remedy.

use crate::source::SourceRunError;
use crate::store::StoreError;
use flame_api::{Code, Problem};
use flame_compile::{CompileError, InstallError};
use flame_node::NodeError;
use flame_worker::{LinkError, RunError};
use std::io::ErrorKind;

pub fn problem(error: &StoreError) -> Problem {
    let problem = Problem::new(Code::Storage, "the change was not stored", error.remedy());
    match error {
        // It names nothing of others.
        StoreError::Raced { .. } => Problem::new(Code::Conflict, error.to_string(), error.remedy()),
        _ => problem.with_detail(error.to_string()),
    }
}

/// Returns the problem of a module that is not run.
pub fn of_node(error: &NodeError) -> Problem {
    let inner = match error {
        NodeError::Module { source, .. } => source,
        error => error,
    };
    let text = inner.to_string();
    match inner {
        NodeError::Compile(error @ (CompileError::Spent { .. } | CompileError::Beyond { .. }))
        | NodeError::Install(InstallError::Compile(
            error @ (CompileError::Spent { .. } | CompileError::Beyond { .. }),
        )) => of_allowance(error),
        NodeError::Denied(_) | NodeError::Credential(_) => {
            denied(text, inner.operator(), "ask the named grantor for a wider credential, or request less")
        }
        NodeError::View { .. } | NodeError::Manifest(_) | NodeError::Misfit(_) => {
            Problem::new(Code::Refused, text, "change the field that is named")
        }
        NodeError::UnusedSettings(_) => Problem::new(Code::Invalid, text, "name settings of this module"),
        NodeError::Compile(CompileError::Stopped { .. }) => Problem::new(
            Code::Refused,
            text,
            "make the module smaller or simpler; `flame check` shows what it costs",
        ),
        // Space would not help.
        NodeError::Quota(e) if e.error.kind() == ErrorKind::InvalidData => Problem::new(
            Code::Storage,
            "the quotas of the credential are not known",
            "the operator finds the file, and a way to proceed, in the reason",
        )
        .with_detail(text),
        NodeError::Compile(CompileError::Cache(_) | CompileError::Unnoted { .. })
        | NodeError::Audit(_)
        | NodeError::Quota(_) => unwritable(text),
        NodeError::Compile(_) => {
            Problem::new(Code::Refused, text, "`flame check MODULE` shows the reason in full")
        }
        NodeError::Install(InstallError::Compile(CompileError::Cache(_) | CompileError::Unnoted { .. })) => {
            unwritable(text)
        }
        NodeError::Install(_) => {
            Problem::new(Code::Refused, text, "`flame check MODULE` shows the reason in full")
        }
        NodeError::Policy(_) | NodeError::NoKey | NodeError::Challenge(_) | NodeError::Random(_) => {
            Problem::new(
                Code::Unavailable,
                "the policy cannot be used",
                "the operator has to correct the node's policy",
            )
            .with_detail(text)
        }
        NodeError::Module { .. } => Problem::new(Code::Refused, text, "see the reason"),
    }
}

/// Returns the problem of a denial, with the text for the operator if it says more.
pub fn denied(public: String, operator: String, remedy: &str) -> Problem {
    let is_more = operator != public;
    let problem = Problem::new(Code::Forbidden, public, remedy);
    if is_more { problem.with_detail(operator) } else { problem }
}

/// Returns the problem of work for which the allowance of a credential does not suffice.
fn of_allowance(error: &CompileError) -> Problem {
    let larger = "ask for a credential with a larger allowance (compile)";
    match error {
        CompileError::Spent { spent, .. } if spent.wait.is_some() => {
            Problem::new(Code::TooMany, error.to_string(), format!("repeat the request then, or {larger}"))
        }
        error => {
            Problem::new(Code::Refused, error.to_string(), format!("make the module smaller, or {larger}"))
        }
    }
}

/// Returns the problem of files that cannot be written. They are named to the operator alone.
fn unwritable(text: String) -> Problem {
    let remedy = "free space on the node's disks, and make its folders writable";
    Problem::new(Code::Storage, "the node's files cannot be written", remedy).with_detail(text)
}

/// Returns the problem of a module that the workers did not take.
pub fn of_source(error: &SourceRunError) -> Problem {
    let text = error.to_string();
    match error {
        SourceRunError::Down { .. }
        | SourceRunError::Moved { .. }
        | SourceRunError::Source(_)
        | SourceRunError::Thread(_) => Problem::new(
            Code::Unavailable,
            "the source does not run",
            "the source is opened again every second: repeat the request",
        )
        .with_detail(text),
        SourceRunError::Run(RunError::Ended | RunError::Broken) => Problem::new(
            Code::Unavailable,
            text,
            "the source is opened again every second: repeat the request",
        ),
        SourceRunError::Run(RunError::Time(e)) => {
            let remedy = match e.kind() {
                ErrorKind::PermissionDenied => {
                    "the operator has to give the node CAP_SYS_NICE, or set scheduler = \"auto\" in [isolation]"
                }
                _ => "reserve less: the kernel keeps a part of each processor for what has no reservation",
            };
            Problem::new(Code::TooLarge, text, remedy)
        }
        // The sum has the reservations of others in it.
        SourceRunError::Run(RunError::Link(LinkError::Reserved { .. })) => Problem::new(
            Code::TooLarge,
            "the link has less bandwidth left than the module's channels reserve",
            "lower their rates, or ask the operator for more ([links] in node.toml)",
        )
        .with_detail(text),
        // It names a module of others.
        SourceRunError::Run(RunError::Service { service, .. }) => Problem::new(
            Code::Conflict,
            format!("the service {service:?} is offered already"),
            "remove the module that offers it, or offer a service of another name",
        )
        .with_detail(text),
        // They are about the module alone.
        SourceRunError::Run(
            RunError::View(_)
            | RunError::Load(_)
            | RunError::TooManyModules
            | RunError::Resolution { .. }
            | RunError::Memory(_)
            | RunError::Forwards(_)
            | RunError::Transformed(_)
            | RunError::Channel { .. }
            | RunError::Queue { .. }
            | RunError::Queues { .. }
            | RunError::Shares(_)
            | RunError::SharesAmong { .. },
        ) => Problem::new(Code::Refused, text, "change what is named, and install it again"),
        // They name files, interfaces and numbers of the node.
        SourceRunError::Run(
            RunError::Source(_)
            | RunError::Block(_)
            | RunError::Sink(_)
            | RunError::Sources { .. }
            | RunError::Duplicate(_)
            | RunError::Unknown(_)
            | RunError::Process(..)
            | RunError::NoProcess(_)
            | RunError::Thread(_)
            | RunError::Area(_)
            | RunError::Link(_),
        ) => Problem::new(
            Code::Unavailable,
            "the node cannot run the module now",
            "ask the operator, whose answer to the same request has the reason",
        )
        .with_detail(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_node_name_nothing_to_owners_of_modules() {
        let program = "/usr/libexec/flame-runner".to_owned();
        let fault = || std::io::Error::other("too many open files");
        for error in [RunError::Process(program.clone(), fault()), RunError::Thread(program.clone())] {
            let problem = of_source(&error.into());
            assert_eq!(problem.cause, "the node cannot run the module now");
            assert!(!problem.to_string().contains("flame-runner"), "{problem}");
            assert!(problem.for_operator().cause.contains("flame-runner"));
        }
        let problem = of_source(&RunError::Forwards("mine".to_owned()).into());
        assert!(problem.cause.starts_with("mine forwards packets"), "{problem}");
    }
}
