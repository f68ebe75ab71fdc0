//! PrioSched, RoundRobinSched: give packets of the first input that has one, or of the inputs in turn.
//! Expects: packets to pull on all inputs.
//! Gives: packets, pulled.
//! Handlers: none.
//! Example: `q0 -> p :: PrioSched -> out; q1 -> [1] p`
//!
//! StrideSched(TICKETS…), StrideSwitch(TICKETS…): choose inputs (outputs) in proportion to their tickets.
//! Expects: packets to pull; StrideSwitch is pushed to.
//! Gives: packets.
//! Handlers: none.
//! Example: `a, b => StrideSched(3, 1) -> out`
//!
//! TimeSortedSched(STOP, BUFFER): gives the packet with the earliest timestamp of the next BUFFER packets (1,
//! at most 65536) of each input.
//! Expects: packets to pull, each input in order of time, or nearly with a BUFFER.
//! Gives: packets in order of time. With STOP, the run stops when no input has more.
//! Handlers: well_ordered.
//! Example: `f1, f2 => TimeSortedSched(STOP true) -> out`

use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{Batch, Packet};
use crate::runtime::signal::Signal;
use flame_click::{Args, Nanos, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const SOURCE: &str = include_str!("sched.rs");

struct PrioSched;

impl Element for PrioSched {
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let wanted = out.len() + max;
        for port in 0..cx.inputs() {
            let missing = wanted - out.len();
            if missing == 0 {
                return;
            }
            cx.pull(port, missing, out);
        }
    }
}

class!(PRIO_SCHED, "PrioSched", "-/1", "l/l", [], |_, _| Box::new(PrioSched));

struct RoundRobinSched(Cell<usize>);

impl Element for RoundRobinSched {
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let count = cx.inputs();
        let wanted = out.len() + max;
        let mut misses = 0;
        while out.len() < wanted && misses < count {
            let port = self.0.get();
            self.0.set((port + 1) % count);
            let before = out.len();
            cx.pull(port, 1, out);
            misses = if out.len() > before { 0 } else { misses + 1 };
        }
    }
}

class!(ROUND_ROBIN_SCHED, "RoundRobinSched", "-/1", "l/l", [], |_, _| Box::new(RoundRobinSched(Cell::new(
    0
))));

/// Passes of ports: the lowest is next.
struct Strides {
    strides: Vec<u64>,
    passes: RefCell<Vec<u64>>,
}

impl Strides {
    fn of(args: &mut Args<'_>, ports: usize) -> Self {
        let scope = args.scope();
        let mut strides = Vec::new();
        for text in args.rest() {
            match u32::read(&text, &scope) {
                Some(t @ 1..=65_536) => strides.push(65_536 / u64::from(t)),
                _ => args.error(format!("TICKETS: expected 1 to 65536, found '{text}'")),
            }
        }
        if strides.len() != ports {
            args.error(format!("expected tickets for {ports} ports, found {}", strides.len()));
        }
        Self { passes: RefCell::new(strides.clone()), strides }
    }

    /// Returns the ports, the next one first.
    fn order(&self) -> Vec<usize> {
        let passes = self.passes.borrow();
        let mut order: Vec<usize> = (0..passes.len()).collect();
        order.sort_by_key(|p| passes[*p]);
        order
    }

    fn advance(&self, port: usize) {
        self.passes.borrow_mut()[port] += self.strides[port];
    }
}

struct StrideSched(Strides);

impl Element for StrideSched {
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        for _ in 0..max {
            let before = out.len();
            // An input that has nothing loses its turn.
            for port in self.0.order() {
                cx.pull(port, 1, out);
                self.0.advance(port);
                if out.len() > before {
                    break;
                }
            }
            if out.len() == before {
                return;
            }
        }
    }
}

class!(STRIDE_SCHED, "StrideSched", "1-/1", "l/l", [], |args, s| {
    Box::new(StrideSched(Strides::of(args, s.inputs)))
});

struct StrideSwitch(Strides);

impl Element for StrideSwitch {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            let port = self.0.order().first().copied().unwrap_or(0);
            self.0.advance(port);
            cx.push_or_drop(port, "no output", p);
        }
    }
}

class!(STRIDE_SWITCH, "StrideSwitch", "1/1-", "h/h", [], |args, s| {
    Box::new(StrideSwitch(Strides::of(args, s.outputs)))
});

/// The most packets that TimeSortedSched pulls early from an input.
const MOST_EARLY: usize = 65_536;

/// Packets that were pulled early, by time, input and arrival.
#[derive(Default)]
struct Early {
    packets: BTreeMap<(Nanos, usize, u64), Packet>,
    /// The number of them, by input.
    counts: Vec<usize>,
    serial: u64,
}

impl Early {
    fn add(&mut self, port: usize, packet: Packet) {
        self.serial += 1;
        self.counts[port] += 1;
        self.packets.insert((packet.anno.time, port, self.serial), packet);
    }

    /// Takes the earliest packet, and returns its input with it.
    fn take(&mut self) -> Option<(usize, Packet)> {
        let ((_, port, _), packet) = self.packets.pop_first()?;
        self.counts[port] -= 1;
        Some((port, packet))
    }
}

struct TimeSortedSched {
    early: RefCell<Early>,
    /// This many packets of each input may be there.
    buffer: usize,
    signals: RefCell<Vec<Signal>>,
    stop: bool,
    has_stopped: Cell<bool>,
    last: Cell<Nanos>,
    well_ordered: Cell<bool>,
}

impl TimeSortedSched {
    /// Pulls packets of an input until there are as many as may be, or it has none.
    fn fill(&self, cx: &Cx<'_>, port: usize) {
        loop {
            let missing = self.buffer.saturating_sub(self.early.borrow().counts[port]);
            if missing == 0 {
                return;
            }
            let mut batch = Batch::default();
            cx.pull(port, missing, &mut batch);
            if batch.is_empty() {
                return;
            }
            batch.drain(..).for_each(|p| self.early.borrow_mut().add(port, p));
        }
    }
}

impl Element for TimeSortedSched {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.signals.borrow_mut() = (0..cx.inputs()).map(|i| cx.upstream_signal(i)).collect();
        self.early.borrow_mut().counts.resize(cx.inputs(), 0);
        cx.set_filled(true);
        Ok(())
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        for _ in 0..max {
            (0..cx.inputs()).for_each(|port| self.fill(cx, port));
            let next = self.early.borrow_mut().take();
            let Some((_, p)) = next else {
                let more = self.signals.borrow().iter().any(|s| s.is_active(cx.router));
                if !more && self.stop && !self.has_stopped.replace(true) {
                    cx.router.please_stop();
                }
                return cx.set_filled(more);
            };
            if p.anno.time < self.last.get() {
                self.well_ordered.set(false);
            }
            self.last.set(p.anno.time);
            self.has_stopped.set(false);
            out.push(p);
        }
    }

    fn woken(&self, cx: &Cx<'_>) {
        cx.set_filled(true);
    }
    fn notice(&self, _: usize) -> Notice {
        Notice::Own
    }
    fn held(&self) -> usize {
        self.early.borrow().packets.len()
    }
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        loop {
            let next = old.early.borrow_mut().take();
            let Some((port, p)) = next else { break };
            let has_room = self.early.borrow().counts.get(port).is_some_and(|count| *count < self.buffer);
            match has_room {
                true => self.early.borrow_mut().add(port, p),
                false => cx.drop("replaced", p),
            }
        }
        self.last.set(old.last.get());
        self.well_ordered.set(old.well_ordered.get());
        cx.set_filled(true);
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "well_ordered").then(|| Ok(self.well_ordered.get().to_string()))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("well_ordered", "r")]
    }
}

class!(TIME_SORTED_SCHED, "TimeSortedSched", "-/1", "l/l", ["STOP", "BUFFER"], |args, _| {
    let buffer: usize = args.key::<u32>("BUFFER").unwrap_or(1) as usize;
    if !(1..=MOST_EARLY).contains(&buffer) {
        args.error(format!("BUFFER: expected 1 to {MOST_EARLY}, found {buffer}"));
    }
    Box::new(TimeSortedSched {
        early: RefCell::default(),
        buffer,
        signals: RefCell::default(),
        stop: args.key("STOP").unwrap_or(false),
        has_stopped: Cell::new(false),
        last: Cell::new(Nanos(i64::MIN)),
        well_ordered: Cell::new(true),
    })
});
