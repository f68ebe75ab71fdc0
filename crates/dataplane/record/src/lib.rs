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
//! | time | UInt64, ns since 1970 | number | number |
//! | duration | Int64, ns | number | number |
//! | mac | Utf8, `02:00:00:00:00:01` | text | text |
//! | ip | Utf8, RFC 5952 | text | text |
//! | text | Utf8 | text | text |
//! | enum | Dictionary(UInt8, Utf8) | text | text |
//!
//! Times are integers in Parquet, too: a column `first_ns` has the same meaning in every format, and no
//! reader rounds it to its own resolution. `make_timestamp_ns(first_ns)` in DuckDB, or a cast to
//! `timestamp("ns")` in pyarrow, gives a timestamp. Units are in the metadata (see [`rows`]).
#![forbid(unsafe_code)]

pub mod account;
mod cell;
pub mod community;
pub mod escape;
pub mod human;
mod protocols;
pub mod rows;
pub mod sink;

pub use arrow_array::RecordBatch;
pub use cell::texts;
pub use flame_output::Packet;
pub use rows::Rows;
pub use sink::{Format, Options, Sink, SinkError, capture, open, open_writer};
