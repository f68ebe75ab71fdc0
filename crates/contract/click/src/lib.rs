//! The shared part of the Click language: the flat graph, the rules of arguments and the data types.
//!
//! Click's texts are bytes. A text is a `String` here in which each character stands for one byte (U+0000 to
//! U+00FF), so that any bytes survive; [`text::decode`] and [`text::encode`] convert.
#![forbid(unsafe_code)]

pub mod addr;
pub mod args;
pub mod graph;
pub mod input;
pub mod scope;
pub mod text;
pub mod time;
pub mod value;

pub use addr::{Ip, Mac, Prefix};
pub use args::Args;
pub use graph::{Connection, Element, Graph, Port, Requirement};
pub use scope::{NoNames, Resolver, Scope};
pub use time::Nanos;
pub use value::{Data, Rate, Value};
