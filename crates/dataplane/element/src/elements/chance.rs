//! RandomSample(PROBABILITY), ProbSplitter(PROBABILITY): keep packets at random (send them to output 1).
//! Expects: anything.
//! Gives: 0: sampled packets (those not chosen); 1: the others, which are dropped without it.
//! Handlers: sampling_prob (rw), drops.
//! Example: `RandomSample(0.1) -> ToDump(sample.pcap)`
//!
//! RED(MIN, MAX, MAX_P, STABILITY): drops packets at random as the queues after it fill.
//! Expects: packets, pushed.
//! Gives: 0: packets; 1, if connected: those dropped.
//! Handlers: drops, avg_queue_size, min_thresh, max_thresh.
//! Example: `in -> RED(5, 50, 0.02) -> q :: Queue`
//!
//! SetTimestamp(TIME), SetTimestampDelta(TYPE), TimeFilter(START, END, END_CALL): set timestamps to the clock
//! or a time, or relative to the FIRST packet or the one before; pass packets of a span of time. END_CALL is
//! a handler that is written with the time of the first packet beyond the end.
//! Expects: anything.
//! Gives: packets; 1 of TimeFilter, if connected: packets outside.
//! Handlers: start, end, interval, extend_interval (w).
//! Example: `TimeFilter(10, 20) -> c`

use super::queue::Queue;
use crate::registry::Setup;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Packet;
use flame_click::value::Raw;
use flame_click::{Args, Nanos, text};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

const SOURCE: &str = include_str!("chance.rs");

struct Sample {
    probability: Cell<f64>,
    chosen_stay: bool,
    drops: Cell<u64>,
}

/// Returns true with a probability.
fn chance(cx: &Cx<'_>, probability: f64) -> bool {
    (cx.random(1 << 53) as f64) < probability * (1_u64 << 53) as f64
}

impl Element for Sample {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if chance(cx, self.probability.get()) == self.chosen_stay {
            return Some(p);
        }
        add(&self.drops, 1);
        cx.push_or_drop(1, "not sampled", p);
        None
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "sampling_prob" => Some(Ok(self.probability.get().to_string())),
            "drops" => Some(Ok(self.drops.get().to_string())),
            _ => None,
        }
    }
    fn write(&self, _: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "sampling_prob").then(|| match value.trim().parse() {
            Ok(p) if (0.0..=1.0).contains(&p) => {
                self.probability.set(p);
                Ok(())
            }
            _ => Err(format!("expected a probability, found '{value}'")),
        })
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("sampling_prob", "rw"), ("drops", "r")]
    }
}

fn sample(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let keep: Option<f64> = args.opt("PROBABILITY");
    let lose: Option<f64> = args.key("DROP");
    let probability = keep.or_else(|| lose.map(|d| 1.0 - d)).unwrap_or(0.5);
    if !(0.0..=1.0).contains(&probability) {
        args.error(format!("PROBABILITY: expected 0 to 1, found {probability}"));
    }
    let chosen_stay = setup.class == "RandomSample";
    Box::new(Sample { probability: Cell::new(probability), chosen_stay, drops: Cell::new(0) })
}

class!(RANDOM_SAMPLE, "RandomSample", "1/1-2", "a/ah", ["PROBABILITY", "DROP"], sample);
class!(PROB_SPLITTER, "ProbSplitter", "1/1-2", "a/ah", ["PROBABILITY"], sample);

struct Red {
    min: f64,
    max: f64,
    max_p: f64,
    /// The weight of a new queue length in the average: 1 over a power of two.
    weight: f64,
    average: Cell<f64>,
    since_drop: Cell<u32>,
    queues: RefCell<Vec<usize>>,
    drops: Cell<u64>,
}

/// Returns the next queues after an element, or before it if it is pulled, whether they notify or not.
fn nearest_queues(cx: &Cx<'_>) -> Vec<usize> {
    let nodes = &cx.router.nodes;
    let is_push = nodes[cx.me].outputs[0].is_push;
    let beside = |e: usize| -> Vec<usize> {
        match is_push {
            true if e == cx.me => {
                nodes[e].outputs[..1].iter().filter_map(|o| o.target).map(|t| t.0).collect()
            }
            true => nodes[e].outputs.iter().filter_map(|o| o.target).map(|t| t.0).collect(),
            false => nodes[e].inputs.iter().filter_map(|i| i.source).map(|s| s.0).collect(),
        }
    };
    let (mut seen, mut work, mut queues) = (HashSet::from([cx.me]), beside(cx.me), Vec::new());
    while let Some(e) = work.pop() {
        if !seen.insert(e) {
            continue;
        }
        match (&*cx.router.element(e) as &dyn std::any::Any).is::<Queue>() {
            true => queues.push(e),
            false => work.extend(beside(e)),
        }
    }
    queues.sort_unstable();
    queues
}

impl Element for Red {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.queues.borrow_mut() = nearest_queues(cx);
        match self.queues.borrow().is_empty() {
            true => Err("expected a queue behind this element, or before it if it is pulled".into()),
            false => Ok(()),
        }
    }

    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        let length: usize = self.queues.borrow().iter().map(|q| cx.router.element(*q).held()).sum();
        let average = self.average.get() + (length as f64 - self.average.get()) * self.weight;
        self.average.set(average);
        let drops = if average <= self.min {
            self.since_drop.set(0);
            false
        } else if average >= self.max {
            true
        } else {
            let base = self.max_p * (average - self.min) / (self.max - self.min);
            let count = f64::from(self.since_drop.get());
            let probability = if count * base >= 1.0 { 1.0 } else { base / (1.0 - count * base) };
            self.since_drop.set(self.since_drop.get().saturating_add(1));
            chance(cx, probability)
        };
        if !drops {
            return Some(p);
        }
        self.since_drop.set(0);
        add(&self.drops, 1);
        cx.push_or_drop(1, "early drop", p);
        None
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "drops" => self.drops.get().to_string(),
            "avg_queue_size" => self.average.get().to_string(),
            "min_thresh" => self.min.to_string(),
            "max_thresh" => self.max.to_string(),
            _ => return None,
        }))
    }
    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.drops]
    }
    fn take_state(&self, _: &Cx<'_>, old: &dyn Element) {
        let old = (old as &dyn std::any::Any).downcast_ref::<Self>();
        if let Some(average) = old.map(|old| old.average.take()).filter(|average| *average > 0.0) {
            self.average.set(average);
        }
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("drops", "r"), ("avg_queue_size", "r"), ("min_thresh", "r"), ("max_thresh", "r")]
    }
}

class!(RED, "RED", "1/1-2", "a/ah", ["MIN_THRESH", "MAX_THRESH", "MAX_P", "STABILITY"], |args, _| {
    let (min, max): (u32, u32) = (args.req("MIN_THRESH"), args.req("MAX_THRESH"));
    let max_p = args.req("MAX_P");
    let stability: u8 = args.key("STABILITY").unwrap_or(4);
    if min >= max || !(0.0..=1.0).contains(&max_p) || stability > 16 {
        args.error("expected MIN_THRESH < MAX_THRESH, MAX_P from 0 to 1 and STABILITY up to 16");
    }
    Box::new(Red {
        min: min.into(),
        max: max.into(),
        max_p,
        weight: 1.0 / f64::from(1_u32 << stability.min(16)),
        average: Cell::new(0.0),
        since_drop: Cell::new(0),
        queues: RefCell::default(),
        drops: Cell::new(0),
    })
});

enum Stamp {
    Set(Option<Nanos>),
    /// Relative to the first packet, or to the one before.
    Delta(Cell<Option<Nanos>>, bool),
}

impl Element for Stamp {
    fn action(&self, cx: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        match self {
            Self::Set(time) => p.anno.time = time.unwrap_or_else(|| cx.now()),
            Self::Delta(base, is_first) => {
                let time = p.anno.time;
                let from = base.get().unwrap_or(time);
                if !is_first || base.get().is_none() {
                    base.set(Some(time));
                }
                p.anno.time = time - from;
            }
        }
        Some(p)
    }
}

class!(SET_TIMESTAMP, "SetTimestamp", "1/1", "a/a", ["TIMESTAMP", "PER_BATCH"], |args, _| {
    args.ignore::<bool>("PER_BATCH");
    Box::new(Stamp::Set(args.opt("TIMESTAMP")))
});
class!(SET_TIMESTAMP_DELTA, "SetTimestampDelta", "1/1", "a/a", ["TYPE"], |args, _| {
    let kind: Option<String> = args.opt("TYPE");
    Box::new(Stamp::Delta(Cell::new(None), !matches!(kind.as_deref(), Some("RANGE" | "NOW" | "DELTA"))))
});

struct TimeFilter {
    start: Nanos,
    end: Cell<Nanos>,
    end_call: Option<(String, String)>,
}

impl Element for TimeFilter {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        let time = p.anno.time;
        if time >= self.start {
            // The handler may extend the span.
            while let Some((handler, value)) = &self.end_call
                && time >= self.end.get()
            {
                let before = self.end.get();
                let value = value.replace("$t", &time.to_string());
                if let Err(e) = cx.router.write(Some(cx.me), handler, &value) {
                    cx.error(&e);
                    break;
                }
                if self.end.get() <= before {
                    break;
                }
            }
            if time < self.end.get() {
                return Some(p);
            }
        }
        cx.push_or_drop(1, "outside the span", p);
        None
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "start" => self.start.to_string(),
            "end" => self.end.get().to_string(),
            "interval" => (self.end.get() - self.start).to_string(),
            _ => return None,
        }))
    }
    fn write(&self, _: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "extend_interval").then(|| match Nanos::parse(value.trim()) {
            Some(more) => {
                self.end.set(self.end.get() + more);
                Ok(())
            }
            None => Err(format!("expected a time, found '{value}'")),
        })
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("start", "r"), ("end", "r"), ("interval", "r"), ("extend_interval", "w")]
    }
}

class!(TIME_FILTER, "TimeFilter", "1/1-2", "a/ah", ["START", "END", "INTERVAL", "END_CALL"], |args, _| {
    let start = args.opt("START").unwrap_or(Nanos(i64::MIN));
    let end = args.opt("END").or_else(|| args.key::<Nanos>("INTERVAL").map(|i| start + i));
    let end_call = args.key::<Raw>("END_CALL").map(|r| text::first_word(&r.0));
    Box::new(TimeFilter { start, end: Cell::new(end.unwrap_or(Nanos(i64::MAX))), end_call })
});
