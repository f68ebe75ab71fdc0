//! Loop(N): stands on a cycle and lets each packet pass at most N times (1 to 255).
//! Expects: anything, pushed.
//! Gives: 0: packets that may pass; 1: those that may not, which are dropped without it.
//! Handlers: exceeded.
//! Example: `rt [1] -> ICMPError(1.0.0.1, timeexceeded) -> Loop(1) -> rt`
//!
//! Poll(BURST): ends a segment of work. Packets wait here for its task, so that others are served before.
//! Expects: anything, pushed.
//! Gives: the same packets in order, at most BURST (32) at a time, while a queue after it has room. Sources
//! before it wait while it holds 1,024 packets.
//! Handlers: length, scheduled.
//! Example: `rt [1] -> Poll -> DropBroadcasts`

use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::loops::MAX_LOOPS;
use crate::runtime::packet::{Batch, Packet};
use crate::runtime::signal::Signal;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

const SOURCE: &str = include_str!("bound.rs");

struct Loop {
    limit: u8,
    /// Its own place among the counts that a packet carries.
    slot: usize,
    exceeded: Cell<u64>,
}

impl Element for Loop {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        let passes = &mut p.anno.loops[self.slot];
        if *passes < self.limit {
            *passes += 1;
            return Some(p);
        }
        add(&self.exceeded, 1);
        cx.push_or_drop(1, "loop bound", p);
        None
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "exceeded").then(|| Ok(self.exceeded.get().to_string()))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.exceeded]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("exceeded", "r")]
    }
}

class!(LOOP, "Loop", "1/1-2", "h/h", ["N"], |args, setup| {
    let limit: u8 = args.req("N");
    let loops = setup.router.graph.elements.iter().filter(|e| e.class == "Loop");
    let slot = loops.take_while(|e| e.name != setup.name).count();
    if limit == 0 {
        args.error("N: expected 1 to 255, found 0");
    }
    if slot >= MAX_LOOPS {
        args.error(format!("a configuration may have at most {MAX_LOOPS} Loop elements"));
    }
    Box::new(Loop { limit, slot: slot.min(MAX_LOOPS - 1), exceeded: Cell::new(0) })
});

/// The packets that a `Poll` holds before sources wait.
const ROOM: usize = 1024;

struct Poll {
    burst: usize,
    /// Whether the elements after it have room.
    signal: RefCell<Signal>,
    waiting: RefCell<VecDeque<Packet>>,
}

impl Element for Poll {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        self.waiting.borrow_mut().extend(batch.drain(..));
        cx.set_room(self.waiting.borrow().len() < ROOM);
        cx.reschedule();
    }
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.signal.borrow_mut() = cx.downstream_signal(0);
        cx.set_room(true);
        Ok(())
    }
    fn run_task(&self, cx: &Cx<'_>) -> bool {
        // Where a queue follows, each packet may be its last.
        let step = if self.signal.borrow().is_always() { self.burst } else { 1 };
        let mut left = self.burst;
        while left > 0 && self.signal.borrow().is_active(cx.router) {
            let mut batch = Batch::default();
            let mut waiting = self.waiting.borrow_mut();
            let count = waiting.len().min(step).min(left);
            batch.extend(waiting.drain(..count));
            drop(waiting);
            if count == 0 {
                break;
            }
            left -= count;
            cx.push(0, batch);
        }
        let count = self.waiting.borrow().len();
        cx.set_room(count < ROOM);
        // Otherwise it is woken when there is room.
        if count > 0 && self.signal.borrow().is_active(cx.router) {
            cx.reschedule();
        }
        left < self.burst
    }
    fn room(&self) -> Option<usize> {
        Some(ROOM.saturating_sub(self.waiting.borrow().len()))
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "length").then(|| Ok(self.waiting.borrow().len().to_string()))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("length", "r"), ("scheduled", "r")]
    }
    fn held(&self) -> usize {
        self.waiting.borrow().len()
    }
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() {
            self.waiting.borrow_mut().append(&mut old.waiting.borrow_mut());
            cx.reschedule();
        }
    }
}

class!(POLL, "Poll", "1/1", "h/h", ["BURST"], |args, _| {
    let burst = args.opt("BURST").unwrap_or(32).max(1);
    Box::new(Poll { burst, signal: RefCell::default(), waiting: RefCell::default() })
});
