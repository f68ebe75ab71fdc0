//! From modules and what their holders present to a run: the one place where policy, credential, compiler and
//! audit log meet.
//!
//! ```text
//! Submission → examine → Node::admit → install → audit → Built { plan, meters } → flame_worker::Run
//! ```
//!
//! [`build`] makes the plan. Without a [`Node`] modules run as the operator's own. A [`Watch`] holds the
//! grants of a run that goes on against the policy, and evicts modules that lost theirs. What the client does
//! with a credential's key, and how files are found, is the client's: the node sees a challenge answered,
//! never the key.
#![forbid(unsafe_code)]

mod build;
mod error;
mod node;
mod record;
mod watch;

pub use build::{Built, Note, RunRequest, Submission, build};
pub use error::NodeError;
pub use node::{AdmittedModule, Holder, Node, check_viewable};
pub use record::Entered;
pub use watch::Watch;
