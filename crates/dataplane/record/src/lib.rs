//! Converts rows of modules to output for people and programs.
//!
//! ```text
//! checked frames (flame-output) → Rows → RecordBatch → Sink
//! ```
//!
//! The types of columns are the same in every format:
//!
//! | manifest | Arrow and Parquet | JSON | CSV |
//! | --- | --- | --- | --- |
//! | bool | Boolean | `true` | `true` |
//! | u8, u16, u32, u64, i64 | the same | number | number |
//! | f64 | Float64 | number; `null` if not finite | number, `NaN`, `inf`, `-inf` |
//! | time | Timestamp(ns, UTC) | number, or text | number, or text |
//! | duration | Duration(ns) | number | number |
//! | mac | Utf8, `02:00:00:00:00:01` | text | text |
//! | ip | Utf8, RFC 5952 | text | text |
//! | text | Utf8 | text | text |
//! | enum | Dictionary(UInt8, Utf8) | text | text |
//!
//! Batches hold addresses as bytes until they are written ([`readable`]), and times and durations as integers
//! of nanoseconds; [`TimeFormat`] chooses their form in JSON and
//! CSV. In Parquet they are typed, unless integers are asked for: DuckDB before 2.0 keeps microseconds of a
//! timestamp with a time zone, and a time after 2262 is null. Units are in the metadata (see [`rows`]).
//!
//! Records of flows have further columns, which follow from the module's (`derive`).
#![forbid(unsafe_code)]

pub mod account;
mod address;
mod cell;
pub mod community;
mod derive;
pub mod escape;
mod grid;
pub mod human;
pub mod leaving;
mod number;
mod protocols;
pub mod rows;
pub mod sink;
mod time;
mod typed;

pub use address::readable;
pub use arrow_array::RecordBatch;
pub use arrow_schema::SchemaRef;
pub use cell::texts;
pub use flame_output::Packet;
pub use grid::Form;
pub use rows::Rows;
pub use sink::{
    CaptureFormat, Clock, Format, LeftOut, Names, Options, Part, Rotation, Sink, SinkError, beside, capture,
    each, left_out, open, open_writer, packets, rotating,
};
pub use time::{TimeFormat, parse_rfc3339, rfc3339};
