//! The join of the logs of several monitors: the path of each sampled packet, its delay, and the place where
//! it was lost.
//!
//! The inputs are records of the module `trajectory`, as JSON lines or as a folder of Parquet files, one
//! source per monitor. The logs of all monitors are merged in order of time; a packet is waited for at the
//! other monitors for a window of time.
//!
//! A packet's path is the list of monitors that logged it, in order of time. A packet is lost if it was seen
//! only on the first part of its flow's path; it was lost after the last monitor that saw it. For a flow none
//! of whose packets arrived, the path of other flows between the same hosts is used. Losses count only for
//! times in which all monitors were active, as far as their records state.
//!
//! **Memory** is limited for any number of records: [`Options::max_waiting`] packets of about 160 bytes;
//! [`Options::max_flows`] flows of about 300 bytes (up to 1.2 KiB if delays vary widely) for each path of the
//! flow, 8 at most; 1,024 paths of 40 KiB and, in open intervals, up to 16,384 paths of up to 1 KiB and
//! 262,144 flows of about 80 bytes that may have lost packets; 16,384 logs read ahead per monitor. Packets
//! beyond these limits are counted.
#![forbid(unsafe_code)]

mod join;
mod open;
mod options;
mod outcome;
mod read;
mod row;
mod spread;

pub use join::{MAX_MONITORS, join, join_with};
pub use open::open;
pub use options::Options;
pub use read::{Flow, Line, Log, ReadError, Reader, Records, Setting, parse};
pub use row::{CellRow, DelayRow, FlowRow, Joined, PathRow};
