//! The logs of several monitors, joined: which way each sampled packet went, how long it took, where it was lost.
//!
//! Input are the records of the module `trajectory` as JSON lines, one source a monitor. Logs are read in time
//! order, side by side; a packet is waited for at the other monitors for a window of time, so memory is bounded
//! by what the monitors sample in one window, and by [`Options::max_flows`].
//!
//! A packet's path is the monitors that logged it, in order of time. Of a flow whose packets take a path, one that
//! was seen on the beginning of that path only was lost behind the last monitor that saw it.
#![forbid(unsafe_code)]

mod join;
mod read;

pub use join::{DelayRow, FlowRow, Joined, Options, PathRow, join};
pub use read::{Flow, Line, Log, ReadError, parse};
