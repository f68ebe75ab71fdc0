//! The tests that measure time or memory, or need all processors: one after the other, and apart from all
//! others. `main.rs` lists those.

use flame_base::lock;
use std::sync::{Mutex, MutexGuard};

#[allow(dead_code, unused_imports)] // The tests of `main.rs` use the rest of these four.
mod common;
#[allow(dead_code)]
mod daemon;
#[allow(dead_code)]
mod network;
#[allow(dead_code)]
mod wasm;

#[path = "run/exhaust.rs"]
mod exhaust;
#[path = "run/many.rs"]
mod many;
#[path = "run/memory.rs"]
mod memory;
#[path = "node/node_overload.rs"]
mod node_overload;
#[path = "node/node_shares.rs"]
mod node_shares;
#[path = "run/overload.rs"]
mod overload;
#[path = "devices/stalls.rs"]
mod stalls;
#[path = "devices/xdp.rs"]
mod xdp;

/// Waits until no other test of this program runs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}
