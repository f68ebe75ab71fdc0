//! The preparation of runs from modules and their holders' credentials, the only place where policy,
//! credential, compiler and audit log meet.
//!
//! ```text
//! Submission → examine → Applicant::admit → install → audit → Built { plan, meters } → flame_worker::Run
//! ```
//!
//! [`build()`] creates the plan, under the policy of a [`Node`] for what is [`Presented`] to it. Without a
//! node, modules run as the operator's own. A [`Watch`] compares the grants of a continuing run with the
//! policy, and evicts modules that lost theirs. The use of a credential's key and the search for files are
//! left to the client: the node sees an answered challenge, never the key.
#![forbid(unsafe_code)]

mod applicant;
mod build;
mod elements;
mod error;
mod node;
mod place;
mod presented;
mod record;
mod watch;

pub use applicant::Applicant;
pub use build::{Built, Note, RunRequest, Submission, build, build_unentered};
pub use elements::{Client, Elements, RecordCutOff};
pub use error::NodeError;
pub use node::{AdmittedModule, Node, check_viewable};
pub use place::place_of;
pub use presented::{Holder, Possession, Presented};
pub use record::Entered;
pub use watch::Watch;
