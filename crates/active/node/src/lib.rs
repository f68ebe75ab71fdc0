//! An active node without socket, clock or thread: datagrams and time come in, datagrams and deliveries go
//! out.
//!
//! # The life of a capsule
//!
//! ```text
//!  datagram ─► link: plain, or of a peer ─► who pays ─► share of the peer ─► bound
//!                                                                             │
//!            ┌── asked of the previous hop, capsule held ◄── no ── code of this payer cached?
//!            ▼                                                                │ yes
//!        answer with the code ────────────────────────────────────────────────┤
//!                                                                             ▼
//!               passed on towards its place ◄── another place ──── evaluated: instructions of the bound
//!                                                                             │
//!     copies, each with its part of the bound ◄── effects, if it ended well ──┴─► deliveries, soft state
//!            │
//!            ▼
//!     link to the next hop: authenticator over capsule and share
//! ```
//!
//! 1. *Who pays.* A host pays for its own capsules, which begin at this node. A node vouches for the payer
//!    that its capsule states. A datagram without authenticator is Best Effort, begins at this node (a
//!    stranger cannot have answers sent to others), and carries its code unless strangers' code is cached:
//!    nothing is asked for it. A payer without an account here runs on the account of Best Effort.
//! 2. *Share.* The bound is the smaller of the capsule's and the account's. What a peer may have accepted
//!    in a second, of all its capsules, is in its certificate; for strangers together it is in the
//!    settings. Each counts as one copy and the bytes of its datagram at least, however small its bound
//!    is. A node that lies spends in the network at most what each of its neighbours accepts from it: its
//!    share times its neighbours. A node that keeps to the numbers of a capsule, and repeats it, spends
//!    its bound times its neighbours. It may name any payer: an account answers for what the nodes around
//!    state for it.
//! 3. *Code.* Cached for each account and hash, so an account cannot see what others run. It may be compiled
//!    elsewhere, while the capsules wait. Each account has
//!    its own room in each table, so that none can fill it for others.
//! 4. *Evaluation.* Through [`Execute`], with a limit of instructions. Its effects count if it ends well.
//!    Bytes that it delivers go to the host whose capsule had this payer and key, and are paid as a copy is;
//!    without such a host, to the application at the node.
//! 5. *Copies.* Paid by the bound before they leave, the datagram's bytes with header and authenticator. They
//!    carry the hash; the next hop asks for the code, and is answered if this node has sent it the hash.
//!
//! The time of each part of the work is added to the account ([`Times`]), which may read it with the right
//! `times`: the parts of SANE's figure 8, without kernel and wire.
//!
//! What is refused is counted by [`Cause`], and by the links' causes.
//!
//! # Promises
//!
//! Tests are of the crate `flame-active-simulation`, over random networks:
//!
//! | promise | test |
//! | --- | --- |
//! | honest nodes spend no more than the bound of the origin, whatever is lost, repeated, reordered or restarted | `honest_networks_stay_within_the_bound` |
//! | a replayed datagram spends nothing | the same |
//! | a node that lies spends at most its share times its neighbours | `a_liar_spends_its_share_times_its_neighbours` |
//! | no table exceeds its limit | both |
//! | each principal is charged what was spent for it | `honest_networks_stay_within_the_bound` |
//! | revoked, expired and foreign nodes get no session, whatever clocks say | `impostors_stay_outside` |
//! | capsules with an empty bound are limited as others are | `an_empty_bound_counts_as_its_datagram` |
//! | the causes are counted | `each_cause_is_met`, `wrong_capsules_are_refused_by_cause` |
//! | the examples of the language do their work | `a_ping_comes_back`, `a_trace_names_each_node`, `a_multicast_divides_where_ways_part`, `a_probe_collects_queues`, `a_query_follows_a_flow` |
#![forbid(unsafe_code)]

mod cause;
mod execute;
mod node;
mod settings;
mod tables;
mod visit;

pub use cause::{Cause, Counts};
pub use execute::{Execute, Failure, Output, Ran, Services};
pub use node::{Begin, Node};
pub use settings::{Account, Map, Part, Rights, Room, Settings, Terms, Times};
pub use visit::MAX_SENDS;
