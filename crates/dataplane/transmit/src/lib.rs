//! Sends the frames of modules on links.
//!
//! ```text
//! Channel::send → bounded queue → Scheduler → interface, or capture file
//! ```
//!
//! A [`Link`] is an interface with a bandwidth, and a thread that sends on it; or a capture file that holds
//! what would have left, with the times at which it would. A [`Channel`] has a part of the bandwidth and a
//! queue of its own. The kernel guarantees the thread the time that this takes ([`Link::take_time`]). A
//! sender never waits: a frame for which the queue has no room is refused.
#![forbid(unsafe_code)]

mod capture;
mod counts;
mod link;
mod schedule;
mod thread;
mod time;

pub use capture::Capture;
pub use link::{Bandwidth, Channel, Link, LinkError, Traffic};
pub use schedule::{Key, Next, Reservation, Scheduler};
pub use thread::Wire;
