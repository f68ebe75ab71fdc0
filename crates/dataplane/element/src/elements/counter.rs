//! Counter(COUNT_CALL N HANDLER VALUE, BYTE_COUNT_CALL …), AverageCounter(IGNORE): count packets and bytes.
//! Expects: anything.
//! Gives: the same packets.
//! Handlers: count, byte_count, rate, byte_rate, bit_rate, reset (w), count_call, byte_count_call.
//! Example: `c :: Counter(COUNT_CALL 100 stop)`
//!
//! AggregateCounter(BYTES): counts packets, or bytes, by their aggregate annotation.
//! Expects: packets with aggregates. Packets at input 1, if connected, are counted and leave by output 1.
//! Gives: the same packets.
//! Handlers: count, nagg, write_text_file (w), clear (w).
//! Example: `a :: AggregateCounter; DriverManager(pause, write a.write_text_file -)`

use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_AGGREGATE, Batch, Packet};
use flame_click::value::Raw;
use flame_click::{Args, Nanos, text};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

const SOURCE: &str = include_str!("counter.rs");

/// A handler to call when a count reaches a limit.
#[derive(Clone, Default)]
struct Call {
    limit: u64,
    handler: String,
    value: String,
}

impl Call {
    fn of(args: &mut Args<'_>, key: &str) -> Option<Self> {
        let raw: Raw = args.key(key)?;
        let (limit, rest) = text::first_word(&raw.0);
        let (handler, value) = text::first_word(&rest);
        match limit.parse() {
            Ok(limit) if !handler.is_empty() => Some(Self { limit, handler, value: text::unquote(&value) }),
            _ => {
                args.error(format!("{key}: expected 'COUNT HANDLER VALUE', found '{}'", raw.0));
                None
            }
        }
    }

    fn run(&self, cx: &Cx<'_>) {
        if let Err(text) = cx.router.write(Some(cx.me), &self.handler, &self.value) {
            cx.error(&text);
        }
    }
}

struct Counter {
    /// Elements that replace each other count together: the old one may still be at work.
    totals: RefCell<Arc<Totals>>,
    count_call: RefCell<Option<Call>>,
    byte_call: RefCell<Option<Call>>,
    /// The time at the start in which packets do not count in rates.
    ignore: Nanos,
}

/// One thread at a time uses them: they are atomic so that an element may go to another one.
struct Totals {
    count: AtomicU64,
    bytes: AtomicU64,
    /// The times of the first and last packets, or [`NEVER`].
    first: AtomicI64,
    last: AtomicI64,
    /// The packets and bytes that count in rates.
    counted: [AtomicU64; 2],
}

/// The time of a packet that did not come yet.
const NEVER: i64 = i64::MIN;

impl Default for Totals {
    fn default() -> Self {
        let (first, last) = (AtomicI64::new(NEVER), AtomicI64::default());
        Self {
            count: AtomicU64::default(),
            bytes: AtomicU64::default(),
            first,
            last,
            counted: Default::default(),
        }
    }
}

/// Adds to a count that one thread uses, and returns it.
fn add_to(count: &AtomicU64, more: u64) -> u64 {
    let sum = count.load(Relaxed).wrapping_add(more);
    count.store(sum, Relaxed);
    sum
}

impl Counter {
    fn totals(&self) -> Arc<Totals> {
        self.totals.borrow().clone()
    }

    fn rate(&self, cx: &Cx<'_>) -> (f64, f64) {
        let totals = self.totals();
        let first = totals.first.load(Relaxed);
        if first == NEVER {
            return (0.0, 0.0);
        }
        let end = if cx.class() == "AverageCounter" { Nanos(totals.last.load(Relaxed)) } else { cx.now() };
        let seconds = (end - Nanos(first) - self.ignore).secs();
        let [packets, bytes] = [0, 1].map(|n| totals.counted[n].load(Relaxed));
        let seconds = if seconds <= 0.0 { 1.0 } else { seconds };
        (packets as f64 / seconds, bytes as f64 / seconds)
    }

    fn count(&self, cx: &Cx<'_>, totals: &Totals, now: Nanos, p: &Packet) {
        let length = p.len() + p.anno.u32(crate::runtime::packet::ANNO_EXTRA_LENGTH) as usize;
        let counts = [add_to(&totals.count, 1), add_to(&totals.bytes, length as u64)];
        let mut first = totals.first.load(Relaxed);
        if first == NEVER {
            first = now.0;
            totals.first.store(first, Relaxed);
        }
        totals.last.store(now.0, Relaxed);
        if now - Nanos(first) >= self.ignore {
            add_to(&totals.counted[0], 1);
            add_to(&totals.counted[1], length as u64);
        }
        for (call, count) in [&self.count_call, &self.byte_call].into_iter().zip(counts) {
            let due = call.borrow().as_ref().is_some_and(|c| count >= c.limit);
            if due && let Some(call) = call.take() {
                call.run(cx);
            }
        }
    }

    /// Counts packets at one time. Reading the clock for each costs more than to count it.
    fn count_all(&self, cx: &Cx<'_>, packets: &[Packet]) {
        if !packets.is_empty() {
            let (now, totals) = (cx.now(), self.totals());
            packets.iter().for_each(|p| self.count(cx, &totals, now, p));
        }
    }
}

impl Element for Counter {
    fn push(&self, cx: &Cx<'_>, _: usize, batch: Batch) {
        self.count_all(cx, &batch);
        cx.push(0, batch);
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let before = out.len();
        cx.pull(0, max, out);
        self.count_all(cx, &out[before..]);
    }

    fn read(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        let call = |c: &RefCell<Option<Call>>| match &*c.borrow() {
            Some(c) => format!("{} {} {}", c.limit, c.handler, c.value),
            None => String::new(),
        };
        Some(Ok(match name {
            "count" => self.totals().count.load(Relaxed).to_string(),
            "byte_count" => self.totals().bytes.load(Relaxed).to_string(),
            "rate" => self.rate(cx).0.to_string(),
            "byte_rate" => self.rate(cx).1.to_string(),
            "bit_rate" => (self.rate(cx).1 * 8.0).to_string(),
            "count_call" => call(&self.count_call),
            "byte_count_call" => call(&self.byte_call),
            _ => return None,
        }))
    }

    fn write(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        if !matches!(name, "reset" | "reset_counts") {
            return None;
        }
        let totals = self.totals();
        totals.first.store(NEVER, Relaxed);
        let [packets, bytes] = &totals.counted;
        [&totals.count, &totals.bytes, packets, bytes].iter().for_each(|count| count.store(0, Relaxed));
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("count", "r"),
            ("byte_count", "r"),
            ("rate", "r"),
            ("byte_rate", "r"),
            ("bit_rate", "r"),
            ("reset", "w"),
            ("reset_counts", "w"),
            ("count_call", "r"),
            ("byte_count_call", "r"),
        ]
    }

    fn take_state(&self, _: &Cx<'_>, old: &dyn Element) {
        if let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() {
            self.totals.replace(old.totals());
        }
    }
}

fn counter(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let ignore = if setup.class == "AverageCounter" { args.opt("IGNORE") } else { None };
    Box::new(Counter {
        totals: RefCell::default(),
        count_call: RefCell::new(Call::of(args, "COUNT_CALL")),
        byte_call: RefCell::new(Call::of(args, "BYTE_COUNT_CALL")),
        ignore: ignore.unwrap_or(Nanos::ZERO),
    })
}

class!(COUNTER, "Counter", "1/1", "a/a", ["COUNT_CALL", "BYTE_COUNT_CALL"], counter);
class!(AVERAGE_COUNTER, "AverageCounter", "1/1", "a/a", ["IGNORE"], counter);

struct AggregateCounter {
    bytes: bool,
    counts: RefCell<BTreeMap<u32, u64>>,
    total: Cell<u64>,
}

impl Element for AggregateCounter {
    fn action(&self, _: &Cx<'_>, p: Packet) -> Option<Packet> {
        let amount = if self.bytes { p.len() } else { 1 };
        *self.counts.borrow_mut().entry(p.anno.u32(ANNO_AGGREGATE)).or_default() += amount as u64;
        add(&self.total, amount);
        Some(p)
    }

    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        let mut out = Batch::default();
        out.extend(batch.drain(..).filter_map(|p| self.action(cx, p)));
        cx.push(port.min(cx.outputs() - 1), out);
    }

    /// Pulls from the input of the same number.
    fn pull(&self, cx: &Cx<'_>, port: usize, max: usize, out: &mut Batch) {
        let mut batch = Batch::default();
        cx.pull(port, max, &mut batch);
        out.extend(batch.drain(..).filter_map(|p| self.action(cx, p)));
    }

    fn pulls(&self, output: usize, input: usize) -> bool {
        output == input
    }

    fn pulls_by_output(&self) -> bool {
        true
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "count" => Some(Ok(self.total.get().to_string())),
            "nagg" => Some(Ok(self.counts.borrow().len().to_string())),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "clear" => {
                self.counts.borrow_mut().clear();
                self.total.set(0);
                Some(Ok(()))
            }
            "write_text_file" | "write_file" => {
                let lines: String = self.counts.borrow().iter().map(|(a, n)| format!("{a} {n}\n")).collect();
                let all = format!("!IPAggregate 1.0\n{lines}");
                Some(super::script::functions::write_file(cx, &text::unquote(value), &all, false))
            }
            _ => None,
        }
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.total]
    }

    fn take_state(&self, _: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        let mut counts = self.counts.borrow_mut();
        for (aggregate, count) in old.counts.take() {
            *counts.entry(aggregate).or_default() += count;
        }
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r"), ("nagg", "r"), ("write_text_file", "w"), ("clear", "w")]
    }
}

class!(AGGREGATE_COUNTER, "AggregateCounter", "1-2/1-2", "a/a", ["BYTES"], |args, _| {
    let bytes = args.key("BYTES").unwrap_or(false);
    Box::new(AggregateCounter { bytes, counts: RefCell::default(), total: Cell::new(0) })
});
