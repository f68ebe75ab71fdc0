//! The link between two active nodes: a key exchange in three messages, then packets with an authenticator.
//! The types have no clock, socket or thread: time, datagrams and random bytes are passed in.
//!
//! # States
//!
//! ```text
//!              connect                        message 2, certificates hold
//!   (nothing) ─────────► asked ──────────────────────────────────────────► session, on probation
//!                          │ 1 s without an answer: connect asks again          │ any packet of the peer
//!              message 1   ▼                    message 3, certificates hold    ▼
//!   (nothing) ─────────► answered ─────────────────────────────────────────► session
//!                                                                               │ its certificate ends,
//!                                                                               ▼ it is revoked, an hour
//!                                                                            (nothing)
//! ```
//!
//! # Datagrams
//!
//! The exchange is `Noise_XX_25519_ChaChaPoly_SHA256`. Each datagram begins with a header of 16 bytes;
//! numbers are little-endian.
//!
//! | at | bytes | field |
//! | --- | --- | --- |
//! | 0 | 2 | `FL` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | kind: 0 plain, 1 authenticated, 2 authenticated and encrypted, 3 to 5 messages of the exchange, 6 a cookie |
//! | 4 | 4 | the session or the exchange, by the receiver's number; 0 in plain packets and in message 1 |
//! | 8 | 8 | nonce of a packet of a session, otherwise 0 |
//!
//! | kind | after the header |
//! | --- | --- |
//! | 0 | body |
//! | 1 | body, authenticator of 16 bytes over header and body |
//! | 2 | body, encrypted; authenticator of 16 bytes |
//! | 3 | `e`; the sender's time and number, a cookie or zeros, zeros up to the length that an answer may have |
//! | 4 | `e, ee, s, es`; the sender's time and number, [`Identity`] |
//! | 5 | `s, se`; [`Identity`] |
//! | 6 | a cookie of 16 bytes for message 1 |
//!
//! The authenticator is of AES-256 in GCM, with a key and a nonce for each packet: symmetric, and of
//! plain bodies as of encrypted ones. It takes a sixth of the time of ChaCha20-Poly1305 for the 112
//! bytes of a capsule, where the processor has instructions for AES. The keys of both directions differ,
//! so what is reflected is forged. A key serves 2^20 packets or two minutes; the next follows from it one
//! way, and the nonce, of which the upper 44 bits number the keys, states it. Noise's own transport has
//! no authenticated plain bytes, so keys are derived from its split ([`snow`]'s feature
//! `risky-raw-split`), which is used for nothing else.
//!
//! # Time
//!
//! A node's time ([`Time`]) never goes back: it is the latest of the wall clock and what the steady clock
//! adds. Kept over restarts, it makes no certificate valid again; a node that starts with a clock that was
//! set back is late by the time that it was down. While the clocks of both ends differ by at most
//! [`TOLERANCE`], the exchange is *fail stop*: each message that is replayed, cut or changed is refused and
//! counted, and ends the exchange. In any case it is *fail safe*: without the holder's keys, no session is
//! made. A certificate that ends or is revoked ends the session.
//!
//! # Promises
//!
//! | promise | test |
//! | --- | --- |
//! | both ends know each other's certificates, and speak | `two_nodes_make_a_link` |
//! | an exchange that is reflected, or of another node than the neighbour at the address, makes no session | `a_reflected_exchange_makes_no_session`, `an_address_has_its_own_node` |
//! | an exchange that is cut at any message makes no session, and another one does | `an_exchange_may_end_at_each_message` |
//! | a changed bit anywhere in the exchange makes no session | `no_changed_bit_makes_a_session` |
//! | a replayed first message is refused, and a replayed third | `replayed_messages_of_the_exchange_are_refused` |
//! | an answer is no longer than its question | `no_answer_is_longer_than_its_question` |
//! | stale, revoked, widened and foreign certificates are refused, by cause | `certificates_are_checked` |
//! | the chains are FLAME's credentials, handed on and narrowed, with their revocations | `credentials_are_certificates` of `flame-active-server` |
//! | a certificate of others, or for another key, makes its bearer no holder | `certificates_belong_to_their_holder` |
//! | clocks that differ are refused | `clocks_that_differ_are_refused` |
//! | a clock that is set back makes nothing valid again, nor does a restart | `a_clock_set_back_lets_no_one_in` |
//! | packets that are changed, cut, reflected, replayed, late or of another address are refused, by cause | `packets_are_checked` |
//! | reordered packets are taken once | `the_window_takes_each_once` |
//! | keys change by count and by time, with packets lost and reordered | `keys_change` |
//! | a peer that restarted has a link again, and both ends come to use the same session | `a_peer_that_restarts_is_found_again`, `honest_networks_stay_within_the_bound` |
//! | a session ends with its certificate | `sessions_end` |
//! | tables have limits | `tables_are_full` |
//! | a flood of first messages costs little, and leaves neighbours and other addresses their own | `a_flood_of_first_messages_is_answered_in_part` |
//! | a flood from forged addresses keeps no end that receives at its own from a link | `a_forged_flood_keeps_no_one_out`, and over sockets `a_forged_flood_ends_no_service` of `flame-active-server` |
//! | a cookie is good for its address and for at most two minutes, and is asked for once in an exchange | `a_cookie_proves_one_address` |
//!
//! # Floods of first messages
//!
//! An answer to a first message costs four multiplications of Curve25519, so at most [`Limit::firsts`] are
//! made in a second for strangers, an eighth of them for one address, and as many for each neighbour's. The
//! others are answered by a *cookie* (kind 6): an authenticator of the sender's address and port, under a
//! secret that changes each minute. It costs no multiplication, is shorter than its question, and this node
//! keeps nothing for it. A sender that receives it begins again with the cookie in message 1, and addresses
//! that have so proven to be the sender's have another [`Limit::firsts`] in each second, an eighth of them
//! each. So a flood from forged addresses takes nothing from others; one from many true addresses still does.
//! While more than [`Limit::exchanges`] are open, the oldest is given up. A replay that comes after
//! [`Limit::remembered`] others is not detected as such, and leads to nothing all the same.
#![forbid(unsafe_code)]

mod cause;
mod cookie;
mod exchange;
mod firsts;
mod identity;
mod links;
mod session;
mod time;
mod window;

pub use cause::{Cause, Counts};
pub use identity::{Certificates, Identity, Peer, Presented, Role, Wrong};
pub use links::{Entropy, Limit, Links, Own, Received, public_key};
pub use session::{Mode, OVERHEAD};
pub use time::{Clock, TOLERANCE, Time};
pub use window::Window;

/// The bytes of a header.
pub const HEADER: usize = 16;
