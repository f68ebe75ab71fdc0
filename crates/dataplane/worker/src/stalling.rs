//! The measurement of the time for which the thread that collects waits for whoever takes the output.

use crate::charge;
use flame_remote::Stall;
use std::time::Duration;

/// Adds the time for which `act` does not use a processor to `stall`, if there is one.
pub(crate) fn stalling<T>(stall: Option<&Stall>, act: impl FnOnce() -> T) -> T {
    let Some(stall) = stall else { return act() };
    let (stalled, before) = (stall.begin(), charge::own_ns());
    let done = act();
    stalled.end(Duration::from_nanos(charge::own_ns().saturating_sub(before)));
    done
}
