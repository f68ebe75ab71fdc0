//! Queue(CAPACITY), SimpleQueue, NotifierQueue, FullNoteQueue, QuickNoteQueue, ThreadSafeQueue: hold packets
//! (1000) until they are pulled, first in, first out. All but SimpleQueue notify waiting elements when there
//! are packets; Queue, FullNoteQueue and QuickNoteQueue notify upstream elements when there is room.
//! Expects: packets, pushed.
//! Gives: packets, pulled.
//! Handlers: length, highwater_length, capacity (rw), drops, reset_counts (w), reset (w).
//! Example: `in -> q :: Queue(200) -> out`
//!
//! FrontDropQueue(CAPACITY), MixedQueue(CAPACITY): queues that drop the oldest packet when they are full.
//! MixedQueue gives the packets of input 1 last in, first out, before those of input 0.
//! Expects: packets, pushed.
//! Gives: packets, pulled.
//! Handlers: those of Queue.
//! Example: `in -> FrontDropQueue(5) -> out`

use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{Batch, Packet};
use flame_click::Args;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

const SOURCE: &str = include_str!("queue.rs");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    FrontDrop,
    Mixed,
}

pub struct Queue {
    packets: RefCell<VecDeque<Packet>>,
    capacity: usize,
    kind: Kind,
    notifies: bool,
    notifies_room: bool,
    highwater: Cell<usize>,
    drops: Cell<u64>,
}

impl Queue {
    /// Publishes whether there are packets, and room.
    fn notify(&self, cx: &Cx<'_>) {
        let length = self.packets.borrow().len();
        if self.notifies {
            cx.set_filled(length > 0);
        }
        if self.notifies_room {
            cx.set_room(length < self.capacity);
        }
    }

    pub fn length(&self) -> usize {
        self.packets.borrow().len()
    }
}

impl Element for Queue {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        self.notify(cx);
        Ok(())
    }

    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            let mut packets = self.packets.borrow_mut();
            let dropped = match (packets.len() < self.capacity, self.kind) {
                (true, _) => None,
                (false, Kind::Plain) => {
                    drop(packets);
                    add(&self.drops, 1);
                    cx.drop("queue full", p);
                    continue;
                }
                (false, Kind::Mixed) if port == 0 => {
                    drop(packets);
                    add(&self.drops, 1);
                    cx.drop("queue full", p);
                    continue;
                }
                // Input 1 of a MixedQueue pushes at the front: what is last there goes.
                (false, Kind::Mixed) => packets.pop_back(),
                (false, Kind::FrontDrop) => packets.pop_front(),
            };
            match self.kind == Kind::Mixed && port == 1 {
                true => packets.push_front(p),
                false => packets.push_back(p),
            }
            self.highwater.set(self.highwater.get().max(packets.len()));
            drop(packets);
            if let Some(p) = dropped {
                add(&self.drops, 1);
                cx.drop("queue full", p);
            }
        }
        self.notify(cx);
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        {
            let mut packets = self.packets.borrow_mut();
            let count = packets.len().min(max);
            out.extend(packets.drain(..count));
        }
        self.notify(cx);
    }

    fn notice(&self, _: usize) -> Notice {
        if self.notifies { Notice::Own } else { Notice::Silent }
    }

    fn room(&self) -> Option<usize> {
        self.notifies_room.then(|| self.capacity.saturating_sub(self.length()))
    }

    fn held(&self) -> usize {
        self.length()
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "length" => self.length().to_string(),
            "highwater_length" => self.highwater.get().to_string(),
            "capacity" => self.capacity.to_string(),
            "drops" => self.drops.get().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "capacity" => return Some(cx.router.set_argument(cx.me, "CAPACITY", 0, value)),
            "reset_counts" => {
                self.drops.set(0);
                self.highwater.set(self.length());
            }
            "reset" => {
                cx.drop_all("reset", self.packets.take());
                self.notify(cx);
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("length", "r"),
            ("highwater_length", "r"),
            ("capacity", "rw"),
            ("drops", "r"),
            ("reset_counts", "w"),
            ("reset", "w"),
        ]
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        self.highwater.set(self.highwater.get().max(old.highwater.get()));
        let mut packets = std::mem::take(&mut *self.packets.borrow_mut());
        packets.append(&mut old.packets.borrow_mut());
        while packets.len() > self.capacity {
            if let Some(p) = packets.pop_back() {
                add(&self.drops, 1);
                cx.drop("queue full", p);
            }
        }
        *self.packets.borrow_mut() = packets;
        self.notify(cx);
    }
}

fn queue(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let class = setup.class;
    Box::new(Queue {
        packets: RefCell::default(),
        capacity: args.opt("CAPACITY").unwrap_or(1000_u32) as usize,
        kind: match class {
            "FrontDropQueue" => Kind::FrontDrop,
            "MixedQueue" => Kind::Mixed,
            _ => Kind::Plain,
        },
        notifies: class != "SimpleQueue",
        notifies_room: matches!(class, "Queue" | "FullNoteQueue" | "QuickNoteQueue" | "ThreadSafeQueue"),
        highwater: Cell::new(0),
        drops: Cell::new(0),
    })
}

class!(QUEUE, "Queue", "1/1", "h/l", ["CAPACITY"], queue);
class!(SIMPLE_QUEUE, "SimpleQueue", "1/1", "h/l", ["CAPACITY"], queue);
class!(NOTIFIER_QUEUE, "NotifierQueue", "1/1", "h/l", ["CAPACITY"], queue);
class!(FULL_NOTE_QUEUE, "FullNoteQueue", "1/1", "h/l", ["CAPACITY"], queue);
class!(QUICK_NOTE_QUEUE, "QuickNoteQueue", "1/1", "h/l", ["CAPACITY"], queue);
class!(THREAD_SAFE_QUEUE, "ThreadSafeQueue", "1/1", "h/l", ["CAPACITY"], queue);
class!(FRONT_DROP_QUEUE, "FrontDropQueue", "1/1", "h/l", ["CAPACITY"], queue);
class!(MIXED_QUEUE, "MixedQueue", "1-2/1", "h/l", ["CAPACITY"], queue);
