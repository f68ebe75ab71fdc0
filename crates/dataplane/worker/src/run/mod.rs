//! A run as a whole: its options, threads and wiring, and the handle by which modules come and go.

pub mod attached;
pub mod collector_loop;
pub mod handle;
pub mod inline;
pub mod numbers;
pub mod options;
pub mod prepare;
pub mod threads;
pub mod wiring;
pub mod worker_loop;
