//! Unqueue(BURST, ACTIVE, LIMIT): pulls packets and pushes them as fast as possible.
//! Expects: packets to pull.
//! Gives: the same packets, pushed, at most LIMIT.
//! Handlers: count, active (rw), limit (rw), reset (w), scheduled.
//! Example: `q -> Unqueue -> next`
//!
//! RatedUnqueue(RATE, BURST_SIZE, BURST_DURATION), BandwidthRatedUnqueue(RATE, BURST_BYTES, BURST_DURATION),
//! RatedSplitter(RATE, …), BandwidthRatedSplitter(RATE, …): limit packets, or bytes, a second. The splitters
//! are pushed to and send what exceeds the rate to output 1.
//! Expects: packets to pull; the splitters are pushed to.
//! Gives: packets within the rate.
//! Handlers: rate (rw).
//! Example: `q -> BandwidthRatedUnqueue(100kBps) -> out`
//!
//! Shaper(RATE), BandwidthShaper(RATE): give at most RATE packets (bytes) a second when pulled, and after a
//! pause those of at most 10 ms at once, which `reset` takes away. Output 1, if connected, gives packets when
//! output 0 may not; then elements that pull are not notified of packets, and poll.
//! Expects: packets to pull.
//! Gives: packets, pulled.
//! Handlers: rate (rw), reset (w).
//! Example: `q -> Shaper(1000) -> out`
//!
//! DelayShaper(DELAY), DelayUnqueue(DELAY), LinkUnqueue(LATENCY, BANDWIDTH): give a packet DELAY after its
//! timestamp; one without (less than a second) gets that of now. LinkUnqueue behaves as a link of this
//! latency and bandwidth.
//! Expects: packets to pull.
//! Gives: packets; DelayShaper is pulled, the others push.
//! Handlers: length, delay, latency, bandwidth.
//! Example: `q -> LinkUnqueue(5ms, 100kb/s) -> out`
//!
//! TimedSink(INTERVAL): pulls and drops a packet each INTERVAL.
//! Expects: packets to pull.
//! Gives: nothing.
//! Handlers: count.
//! Example: `q -> TimedSink(1ms)`

use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Batch, Packet};
use crate::runtime::signal::Signal;
use crate::runtime::tokens::Bucket;
use flame_click::time::SECOND;
use flame_click::value::boolean;
use flame_click::{Args, Nanos, Rate};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

const SOURCE: &str = include_str!("unqueue.rs");

struct Unqueue {
    burst: usize,
    is_active: Cell<bool>,
    limit: Cell<i64>,
    count: Cell<u64>,
    signal: RefCell<Signal>,
}

impl Element for Unqueue {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.signal.borrow_mut() = cx.upstream_signal(0);
        cx.reschedule();
        Ok(())
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let left = u64::try_from(self.limit.get()).map_or(usize::MAX, |l| {
            usize::try_from(l.saturating_sub(self.count.get())).unwrap_or(usize::MAX)
        });
        if !self.is_active.get() || left == 0 {
            return false;
        }
        let mut batch = Batch::default();
        cx.pull(0, self.burst.min(left), &mut batch);
        let count = batch.len();
        add(&self.count, count);
        cx.push(0, batch);
        if count > 0 || self.signal.borrow().is_active(cx.router) {
            cx.reschedule();
        }
        count > 0
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "count" => self.count.get().to_string(),
            "active" => self.is_active.get().to_string(),
            "limit" => self.limit.get().to_string(),
            _ => return None,
        }))
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "reset" => self.count.set(0),
            "active" => match boolean(value) {
                Some(active) => self.is_active.set(active),
                None => return Some(Err(format!("expected true or false, found '{value}'"))),
            },
            "limit" => match value.trim().parse() {
                Ok(limit) => self.limit.set(limit),
                Err(_) => return Some(Err(format!("expected a number, found '{value}'"))),
            },
            _ => return None,
        }
        cx.reschedule();
        Some(Ok(()))
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        // A limit holds for each configuration, as in Click.
        if self.limit.get() < 0 { vec![&self.count] } else { Vec::new() }
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r"), ("active", "rw"), ("limit", "rw"), ("reset", "w"), ("scheduled", "r")]
    }
}

class!(UNQUEUE, "Unqueue", "1/1", "l/h", ["BURST", "ACTIVE", "LIMIT"], |args, _| {
    let burst: i64 = args.opt("BURST").unwrap_or(1);
    Box::new(Unqueue {
        burst: usize::try_from(burst).ok().filter(|b| *b > 0).unwrap_or(usize::MAX).min(1024),
        is_active: Cell::new(args.opt("ACTIVE").unwrap_or(true)),
        limit: Cell::new(args.key("LIMIT").unwrap_or(-1)),
        count: Cell::new(0),
        signal: RefCell::default(),
    })
});

/// A rate in packets or bytes.
struct Limit {
    bucket: RefCell<Bucket>,
    in_bytes: bool,
}

impl Limit {
    fn rate(args: &mut Args<'_>, in_bytes: bool) -> u64 {
        match in_bytes {
            true => args.req::<Rate>("RATE").0,
            false => args.req::<u64>("RATE"),
        }
    }

    fn of(args: &mut Args<'_>, in_bytes: bool) -> Self {
        let rate = Self::rate(args, in_bytes);
        let size: Option<u64> = args.key(if in_bytes { "BURST_BYTES" } else { "BURST_SIZE" });
        let duration: Nanos = args.key("BURST_DURATION").unwrap_or(Nanos(SECOND / 50));
        let tokens = i128::from(rate) * i128::from(duration.0.max(0)) / i128::from(SECOND);
        let size = size.unwrap_or(u64::try_from(tokens).unwrap_or(u64::MAX));
        Self { bucket: RefCell::new(Bucket::new(rate, size, Nanos::ZERO)), in_bytes }
    }

    fn start(&self, cx: &Cx<'_>) {
        let (rate, size) = {
            let b = self.bucket.borrow();
            (b.rate, b.size)
        };
        *self.bucket.borrow_mut() = Bucket::new(rate, size, cx.now());
    }

    /// Returns whether a packet may pass now. Bytes are paid afterwards, so that any packet fits the bucket.
    fn allows(&self, cx: &Cx<'_>) -> bool {
        let mut bucket = self.bucket.borrow_mut();
        bucket.refill(cx.now());
        bucket.contains(u64::from(!self.in_bytes))
    }

    fn pay(&self, p: &Packet) {
        let length = p.len() as u64 + u64::from(p.anno.u32(ANNO_EXTRA_LENGTH));
        self.bucket.borrow_mut().remove(if self.in_bytes { length } else { 1 });
    }

    fn wait(&self) -> Nanos {
        let exact = self.bucket.borrow().until(u64::from(!self.in_bytes));
        match self.in_bytes {
            true => exact,
            // Click's buckets count milliseconds and wake a moment later.
            false => Nanos((exact.0 / 1_000_000 + 1 + i64::from(exact.0 % 1_000_000 != 0)) * 1_000_000),
        }
    }

    fn read(&self, name: &str) -> Option<Result<String, String>> {
        (name == "rate").then(|| Ok(self.bucket.borrow().rate.to_string()))
    }
}

struct RatedUnqueue {
    limit: Limit,
    signal: RefCell<Signal>,
}

impl Element for RatedUnqueue {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        self.limit.start(cx);
        *self.signal.borrow_mut() = cx.upstream_signal(0);
        cx.reschedule();
        Ok(())
    }
    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if !self.limit.allows(cx) {
            cx.timer_after(0, self.limit.wait());
            return false;
        }
        let packet = cx.pull_one(0);
        let is_busy = packet.is_some();
        if let Some(p) = packet {
            self.limit.pay(&p);
            cx.push_one(0, p);
        }
        if is_busy || self.signal.borrow().is_active(cx.router) {
            cx.reschedule();
        }
        is_busy
    }
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        self.run_task(cx);
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        self.limit.read(name)
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "rate").then(|| cx.router.set_argument(cx.me, "RATE", 0, value))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("rate", "rw"), ("scheduled", "r")]
    }
}

fn rated_unqueue(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let limit = Limit::of(args, setup.class.starts_with("Bandwidth"));
    Box::new(RatedUnqueue { limit, signal: RefCell::default() })
}

class!(RATED_UNQUEUE, "RatedUnqueue", "1/1", "l/h", ["RATE", "BURST_SIZE", "BURST_DURATION"], rated_unqueue);
class!(
    BANDWIDTH_RATED_UNQUEUE,
    "BandwidthRatedUnqueue",
    "1/1",
    "l/h",
    ["RATE", "BURST_BYTES", "BURST_DURATION"],
    rated_unqueue
);

struct RatedSplitter(Limit);

impl Element for RatedSplitter {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        self.0.start(cx);
        Ok(())
    }
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            match self.0.allows(cx) {
                true => {
                    self.0.pay(&p);
                    cx.push_one(0, p);
                }
                false => cx.push_or_drop(1, "over the rate", p),
            }
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        self.0.read(name)
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "rate").then(|| cx.router.set_argument(cx.me, "RATE", 0, value))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("rate", "rw")]
    }
}

fn rated_splitter(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    Box::new(RatedSplitter(Limit::of(args, setup.class.starts_with("Bandwidth"))))
}

class!(
    RATED_SPLITTER,
    "RatedSplitter",
    "1/1-2",
    "h/h",
    ["RATE", "BURST_SIZE", "BURST_DURATION"],
    rated_splitter
);
class!(
    BANDWIDTH_RATED_SPLITTER,
    "BandwidthRatedSplitter",
    "1/1-2",
    "h/h",
    ["RATE", "BURST_BYTES", "BURST_DURATION"],
    rated_splitter
);

struct Shaper {
    limit: Limit,
    /// Whether output 1 gives packets when output 0 may not. Then those who pull must ask.
    has_spare: bool,
    signal: RefCell<Signal>,
}

impl Shaper {
    /// Returns how long those who pull sleep: until a part of what may be saved is there.
    fn sleep(&self) -> Nanos {
        let bucket = self.limit.bucket.borrow();
        let least = u64::from(!self.limit.in_bytes);
        bucket.until((bucket.size / 4).max(least))
    }
}

impl Element for Shaper {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        self.limit.start(cx);
        *self.signal.borrow_mut() = cx.upstream_signal(0);
        cx.set_filled(true);
        Ok(())
    }
    fn pull(&self, cx: &Cx<'_>, port: usize, max: usize, out: &mut Batch) {
        for _ in 0..max {
            if self.limit.allows(cx) != (port == 0) {
                if port == 0 {
                    // Those who pull sleep until the rate allows a packet.
                    cx.set_filled(false);
                    cx.timer_after(0, self.sleep());
                }
                return;
            }
            let Some(p) = cx.pull_one(0) else {
                return cx.set_filled(self.signal.borrow().is_active(cx.router));
            };
            if port == 0 {
                self.limit.pay(&p);
            }
            out.push(p);
        }
    }
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        cx.set_filled(true);
    }
    fn woken(&self, cx: &Cx<'_>) {
        // While the timer is set, the rate allows nothing.
        if cx.router.timer_time(cx.me, 0).is_none() {
            cx.set_filled(true);
        }
    }
    fn notice(&self, _: usize) -> Notice {
        if self.has_spare { Notice::Silent } else { Notice::Own }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        self.limit.read(name)
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "rate" => Some(cx.router.set_argument(cx.me, "RATE", 0, value)),
            "reset" => {
                self.limit.start(cx);
                let mut bucket = self.limit.bucket.borrow_mut();
                let saved = bucket.size;
                bucket.remove(saved);
                drop(bucket);
                cx.set_filled(true);
                Some(Ok(()))
            }
            _ => None,
        }
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("rate", "rw"), ("reset", "w")]
    }
}

fn shaper(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let in_bytes = setup.class.starts_with("Bandwidth");
    let rate = Limit::rate(args, in_bytes);
    // A shaper keeps gaps. It saves up what a timer that is late would lose: 10 ms.
    let limit = Limit { bucket: RefCell::new(Bucket::new(rate, rate / 100, Nanos::ZERO)), in_bytes };
    Box::new(Shaper { limit, has_spare: setup.outputs > 1, signal: RefCell::default() })
}

class!(SHAPER, "Shaper", "1/1-2", "l/l", ["RATE", "BURST_SIZE", "BURST_DURATION"], shaper);
class!(
    BANDWIDTH_SHAPER,
    "BandwidthShaper",
    "1/1-2",
    "l/l",
    ["RATE", "BURST_BYTES", "BURST_DURATION"],
    shaper
);

/// Gives a packet without a timestamp the time of now.
fn timed(cx: &Cx<'_>, mut p: Packet) -> Packet {
    if p.anno.time < Nanos(SECOND) {
        p.anno.time = cx.now();
    }
    p
}

struct DelayShaper {
    delay: Nanos,
    next: RefCell<Option<Packet>>,
    signal: RefCell<Signal>,
}

impl Element for DelayShaper {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.signal.borrow_mut() = cx.upstream_signal(0);
        cx.set_filled(true);
        Ok(())
    }
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        for _ in 0..max {
            let next = self.next.take().or_else(|| cx.pull_one(0).map(|p| timed(cx, p)));
            let Some(p) = next else {
                cx.set_filled(self.signal.borrow().is_active(cx.router));
                return;
            };
            let time = p.anno.time + self.delay;
            if time > cx.now() {
                *self.next.borrow_mut() = Some(p);
                cx.set_filled(false);
                return cx.timer_at(0, time);
            }
            out.push(p);
        }
    }
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        cx.set_filled(true);
    }
    fn woken(&self, cx: &Cx<'_>) {
        if self.next.borrow().is_none() {
            cx.set_filled(true);
        }
    }
    fn notice(&self, _: usize) -> Notice {
        Notice::Own
    }
    fn held(&self) -> usize {
        usize::from(self.next.borrow().is_some())
    }
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if let Some(p) = old.next.take()
            && let Some(p) = self.next.replace(Some(p))
        {
            cx.drop("replaced", p);
        }
        // Those who pull ask again, and then the timer is set for the new delay.
        cx.set_filled(true);
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "delay").then(|| Ok(self.delay.to_string()))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("delay", "r")]
    }
}

class!(DELAY_SHAPER, "DelayShaper", "1/1", "l/l", ["DELAY"], |args, _| {
    Box::new(DelayShaper { delay: args.req("DELAY"), next: RefCell::default(), signal: RefCell::default() })
});

/// Packets on their way through a link, each with the time when it arrives.
struct Link {
    latency: Nanos,
    /// Bytes a second; none for a mere delay.
    bandwidth: Option<u64>,
    on_the_way: RefCell<VecDeque<(Nanos, Packet)>>,
    free_at: Cell<Nanos>,
    signal: RefCell<Signal>,
}

impl Element for Link {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.signal.borrow_mut() = cx.upstream_signal(0);
        cx.reschedule();
        Ok(())
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let now = cx.now();
        let mut is_busy = false;
        while self.on_the_way.borrow().front().is_some_and(|(t, _)| *t <= now) {
            let Some((time, mut p)) = self.on_the_way.borrow_mut().pop_front() else { break };
            if self.bandwidth.is_some() {
                p.anno.time = time;
            }
            is_busy = true;
            cx.push_one(0, p);
        }
        // A link takes the next packet when the last one is on its way; a delay keeps one.
        let may_take = match self.bandwidth {
            Some(_) => self.free_at.get() <= now,
            None => self.on_the_way.borrow().is_empty(),
        };
        if may_take {
            if let Some(mut p) = cx.pull_one(0) {
                is_busy = true;
                let arrives = match self.bandwidth {
                    Some(bandwidth) => {
                        let length = p.len() as u64 + u64::from(p.anno.u32(ANNO_EXTRA_LENGTH));
                        let nanos = u128::from(length) * SECOND as u128 / u128::from(bandwidth.max(1));
                        let sent =
                            self.free_at.get().max(now) + Nanos(i64::try_from(nanos).unwrap_or(i64::MAX));
                        self.free_at.set(sent);
                        sent + self.latency
                    }
                    None => {
                        p = timed(cx, p);
                        p.anno.time + self.latency
                    }
                };
                self.on_the_way.borrow_mut().push_back((arrives, p));
            } else if self.signal.borrow().is_active(cx.router) {
                cx.reschedule();
            }
        }
        let next = self.on_the_way.borrow().front().map(|(t, _)| *t);
        let free = Some(self.free_at.get()).filter(|t| *t > now);
        match next.into_iter().chain(free).min() {
            Some(time) if time <= now => cx.reschedule(),
            Some(time) => cx.timer_at(0, time),
            None => {}
        }
        is_busy
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        self.run_task(cx);
    }
    fn held(&self) -> usize {
        self.on_the_way.borrow().len()
    }
    /// Takes over packets in transit, which arrive at their time, or after those that were sent before them.
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        self.on_the_way.borrow_mut().append(&mut old.on_the_way.borrow_mut());
        self.free_at.set(self.free_at.get().max(old.free_at.get()));
        cx.reschedule();
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "length" | "size" => self.on_the_way.borrow().len().to_string(),
            "latency" | "delay" => self.latency.to_string(),
            "bandwidth" => self.bandwidth.unwrap_or(0).to_string(),
            _ => return None,
        }))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("length", "r"), ("latency", "r"), ("bandwidth", "r"), ("scheduled", "r")]
    }
}

fn link(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let is_link = setup.class == "LinkUnqueue";
    let latency = args.req(if is_link { "LATENCY" } else { "DELAY" });
    let bandwidth = is_link.then(|| args.req::<Rate>("BANDWIDTH").0);
    if bandwidth == Some(0) {
        args.error("BANDWIDTH: expected a positive rate");
    }
    Box::new(Link {
        latency,
        bandwidth,
        on_the_way: RefCell::default(),
        free_at: Cell::new(Nanos::ZERO),
        signal: RefCell::default(),
    })
}

class!(LINK_UNQUEUE, "LinkUnqueue", "1/1", "l/h", ["LATENCY", "BANDWIDTH"], link);
class!(DELAY_UNQUEUE, "DelayUnqueue", "1/1", "l/h", ["DELAY"], link);

struct TimedSink(Nanos, Cell<u64>);

impl Element for TimedSink {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        cx.timer_after(0, self.0);
        Ok(())
    }
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        cx.timer_after(0, self.0);
        if let Some(p) = cx.pull_one(0) {
            add(&self.1, 1);
            cx.drop("discarded", p);
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "count").then(|| Ok(self.1.get().to_string()))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.1]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r")]
    }
}

class!(TIMED_SINK, "TimedSink", "1/0", "l/l", ["INTERVAL"], |args, _| {
    let interval = args.opt("INTERVAL").unwrap_or(Nanos(SECOND / 2));
    if interval.0 <= 0 {
        args.error("INTERVAL: expected a positive time");
    }
    Box::new(TimedSink(interval, Cell::new(0)))
});
