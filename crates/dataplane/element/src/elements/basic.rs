//! Null, PushNull, PullNull: pass packets unchanged.
//! Expects: anything. PushNull is pushed to, PullNull is pulled from, Null takes either.
//! Gives: the same packets.
//! Handlers: none.
//! Example: `a -> Null -> b`
//!
//! Idle: drops what is pushed to it and never gives a packet. Its ports have nothing to do with each other.
//! Expects: anything.
//! Gives: nothing.
//! Handlers: none.
//! Example: `Idle -> [1] q`
//!
//! Discard(ACTIVE, BURST): drops packets, pulls them if need be.
//! Expects: anything.
//! Gives: nothing.
//! Handlers: count, active (rw), scheduled, reset_counts (w).
//! Example: `q -> Discard`
//!
//! Message(TEXT, TYPE): prints a text when the configuration is read. An ERROR refuses the configuration.
//! Expects: no packets.
//! Gives: no packets.
//! Handlers: none.
//! Example: `Message("not for production", WARNING)`
//!
//! Align, AlignmentInfo, ScheduleInfo, AddressInfo, PortInfo, Error: Align passes packets. The infos are
//! declarations: names of addresses (`NAME ADDRESS…`) and ports (`NAME PORT/PROTOCOL`); alignment and
//! schedules are accepted without effect.
//! Expects: anything.
//! Gives: the same packets.
//! Handlers: none.
//! Example: `AddressInfo(home 10.0.0.1/8 0:1:2:3:4:5)`

use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::Batch;
use crate::runtime::signal::Signal;
use flame_click::Args;
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("basic.rs");

pub struct Null;

impl Element for Null {
    fn push(&self, cx: &Cx<'_>, _port: usize, batch: Batch) {
        cx.push(0, batch);
    }
    fn pull(&self, cx: &Cx<'_>, _port: usize, max: usize, out: &mut Batch) {
        cx.pull(0, max, out);
    }
}

fn null(_: &mut Args<'_>, _: &Setup<'_>) -> Box<dyn Element> {
    Box::new(Null)
}

class!(NULL, "Null", "1/1", "a/a", [], null);
class!(PUSH_NULL, "PushNull", "1/1", "h/h", [], null);
class!(PULL_NULL, "PullNull", "1/1", "l/l", [], null);
class!(ALIGN, "Align", "1/1", "a/a", [], |args, _| {
    args.req::<usize>("MODULUS");
    args.req::<usize>("OFFSET");
    Box::new(Null)
});

struct Idle;

impl Element for Idle {
    fn push(&self, cx: &Cx<'_>, _port: usize, mut batch: Batch) {
        cx.drop_all("idle", batch.drain(..));
    }
    fn pull(&self, _: &Cx<'_>, _: usize, _: usize, _: &mut Batch) {}
    fn notice(&self, _: usize) -> Notice {
        Notice::Own
    }
}

class!(IDLE, "Idle", "-/-", "a/a", [], |_, _| Box::new(Idle));

/// A declaration, whose arguments were read before.
struct Info;
impl Element for Info {}

fn info(args: &mut Args<'_>, _: &Setup<'_>) -> Box<dyn Element> {
    args.rest();
    Box::new(Info)
}

class!(ADDRESS_INFO, "AddressInfo", "0/0", "a/a", [], info);
class!(PORT_INFO, "PortInfo", "0/0", "a/a", [], info);
class!(ALIGNMENT_INFO, "AlignmentInfo", "0/0", "a/a", [], info);
class!(SCHEDULE_INFO, "ScheduleInfo", "0/0", "a/a", [], info);
class!(ERROR, "Error", "-/-", "a/a", [], |args, _| {
    args.rest();
    args.error("this element could not be made");
    Box::new(Info)
});

class!(MESSAGE, "Message", "0/0", "a/a", ["TYPE"], |args, setup| {
    let kind = args.key::<String>("TYPE");
    let text: String = args.req("MESSAGE");
    match kind.or_else(|| args.opt("TYPE")).as_deref() {
        Some("ERROR") => args.error(text),
        Some("WARNING") => setup.router.warn(text),
        None | Some("MESSAGE") => setup.router.warnings.borrow_mut().push(text),
        Some(other) => args.error(format!("TYPE: expected MESSAGE, WARNING or ERROR, found '{other}'")),
    }
    Box::new(Info)
});

struct Discard {
    is_active: Cell<bool>,
    burst: usize,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

impl Element for Discard {
    fn push(&self, cx: &Cx<'_>, _port: usize, mut batch: Batch) {
        add(&self.count, batch.len());
        cx.drop_all("discarded", batch.drain(..));
    }

    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        if cx.router.nodes[cx.me].inputs.iter().any(|i| !i.is_push) {
            *self.signal.borrow_mut() = cx.upstream_signal(0);
            if self.signal.borrow().is_active(cx.router) {
                cx.reschedule();
            }
        }
        Ok(())
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if !self.is_active.get() {
            return false;
        }
        let mut batch = Batch::default();
        cx.pull(0, self.burst, &mut batch);
        let count = batch.len();
        self.push(cx, 0, batch);
        if count > 0 || self.signal.borrow().is_active(cx.router) {
            cx.reschedule();
        }
        count > 0
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "count" => Some(Ok(self.count.get().to_string())),
            "active" => Some(Ok(self.is_active.get().to_string())),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "reset_counts" => self.count.set(0),
            "active" => match flame_click::value::boolean(value) {
                Some(active) => {
                    self.is_active.set(active);
                    cx.reschedule();
                }
                None => return Some(Err(format!("expected true or false, found '{value}'"))),
            },
            _ => return None,
        }
        Some(Ok(()))
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.count]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r"), ("active", "rw"), ("scheduled", "r"), ("reset_counts", "w")]
    }
}

class!(DISCARD, "Discard", "1/0", "a/a", ["ACTIVE", "BURST"], |args, _| {
    Box::new(Discard {
        is_active: Cell::new(args.key("ACTIVE").unwrap_or(true)),
        burst: args.key("BURST").unwrap_or(1).max(1),
        count: Cell::new(0),
        signal: RefCell::default(),
    })
});
