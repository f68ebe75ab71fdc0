//! The protocols of a fleet as types without clock, socket, thread or file: time and bytes are passed in.
#![forbid(unsafe_code)]

pub mod agent;
pub mod archive;
pub mod condition;
pub mod enrolment;
pub mod message;
pub mod publisher;
pub mod rollout;
pub mod signed;
pub mod subject;

pub use agent::{Age, Agent, Alone, Clock, Member, Refusal, Stored, Target};
pub use archive::{Commit, Known, Loss, Progress, Publish, Verdict, Writer};
pub use condition::{Condition, ConditionError, Label, Labels};
pub use message::{Mark, Message, Missing};
pub use publisher::{Forked, Publisher};
pub use signed::{
    Action, Beacon, Delegated, Delegation, Ed25519, Intent, Key, Revocations, Secret, SignedError, Statement,
    Verify,
};
pub use subject::{Subject, SubjectError};
