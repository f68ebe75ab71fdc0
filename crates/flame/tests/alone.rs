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

mod exhaust;
mod many;
mod memory;
mod node_overload;
mod node_shares;
mod overload;
mod xdp;

/// Waits until no other test of this program runs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lock(&TURN)
}
