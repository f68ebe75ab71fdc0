//! Tables of fixed size. Their memory is known when they are created, a look-up has a constant maximum cost
//! for any traffic, so `flame check` finds a bound, and evictions are counted.

mod flow;
mod growing;
mod map;

pub use flow::{Entry, FlowTable};
pub use growing::HashMap;
pub use map::{Hashed, Key, Map, mix};

/// The longest that times may go back by: captures are merged, and queues have packets of several
/// processors.
const BACK_NS: u64 = 60_000_000_000;

/// Returns the time since `used`, by which the entry is chosen that gives way. Times that are more than
/// [`BACK_NS`] ahead of `now` are those of a wrong clock: their entries give way first. They do not expire,
/// since the wrong time may be `now`, of a single packet.
#[inline]
fn age(now: u64, used: u64) -> u64 {
    match now.checked_sub(used) {
        Some(age) => age,
        None if used - now > BACK_NS => u64::MAX - 1,
        None => 0,
    }
}
