//! The logs of several monitors, joined: which way each sampled packet went, how long it took, where it was
//! lost.
//!
//! Input are the records of the module `trajectory`, as JSON lines or a folder of Parquet files, one source a
//! monitor. Logs are read in time order, side by side; a packet is waited for at the other monitors for a
//! window of time.
//!
//! A packet's path is the monitors that logged it, in order of time. Of a flow whose packets take a path, one
//! that was seen on the beginning of that path only was lost behind the last monitor that saw it. A flow of
//! which no packet came through is judged by the others between the same hosts. Loss counts while all
//! monitors watched, as far as their records tell.
//!
//! **Memory**, however many records there are: [`Options::max_waiting`] packets of some 160 bytes;
//! [`Options::max_flows`] flows of some 300 bytes, up to 1.2 KiB where delays spread widely, for each path
//! that the flow takes (8 at most); 1,024 paths of 40 KiB and, in open intervals, up to 16,384 paths of up to
//! 1 KiB and 262,144 flows of some 80 bytes that may have lost packets; 16,384 logs read ahead a monitor.
//! What finds no room is counted.
#![forbid(unsafe_code)]

mod join;
mod open;
mod outcome;
mod read;
mod row;
mod spread;

pub use join::{MAX_MONITORS, Options, join, join_with};
pub use open::open;
pub use read::{Flow, Line, Log, ReadError, Reader, Records, Setting, parse};
pub use row::{CellRow, DelayRow, FlowRow, Joined, PathRow};
