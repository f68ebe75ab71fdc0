//! Tee(N), PullTee: sends each packet to all outputs. PullTee is pulled from output 0 and pushes the copies.
//! Expects: anything.
//! Gives: 0: the packets; others: copies.
//! Handlers: none.
//! Example: `t :: Tee; t [1] -> Print -> Discard`
//!
//! Hub: sends each packet to all outputs but that of its input's number.
//! Expects: anything.
//! Gives: packets on all outputs.
//! Handlers: none.
//! Example: `a -> h :: Hub -> x; b -> [1] h [1] -> y`
//!
//! Switch(N), StaticSwitch(N): sends packets to output N; none for -1.
//! Expects: anything.
//! Gives: packets on the chosen output.
//! Handlers: switch (rw).
//! Example: `s :: Switch(1); Script(wait 1, write s.switch 0)`
//!
//! RoundRobinSwitch, RandomSwitch, HashSwitch(OFFSET, LENGTH): choose the output in turn, at random, or by a
//! hash of bytes of the packet.
//! Expects: anything.
//! Gives: packets on all outputs.
//! Handlers: none.
//! Example: `h :: HashSwitch(26, 8)`
//!
//! PullSwitch(N), StaticPullSwitch(N), SimplePullSwitch(N): give packets of input N only. SimplePullSwitch
//! does not notify.
//! Expects: packets to pull.
//! Gives: those of the chosen input.
//! Handlers: switch (rw).
//! Example: `q0 -> s :: PullSwitch(0); q1 -> [1] s; s -> out`
//!
//! InputSwitch(N): passes packets of input N and drops those of the others.
//! Expects: packets pushed.
//! Gives: those of the chosen input.
//! Handlers: switch (rw).
//! Example: `a, b => i :: InputSwitch(1) -> c`
//!
//! Bypass(ACTIVE): while active, packets leave by output 1 and come back at input 1; otherwise they pass.
//! Expects: 0: packets; 1: packets that come back.
//! Gives: 0: packets; 1: packets, while active.
//! Handlers: active (rw).
//! Example: `b :: Bypass; b [1] -> Print -> [1] b`

use crate::registry::Setup;
use crate::runtime::element::{Cx, Element, Notice};
use crate::runtime::packet::{Batch, Packet};
use flame_click::Args;
use std::cell::Cell;

const SOURCE: &str = include_str!("switch.rs");

/// Sends copies to all outputs but one, and the packet itself to the last.
pub fn tee(cx: &Cx<'_>, p: Packet, except: Option<usize>) {
    let mut ports = (0..cx.outputs()).filter(|o| Some(*o) != except).peekable();
    if ports.peek().is_none() {
        return cx.drop("no output", p);
    }
    while let Some(port) = ports.next() {
        if ports.peek().is_none() {
            return cx.push_one(port, p);
        }
        cx.made(1);
        cx.push_one(port, p.clone());
    }
}

struct Tee;

impl Element for Tee {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        if batch.len() == 1 {
            return batch.drain(..).for_each(|p| tee(cx, p, None));
        }
        for port in 0..cx.outputs().saturating_sub(1) {
            let mut copies = Batch::default();
            copies.extend(batch.iter().cloned());
            cx.made(copies.len());
            cx.push(port, copies);
        }
        match cx.outputs() {
            0 => cx.drop_all("no output", batch.drain(..)),
            n => cx.push(n - 1, batch),
        }
    }

    /// Pulls for PullTee, and pushes the copies.
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let before = out.len();
        cx.pull(0, max, out);
        for p in &out[before..] {
            for port in 1..cx.outputs() {
                cx.made(1);
                cx.push_one(port, p.clone());
            }
        }
    }
}

fn tee_of(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    if let Some(n) = args.opt::<usize>("N")
        && n != setup.outputs
    {
        args.error(format!("N: expected the number of outputs, {}, found {n}", setup.outputs));
    }
    Box::new(Tee)
}
class!(TEE, "Tee", "1/1-", "h/h", [], tee_of);
class!(PULL_TEE, "PullTee", "1/1-", "l/lh", [], tee_of);

struct Hub;

impl Element for Hub {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        batch.drain(..).for_each(|p| tee(cx, p, Some(port)));
    }
}

class!(HUB, "Hub", "-/-", "h/h", [], |_, _| Box::new(Hub));

/// A number of a port, or -1, that a handler can change.
struct Choice(Cell<i64>);

impl Choice {
    fn of(args: &mut Args<'_>) -> Self {
        Self(Cell::new(args.opt("SWITCH").unwrap_or(0)))
    }

    fn port(&self) -> usize {
        usize::try_from(self.0.get()).unwrap_or(usize::MAX)
    }

    fn read(&self, name: &str) -> Option<Result<String, String>> {
        (name == "switch").then(|| Ok(self.0.get().to_string()))
    }

    fn write(&self, name: &str, value: &str, ports: usize) -> Option<Result<(), String>> {
        if name != "switch" {
            return None;
        }
        Some(match value.trim().parse::<i64>() {
            Ok(n) if n < ports as i64 => {
                self.0.set(n);
                Ok(())
            }
            _ => Err(format!("expected a port below {ports} or -1, found '{value}'")),
        })
    }
}

const SWITCH: &[(&str, &str)] = &[("switch", "rw")];

struct Switch(Choice);

impl Element for Switch {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        match self.0.port() {
            port if port < cx.outputs() => cx.push(port, batch),
            _ => cx.drop_all("switched off", batch.drain(..)),
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        self.0.read(name)
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        self.0.write(name, value, cx.outputs())
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        SWITCH
    }
}

class!(SWITCH_CLASS, "Switch", "1/-", "h/h", ["SWITCH"], |args, _| Box::new(Switch(Choice::of(args))));
class!(STATIC_SWITCH, "StaticSwitch", "1/-", "h/h", ["SWITCH"], |args, _| Box::new(Switch(Choice::of(args))));

struct RoundRobinSwitch(Cell<usize>);

impl Element for RoundRobinSwitch {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            let port = self.0.get();
            self.0.set((port + 1) % cx.outputs().max(1));
            cx.push_or_drop(port, "no output", p);
        }
    }
}

class!(ROUND_ROBIN_SWITCH, "RoundRobinSwitch", "1/1-", "h/h", [], |_, _| {
    Box::new(RoundRobinSwitch(Cell::new(0)))
});

struct RandomSwitch;

impl Element for RandomSwitch {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            cx.push_or_drop(cx.random(cx.outputs() as u64) as usize, "no output", p);
        }
    }
}

class!(RANDOM_SWITCH, "RandomSwitch", "1/1-", "h/h", [], |_, _| Box::new(RandomSwitch));

struct HashSwitch(usize, usize);

impl Element for HashSwitch {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            let bytes = p.data().get(self.0..(self.0 + self.1).min(p.len()));
            let hash =
                bytes.map_or(0, |b| b.iter().fold(5381_u32, |h, b| h.wrapping_mul(33) ^ u32::from(*b)));
            cx.push_or_drop(hash as usize % cx.outputs().max(1), "no output", p);
        }
    }
}

class!(HASH_SWITCH, "HashSwitch", "1/1-", "h/h", ["OFFSET", "LENGTH"], |args, _| {
    let (offset, length): (u16, u16) = (args.req("OFFSET"), args.req("LENGTH"));
    Box::new(HashSwitch(usize::from(offset), usize::from(length)))
});

struct InputSwitch(Choice);

impl Element for InputSwitch {
    fn push(&self, cx: &Cx<'_>, port: usize, mut batch: Batch) {
        match self.0.port() == port {
            true => cx.push(0, batch),
            false => cx.drop_all("switched off", batch.drain(..)),
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        self.0.read(name)
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        self.0.write(name, value, cx.inputs())
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        SWITCH
    }
}

class!(INPUT_SWITCH, "InputSwitch", "-/1", "h/h", ["SWITCH"], |args, _| {
    Box::new(InputSwitch(Choice::of(args)))
});

/// Gives packets of one input.
struct PullSwitch {
    choice: Choice,
    /// The signal from upstream of each input.
    signals: std::cell::RefCell<Vec<crate::runtime::signal::Signal>>,
    notifies: bool,
}

impl PullSwitch {
    fn refresh(&self, cx: &Cx<'_>) {
        if self.notifies {
            let is_active =
                self.signals.borrow().get(self.choice.port()).is_some_and(|s| s.is_active(cx.router));
            cx.set_filled(is_active);
        }
    }
}

impl Element for PullSwitch {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        if self.notifies {
            *self.signals.borrow_mut() = (0..cx.inputs()).map(|i| cx.upstream_signal(i)).collect();
            // Those who pull ask once and then sleep.
            cx.set_filled(self.choice.port() < cx.inputs());
        }
        Ok(())
    }
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let before = out.len();
        cx.pull(self.choice.port(), max, out);
        if out.len() == before {
            self.refresh(cx);
        }
    }
    fn woken(&self, cx: &Cx<'_>) {
        self.refresh(cx);
    }
    fn notice(&self, _: usize) -> Notice {
        if self.notifies { Notice::Own } else { Notice::Pass }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        self.choice.read(name)
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        let result = self.choice.write(name, value, cx.inputs());
        self.refresh(cx);
        result
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        SWITCH
    }
}

fn pull_switch(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let notifies = setup.class != "SimplePullSwitch";
    Box::new(PullSwitch { choice: Choice::of(args), signals: Default::default(), notifies })
}

class!(PULL_SWITCH, "PullSwitch", "-/1", "l/l", ["SWITCH"], pull_switch);
class!(STATIC_PULL_SWITCH, "StaticPullSwitch", "-/1", "l/l", ["SWITCH"], pull_switch);
class!(SIMPLE_PULL_SWITCH, "SimplePullSwitch", "-/1", "l/l", ["SWITCH"], pull_switch);

struct Bypass(Cell<bool>);

impl Element for Bypass {
    fn push(&self, cx: &Cx<'_>, port: usize, batch: Batch) {
        let around = port == 0 && self.0.get() && cx.outputs() > 1;
        cx.push(usize::from(around), batch);
    }
    fn pull(&self, cx: &Cx<'_>, port: usize, max: usize, out: &mut Batch) {
        // Output 0 asks the way around, whose end asks output 1, which asks input 0.
        let around = port == 0 && self.0.get() && cx.inputs() > 1;
        cx.pull(usize::from(around), max, out);
    }
    fn pulls(&self, output: usize, input: usize) -> bool {
        output == 0 || input == 0
    }
    fn pulls_by_output(&self) -> bool {
        true
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "active").then(|| Ok(self.0.get().to_string()))
    }
    fn write(&self, _: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "active").then(|| match flame_click::value::boolean(value) {
            Some(active) => {
                self.0.set(active);
                Ok(())
            }
            None => Err(format!("expected true or false, found '{value}'")),
        })
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("active", "rw")]
    }
}

class!(BYPASS, "Bypass", "1-2/1-2", "a/a", ["ACTIVE"], |args, _| {
    Box::new(Bypass(Cell::new(args.opt("ACTIVE").unwrap_or(false))))
});
