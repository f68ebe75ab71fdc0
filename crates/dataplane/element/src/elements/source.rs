//! InfiniteSource(DATA, LIMIT, BURST, ACTIVE, LENGTH, STOP, TIMESTAMP), RatedSource(DATA, RATE, LIMIT,
//! ACTIVE, LENGTH, STOP), TimedSource(INTERVAL, DATA, LIMIT, ACTIVE, STOP): make packets as fast as possible,
//! at RATE packets a second, or one each INTERVAL.
//! Expects: nothing.
//! Gives: LIMIT packets (-1: without end). InfiniteSource sleeps while the queues after it are full; a queue
//! drops those packets of a burst for which it has no room.
//! Handlers: count, limit (rw), active (rw), data (rw), rate (rw), burst (rw), interval (rw), reset (w).
//! Example: `InfiniteSource(\<45 00>, LIMIT 100, STOP true) -> q`

use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::loops::Loops;
use crate::runtime::packet::{Batch, Packet};
use crate::runtime::signal::Signal;
use crate::runtime::tokens::Bucket;
use flame_click::value::{Data, boolean, unparse_data};
use flame_click::{Args, Nanos, text};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("source.rs");

/// The default contents of a source's packets.
const RANDOM: &[u8] = b"Random bullshit in a packet, at least 64 bytes long. Well, now it is.";

/// Packets of a burst that are made at once.
const CHUNK: usize = 1024;
/// Packets of a burst that are made in one step.
const STEP: usize = 64 * CHUNK;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Infinite,
    Rate,
    Interval,
}

struct Source {
    pace: Pace,
    template: RefCell<Packet>,
    limit: Cell<i64>,
    burst: Cell<usize>,
    is_active: Cell<bool>,
    stop: bool,
    has_stopped: Cell<bool>,
    rate: Cell<u64>,
    interval: Cell<Nanos>,
    count: Cell<u64>,
    bucket: RefCell<Bucket>,
    timestamp: bool,
    signal: RefCell<Signal>,
}

impl Source {
    /// Returns how many packets it may still make.
    fn left(&self) -> usize {
        match u64::try_from(self.limit.get()) {
            Ok(limit) if self.is_active.get() => limit.saturating_sub(self.count.get()) as usize,
            Err(_) if self.is_active.get() => usize::MAX,
            _ => 0,
        }
    }

    fn make(&self, cx: &Cx<'_>, count: usize, out: &mut Batch) {
        let template = self.template.borrow();
        let now = if self.timestamp { cx.now() } else { Nanos::ZERO };
        for _ in 0..count {
            let mut p = template.clone();
            p.anno.time = now;
            p.anno.loops = Loops::default();
            out.push(p);
        }
        cx.made(count);
        add(&self.count, count);
    }

    /// Asks the run to stop, once, when there is nothing left to make.
    fn check_end(&self, cx: &Cx<'_>) {
        if self.left() == 0 && self.is_active.get() && self.stop && !self.has_stopped.replace(true) {
            cx.router.please_stop();
        }
    }

    fn wake(&self, cx: &Cx<'_>) {
        let is_pulled = cx.router.nodes[cx.me].outputs.iter().any(|o| !o.is_push);
        if is_pulled {
            cx.set_filled(self.left() > 0);
        } else if self.left() > 0 {
            match self.pace {
                Pace::Interval => cx.timer_after(0, self.interval.get()),
                _ => cx.reschedule(),
            }
        } else {
            self.check_end(cx);
        }
    }
}

impl Element for Source {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        if self.pace == Pace::Infinite && cx.router.nodes[cx.me].outputs[0].is_push {
            *self.signal.borrow_mut() = cx.downstream_signal(0);
        }
        self.bucket.borrow_mut().refill(cx.now());
        self.wake(cx);
        Ok(())
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let mut count = self.left().min(self.burst.get());
        match self.pace {
            Pace::Infinite if count > 0 && !self.signal.borrow().is_active(cx.router) => return false,
            Pace::Rate => {
                let mut bucket = self.bucket.borrow_mut();
                bucket.refill(cx.now());
                if count > 0 && !bucket.contains(1) {
                    cx.timer_after(0, bucket.until(1));
                    return false;
                }
                count = count.min(1);
                bucket.remove(count as u64);
            }
            _ => {}
        }
        // A large burst is made in chunks, and continues in the next step.
        count = count.min(STEP);
        for start in (0..count).step_by(CHUNK) {
            let mut batch = Batch::default();
            // The chunk before may have stopped the source.
            self.make(cx, CHUNK.min(count - start).min(self.left()), &mut batch);
            cx.push(0, batch);
        }
        // After the last packet it runs once more, so that others have their turn before the run stops.
        if count == 0 {
            self.check_end(cx);
        } else if self.pace != Pace::Interval || self.left() == 0 {
            cx.reschedule();
        }
        count > 0
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        if self.pace == Pace::Interval && self.left() > 1 {
            cx.timer_after(0, self.interval.get());
        }
        self.run_task(cx);
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let mut count = self.left().min(max);
        if self.pace == Pace::Rate {
            let mut bucket = self.bucket.borrow_mut();
            bucket.refill(cx.now());
            while count > 0 && !bucket.contains(count as u64) {
                count -= 1;
            }
            bucket.remove(count as u64);
        }
        self.make(cx, count, out);
        if count == 0 {
            cx.set_filled(self.left() > 0);
            self.check_end(cx);
        }
    }

    fn notice(&self, _: usize) -> Notice {
        Notice::Own
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "count" => self.count.get().to_string(),
            "limit" => self.limit.get().to_string(),
            "active" => self.is_active.get().to_string(),
            "burst" => self.burst.get().to_string(),
            "rate" => self.rate.get().to_string(),
            "interval" => self.interval.get().to_string(),
            "data" => unparse_data(self.template.borrow().data()),
            _ => return None,
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let bad = |expected: &str| Some(Err(format!("expected {expected}, found '{value}'")));
        self.has_stopped.set(false);
        match name {
            "reset" => self.count.set(0),
            "active" => match boolean(value) {
                Some(active) => self.is_active.set(active),
                None => return bad("true or false"),
            },
            "limit" => match value.trim().parse() {
                Ok(limit) => self.limit.set(limit),
                Err(_) => return bad("a number"),
            },
            "burst" => match value.trim().parse::<usize>() {
                Ok(burst) if burst > 0 => self.burst.set(burst),
                _ => return bad("a positive number"),
            },
            "rate" => match value.trim().parse() {
                Ok(rate) => {
                    self.rate.set(rate);
                    *self.bucket.borrow_mut() = Bucket::new(rate, size(rate), cx.now());
                }
                Err(_) => return bad("packets per second"),
            },
            "interval" => match Nanos::parse(value.trim()) {
                Some(interval) if interval.0 > 0 => self.interval.set(interval),
                _ => return bad("a time"),
            },
            "data" => *self.template.borrow_mut() = Packet::new(&text::encode(&text::unquote(value))),
            _ => return None,
        }
        self.wake(cx);
        Some(Ok(()))
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        // A limit holds for each configuration, as in Click.
        if self.limit.get() < 0 { vec![&self.count] } else { Vec::new() }
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("count", "r"),
            ("limit", "rw"),
            ("active", "rw"),
            ("burst", "rw"),
            ("rate", "rw"),
            ("interval", "rw"),
            ("data", "rw"),
            ("scheduled", "r"),
            ("reset", "w"),
        ]
    }
}

/// Returns the number of tokens that a source of this rate may save: those of 20 ms.
fn size(rate: u64) -> u64 {
    (rate / 50).max(1)
}

fn source(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let pace = match setup.class {
        "RatedSource" => Pace::Rate,
        "TimedSource" => Pace::Interval,
        _ => Pace::Infinite,
    };
    let interval =
        if pace == Pace::Interval { args.opt("INTERVAL") } else { None }.unwrap_or(Nanos(500_000_000));
    let data = args.opt::<Data>("DATA").map_or(RANDOM.to_vec(), |d| d.0);
    let rate = if pace == Pace::Rate { args.opt("RATE") } else { None }.unwrap_or(10);
    let limit = if pace == Pace::Interval { args.key("LIMIT") } else { args.opt("LIMIT") }.unwrap_or(-1);
    let burst = if pace == Pace::Infinite { args.opt("BURST") } else { None }.unwrap_or(1_u32);
    let is_active = if pace == Pace::Interval { args.key("ACTIVE") } else { args.opt("ACTIVE") };
    let mut bytes = data;
    if let Some(length) = args.key::<u16>("LENGTH").or_else(|| args.key("DATASIZE")) {
        let length = usize::from(length);
        bytes = bytes.iter().copied().cycle().take(if bytes.is_empty() { 0 } else { length }).collect();
    }
    args.ignore::<u32>("HEADROOM");
    if interval.0 <= 0 {
        args.error("INTERVAL: expected a positive time");
    }
    if burst == 0 {
        args.error("BURST: expected a positive number, found 0");
    }
    Box::new(Source {
        pace,
        template: RefCell::new(Packet::new(&bytes)),
        limit: Cell::new(limit),
        burst: Cell::new(burst as usize),
        is_active: Cell::new(is_active.unwrap_or(true)),
        stop: args.key("STOP").unwrap_or(false),
        has_stopped: Cell::new(false),
        rate: Cell::new(rate),
        interval: Cell::new(interval),
        count: Cell::new(0),
        bucket: RefCell::new(Bucket::new(rate, size(rate), Nanos::ZERO)),
        timestamp: args.key("TIMESTAMP").unwrap_or(true),
        signal: RefCell::default(),
    })
}

class!(
    INFINITE_SOURCE,
    "InfiniteSource",
    "0/1",
    "a/a",
    ["DATA", "LIMIT", "BURST", "ACTIVE", "LENGTH", "DATASIZE", "STOP", "TIMESTAMP", "HEADROOM"],
    source
);
class!(
    RATED_SOURCE,
    "RatedSource",
    "0/1",
    "a/a",
    ["DATA", "RATE", "LIMIT", "ACTIVE", "LENGTH", "DATASIZE", "STOP", "TIMESTAMP"],
    source
);
class!(
    TIMED_SOURCE,
    "TimedSource",
    "0/1",
    "h/h",
    ["INTERVAL", "DATA", "LIMIT", "ACTIVE", "STOP", "TIMESTAMP", "HEADROOM"],
    source
);
