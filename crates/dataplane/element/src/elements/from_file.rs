//! The element around a reader of packets: they leave at once or at their times, pushed or pulled.

use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{Batch, Packet};
use crate::runtime::router::Handle;
use crate::runtime::signal::Signal;
use flame_click::Nanos;
use flame_click::value::boolean;
use std::cell::{Cell, RefCell};

/// The outcome of reading.
pub enum Reading {
    Packet(Packet),
    /// No file is open now.
    Idle,
    End,
}

/// A file of packets.
pub trait Reader: Send + 'static {
    /// Opens the file.
    fn open(&self) -> Result<(), String>;

    /// Reads the next packet, and reports errors in the file.
    fn read(&self, cx: &Cx<'_>) -> Reading;

    /// Continues where `old` stopped, if that has the same file open. Returns whether it does.
    fn take_over(&self, old: &Self) -> bool;
}

/// The arguments that all such elements have.
pub struct Options {
    /// Whether the router stops at the end of the file.
    pub stop: bool,
    pub active: bool,
    /// Whether packets leave at their times, beginning with the first.
    pub timing: bool,
}

pub struct FromFile<R> {
    reader: R,
    stop: bool,
    timing: bool,
    is_active: Cell<bool>,
    is_done: Cell<bool>,
    /// This element, in the router that it has asked to stop.
    asked: Cell<Option<Handle>>,
    /// The difference between the clock and the first timestamp.
    shift: Cell<Option<Nanos>>,
    /// The packet that waits for its time.
    waiting: RefCell<Option<Packet>>,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

impl<R: Reader> FromFile<R> {
    pub fn new(reader: R, options: Options) -> Self {
        Self {
            reader,
            stop: options.stop,
            timing: options.timing,
            is_active: Cell::new(options.active),
            is_done: Cell::new(false),
            asked: Cell::new(None),
            shift: Cell::new(None),
            waiting: RefCell::default(),
            count: Cell::new(0),
            signal: RefCell::default(),
        }
    }

    fn next(&self, cx: &Cx<'_>) -> Option<Packet> {
        if let Some(p) = self.waiting.take() {
            return Some(p);
        }
        if !self.is_active.get() || self.is_done.get() {
            return None;
        }
        match self.reader.read(cx) {
            Reading::Packet(p) => {
                add(&self.count, 1);
                cx.made(1);
                return Some(p);
            }
            Reading::Idle => {}
            Reading::End => {
                self.is_done.set(true);
                cx.set_filled(false);
                self.check_end(cx);
            }
        }
        None
    }

    /// Asks the run to stop at the end of the file, once in each router: a request ends with the router that
    /// it came to, which may be replaced before it has decided.
    fn check_end(&self, cx: &Cx<'_>) {
        let here = (self.stop && self.is_done.get()).then(|| cx.router.handle(cx.me));
        let before = self.asked.replace(here);
        if here.is_some() && here != before {
            cx.router.please_stop();
        }
    }
}

impl<R: Reader> Element for FromFile<R> {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        self.reader.open()?;
        match cx.router.nodes[cx.me].outputs[0].is_push {
            true => {
                *self.signal.borrow_mut() = cx.downstream_signal(0);
                cx.reschedule();
            }
            false => cx.set_filled(self.is_active.get()),
        }
        Ok(())
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if !self.signal.borrow().is_active(cx.router) {
            return false;
        }
        let Some(p) = self.next(cx) else { return false };
        if self.timing {
            let now = cx.now();
            let shift = self.shift.get().unwrap_or(now - p.anno.time);
            self.shift.set(Some(shift));
            let due = p.anno.time + shift;
            if due > now {
                *self.waiting.borrow_mut() = Some(p);
                cx.timer_at(0, due);
                return false;
            }
        }
        cx.push_one(0, p);
        cx.reschedule();
        true
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        cx.reschedule();
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        for _ in 0..max {
            match self.next(cx) {
                Some(p) => out.push(p),
                None => return cx.set_filled(false),
            }
        }
    }

    fn notice(&self, _: usize) -> Notice {
        Notice::Own
    }

    fn held(&self) -> usize {
        usize::from(self.waiting.borrow().is_some())
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.count]
    }

    /// Takes the old element's packet that waits for its time, which comes next, and the rest of its file.
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if self.reader.take_over(&old.reader) {
            self.shift.set(old.shift.get());
            if old.is_done.get() {
                self.is_done.set(true);
                cx.set_filled(false);
                self.asked.set(old.asked.get());
                self.check_end(cx);
            }
        }
        if let Some(p) = old.waiting.take() {
            self.shift.set(old.shift.get());
            if let Some(p) = self.waiting.replace(Some(p)) {
                cx.drop("replaced", p);
            }
        }
        if cx.router.nodes[cx.me].outputs[0].is_push {
            cx.reschedule();
        }
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "active" => Some(Ok(self.is_active.get().to_string())),
            "count" => Some(Ok(self.count.get().to_string())),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "active").then(|| {
            let active = boolean(value).ok_or_else(|| format!("expected true or false, found '{value}'"))?;
            self.is_active.set(active);
            match cx.router.nodes[cx.me].outputs[0].is_push {
                true => cx.reschedule(),
                false => cx.set_filled(active && !self.is_done.get()),
            }
            Ok(())
        })
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("active", "rw"), ("count", "r"), ("scheduled", "r")]
    }
}
