//! The protocols of a fleet as types without clock, socket, thread or file: time and bytes are passed in.
//!
//! # Records
//!
//! Each table of a node has a [`Subject`] in a log and one [`Publisher`], which reads a spool
//! ([`flame_spool`]). A [`Message`] has a batch and the ranges of the spool's epochs. A [`Writer`] takes each
//! batch into the archive once, with its watermark in the same [`Commit`], and states it by a [`Mark`], at
//! which the spool is cut. *Acknowledged* means archived: the log may lose its disk.
//!
//! | promise | property of the simulation, and the rule that breaks it |
//! | --- | --- |
//! | what is cut from a spool is archived, or counted as lost to the row | `TheLogsWordCuts`, `DropsAreNotSaid` |
//! | no batch is archived twice | `AWriterForgetsItsWatermark`, `TwoWritersBothCommit` |
//! | batches of a subject are archived in order | `GapsAreTaken`, `EarlierEpochsAreIgnored` |
//! | the watermark of an epoch never falls | `TwoWritersBothCommit` |
//! | in the end, all is archived | `ARefusalIsPassedOver`, `NothingIsMissed` |
//!
//! The tests are `small_fleets_lose_nothing_and_archive_nothing_twice` and `a_thousand_nodes_lose_nothing`. A
//! node whose memory and files were both restored, and that starts again before the archive answers, may lose
//! batches that it took in between without a count.
//!
//! # Control
//!
//! A root signs a [`Delegation`] of the fleet's key, which signs [`Statement`]s: an [`Intent`] for each
//! target, the list of [`Revocations`], and a [`Beacon`] about each second. They come through a server that
//! may hold back, repeat and reorder them. The [`Agent`] of a node decides which intents it follows; the
//! node's own policy decides what runs of these. A [`rollout::Rollout`] decides how far an intent reaches.
//!
//! | promise | test |
//! | --- | --- |
//! | a statement is signed under this delegation of this fleet | `forged_statements_are_refused`, `a_statement_does_not_move_to_another_delegation` |
//! | what comes late or again changes nothing | `replayed_and_reordered_intents_change_nothing` |
//! | a clock that is set back makes nothing valid again | `intents_expire_and_a_clock_that_is_set_back_changes_nothing` |
//! | a module stops after its lease, and stays stopped at a start without contact | `leases_end_without_contact` |
//! | a node that was away applies the revocations first | `a_node_that_was_away_has_the_revocations_first` |
//! | keys rotate while nodes are away; a lost one ends with the next | `keys_rotate_while_nodes_are_away`, `a_stolen_key_leaves_nothing_behind` |
//! | waves halt, and the others keep the version before | `failures_and_silence_halt_it_where_it_is`, `an_update_leaves_the_others_as_they_are` |
//! | a token is used once, and the operator decides | `a_token_is_used_once_and_the_operator_decides` |
//! | all of these at once | `small_fleets_run_what_is_wished_and_nothing_else` |
//!
//! A clock of the machine that is ahead ends intents early, until it is set right. A key that is stolen can
//! revoke, stop and run, within the policy of each node, until its delegation expires or the node hears of a
//! later one.
#![forbid(unsafe_code)]

pub mod agent;
pub mod archive;
pub mod condition;
pub mod enrolment;
pub mod message;
pub mod nkey;
pub mod publisher;
pub mod rollout;
pub mod signed;
pub mod subject;
pub mod talk;

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
