//! All tests of records and sinks, in one program.

mod absent;
mod capture;
mod common;
mod parquet;
mod property;
mod sinks;
