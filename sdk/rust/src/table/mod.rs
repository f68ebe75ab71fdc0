//! Tables of fixed size: what they take is known when they are made, a look-up costs at most so much
//! whatever the traffic, so that `flame check` finds a bound, and what is evicted is counted.

mod flow;
mod map;

pub use flow::{Entry, FlowTable};
pub use map::{Key, Map};
