//! The runtime.

pub mod account;
pub mod build;
pub mod clock;
pub mod element;
pub mod handler;
pub mod limits;
pub mod loops;
pub mod measure;
pub mod names;
pub mod packet;
pub mod ports;
pub mod router;
pub mod run;
pub mod signal;
pub mod tokens;
pub mod wake;
