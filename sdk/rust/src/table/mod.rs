//! Tables of fixed size. Their memory is known when they are created, a look-up has a constant maximum cost
//! for any traffic, so `flame check` finds a bound, and evictions are counted.

mod flow;
mod map;

pub use flow::{Entry, FlowTable};
pub use map::{Hashed, Key, Map, mix};
