//! A router: its elements, the movement of packets between them, tasks and timers.

use super::account::{self, Account, Counts};
use super::clock::Clock;
use super::element::{Cx, Element};
use super::limits::Limits;
use super::loops;
use super::names::{self, Names};
use super::owed::Owed;
use super::packet::Batch;
use super::past::Past;
use super::threads::team::Member;
use crate::modules::Modules;
use crate::registry::Class;
use flame_click::{Graph, Nanos};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Input {
    pub is_push: bool,
    /// The element and output that it pulls from.
    pub source: Option<(usize, usize)>,
}

pub struct Output {
    pub is_push: bool,
    pub target: Option<(usize, usize)>,
}

pub struct Node {
    pub name: String,
    pub class: &'static Class,
    pub landmark: String,
    pub config: RefCell<String>,
    pub element: RefCell<Rc<dyn Element>>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub counts: Counts,
    pub is_scheduled: Cell<bool>,
    is_queued: Cell<bool>,
    /// The time at which each timer fires, and the number of times that it was set.
    timers: RefCell<Vec<(Option<Nanos>, u64)>>,
    pub is_filled: Cell<bool>,
    pub has_room: Cell<bool>,
    pub filled_listeners: RefCell<Vec<usize>>,
    pub room_listeners: RefCell<Vec<usize>>,
}

impl Node {
    pub fn new(element: &flame_click::Element, class: &'static Class, made: Box<dyn Element>) -> Self {
        Self {
            name: element.name.clone(),
            class,
            landmark: element.landmark.clone(),
            config: RefCell::new(element.config.clone()),
            element: RefCell::new(made.into()),
            inputs: Vec::new(),
            outputs: Vec::new(),
            counts: Counts::default(),
            is_scheduled: Cell::new(false),
            is_queued: Cell::new(false),
            timers: RefCell::default(),
            is_filled: Cell::new(false),
            has_room: Cell::new(true),
            filled_listeners: RefCell::default(),
            room_listeners: RefCell::default(),
        }
    }
}

/// Parses a configuration for `hotconfig`.
pub type Parse = Box<dyn Fn(&str) -> Result<Graph, String>>;

/// The environment of a router: clock, outputs, and the flag that stops it.
#[derive(Clone)]
pub struct Environment {
    pub clock: Rc<Clock>,
    pub stdout: Stream,
    pub stderr: Stream,
    /// Set from outside to end the run.
    pub interrupt: Arc<AtomicBool>,
    pub parse: Option<Rc<Parse>>,
    pub seed: u64,
    /// The program that runs modules, if there is one.
    pub modules: Option<Arc<dyn Modules>>,
    /// What the run keeps beyond this router.
    pub past: Arc<Past>,
    /// The thread of a team that the router is for.
    pub member: Option<Rc<Member>>,
}

impl Environment {
    /// Returns an environment in simulated time whose text goes nowhere.
    pub fn silent(modules: Option<Arc<dyn Modules>>) -> Self {
        Self {
            clock: Rc::new(Clock::simulated()),
            stdout: Rc::new(RefCell::new(std::io::sink())),
            stderr: Rc::new(RefCell::new(std::io::sink())),
            interrupt: Arc::default(),
            parse: None,
            seed: 0,
            modules,
            past: Arc::default(),
            member: None,
        }
    }
}

/// A destination of text.
pub type Stream = Rc<RefCell<dyn Write>>;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stopped,
    /// A handler asked for another configuration, which is in [`Router::take_hotconfig`].
    Replaced,
}

/// (time, class of the timer, number, element, timer, how often it was set)
type Entry = (Nanos, u8, u64, usize, usize, u64);

/// An element of one router, for another element that outlives it: at a swap that is handed what the one
/// before it knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    router: u64,
    index: usize,
}

/// The number of the next router.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The elements of a graph at work, in one thread, or the part of them that is one thread's.
///
/// # Panics
///
/// Methods that take the index of an element panic if the graph has fewer elements.
pub struct Router {
    number: u64,
    pub nodes: Vec<Node>,
    pub by_name: HashMap<String, usize>,
    pub names: Names,
    pub clock: Rc<Clock>,
    pub stdout: Stream,
    pub stderr: Stream,
    pub interrupt: Arc<AtomicBool>,
    pub parse: Option<Rc<Parse>>,
    pub modules: Option<Arc<dyn Modules>>,
    pub member: Option<Rc<Member>>,
    pub past: Arc<Past>,
    pub graph: Graph,
    /// The text that the graph was read from.
    pub text: String,
    pub seed: Cell<u64>,
    /// Elements that manage the end of the run, in order.
    pub drivers: RefCell<VecDeque<usize>>,
    pub runcount: Cell<i64>,
    /// The configuration that a handler asked for, and its text.
    pub hotconfig: RefCell<Option<(Graph, String)>>,
    pub(super) queue: RefCell<VecDeque<usize>>,
    pub(super) timers: RefCell<BinaryHeap<Reverse<Entry>>>,
    timer_number: Cell<u64>,
    pub(super) limits: Limits,
    /// The time that long calls of modules owe to the others.
    pub owed: Owed,
    pub(super) deferred: RefCell<VecDeque<(usize, usize, Batch)>>,
    pub is_initialized: Cell<bool>,
    /// Whether it has a `Loop`.
    pub(super) has_loops: bool,
    /// The elements that other threads wake.
    pub(super) wakes: RefCell<Vec<(usize, Arc<AtomicBool>)>>,
    pub(super) any_wake: Arc<AtomicBool>,
}

impl Router {
    /// Creates a router without elements, for the builder.
    pub fn bare(env: Environment, graph: Graph, text: &str, names: Names) -> Self {
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            nodes: Vec::new(),
            by_name: HashMap::new(),
            names,
            clock: env.clock,
            stdout: env.stdout,
            stderr: env.stderr,
            interrupt: env.interrupt,
            parse: env.parse,
            modules: env.modules,
            member: env.member,
            past: env.past,
            graph,
            text: text.to_owned(),
            seed: Cell::new(env.seed),
            drivers: RefCell::default(),
            runcount: Cell::new(1),
            hotconfig: RefCell::default(),
            queue: RefCell::default(),
            timers: RefCell::default(),
            timer_number: Cell::new(0),
            limits: Limits::default(),
            owed: Owed::default(),
            deferred: RefCell::default(),
            is_initialized: Cell::new(false),
            has_loops: false,
            wakes: RefCell::default(),
            any_wake: Arc::default(),
        }
    }

    pub fn nodes_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns when the next timer fires.
    pub fn next_event(&self) -> Option<Nanos> {
        self.next_timer()
    }

    /// Returns the view of the router that an element has.
    pub fn cx(&self, me: usize) -> Cx<'_> {
        Cx { router: self, me }
    }

    /// Returns the element as it is now; another one may replace it when it is configured again.
    pub fn element(&self, index: usize) -> Rc<dyn Element> {
        self.nodes[index].element.borrow().clone()
    }

    /// Returns the handle of an element.
    pub fn handle(&self, index: usize) -> Handle {
        Handle { router: self.number, index }
    }

    /// Returns the index of an element, if it is one of this router.
    pub fn index(&self, handle: Handle) -> Option<usize> {
        (handle.router == self.number).then_some(handle.index)
    }

    /// Returns `name :: Class`.
    pub fn declaration(&self, index: usize) -> String {
        format!("{} :: {}", self.nodes[index].name, self.nodes[index].class.name)
    }

    /// Returns an element by its name as seen from another element: in its compound, then in those around it.
    pub fn lookup(&self, from: &str, name: &str) -> Option<usize> {
        names::in_scope(from, name, |name| self.by_name.get(name).copied())
    }

    /// Delivers packets from an output. If pushes nest too deeply, the packets are delivered by a later step
    /// of the run.
    pub fn push(&self, from: usize, port: usize, batch: Batch) {
        let node = &self.nodes[from];
        if self.is_cut_short() {
            return node.counts.drop("interrupted", batch.len() as u64);
        }
        account::add(&node.counts.given, batch.len());
        match node.outputs.get(port) {
            Some(Output { is_push: true, target: Some((to, input)) }) => match self.enter_push() {
                Some(_level) => self.deliver(*to, *input, batch),
                None => self.deferred.borrow_mut().push_back((*to, *input, batch)),
            },
            // No element pushes to a port that it does not have; if one did, the packets would be missed.
            _ => {
                node.counts.given.set(node.counts.given.get() - batch.len() as u64);
                node.counts.drop("no such output", batch.len() as u64);
            }
        }
    }

    /// Drops the packets that wait for their delivery, at the end of a run that was interrupted.
    pub(super) fn drop_deferred(&self) {
        for (to, _, batch) in self.deferred.borrow_mut().drain(..) {
            let counts = &self.nodes[to].counts;
            account::add(&counts.taken, batch.len());
            counts.drop("interrupted", batch.len() as u64);
        }
    }

    pub(super) fn deliver(&self, to: usize, input: usize, batch: Batch) {
        account::add(&self.nodes[to].counts.taken, batch.len());
        let _call = self.has_loops.then(|| loops::Call::with(batch.iter().map(|p| &p.anno.loops)));
        self.call(to, |e| e.push(&self.cx(to), input, batch));
    }

    /// Appends at most `max` packets that the input `port` gives.
    pub fn pull(&self, to: usize, port: usize, max: usize, out: &mut Batch) {
        let Some(Input { is_push: false, source: Some((from, output)) }) = self.nodes[to].inputs.get(port)
        else {
            return;
        };
        let Some(_level) = self.enter_pull() else { return };
        let before = out.len();
        let call = self.has_loops.then(|| loops::Call::with(&[]));
        self.call(*from, |e| e.pull(&self.cx(*from), *output, max, out));
        if call.is_some() {
            drop(call);
            loops::received(out[before..].iter().map(|p| &p.anno.loops));
        }
        let count = out.len() - before;
        account::add(&self.nodes[*from].counts.given, count);
        account::add(&self.nodes[to].counts.taken, count);
    }

    pub fn reschedule(&self, me: usize) {
        let node = &self.nodes[me];
        node.is_scheduled.set(true);
        if !node.is_queued.replace(true) {
            self.queue.borrow_mut().push_back(me);
        }
    }

    pub fn unschedule(&self, me: usize) {
        self.nodes[me].is_scheduled.set(false);
    }

    /// Runs the next task. Returns whether it had work, or none if there is no task.
    pub(super) fn run_one_task(&self) -> Option<bool> {
        let me = self.queue.borrow_mut().pop_front()?;
        self.nodes[me].is_queued.set(false);
        let is_due = self.nodes[me].is_scheduled.replace(false);
        Some(is_due && self.in_step(|| self.call(me, |e| e.run_task(&self.cx(me)))))
    }

    pub fn timer_at(&self, me: usize, timer: usize, time: Nanos) {
        let mut timers = self.nodes[me].timers.borrow_mut();
        if timers.len() <= timer {
            timers.resize(timer + 1, (None, 0));
        }
        timers[timer].0 = Some(time);
        timers[timer].1 += 1;
        let number = self.timer_number.get();
        self.timer_number.set(number + 1);
        // At the same moment a script sees what the elements have done.
        let class = u8::from(matches!(self.nodes[me].class.name, "Script" | "DriverManager"));
        self.timers.borrow_mut().push(Reverse((time, class, number, me, timer, timers[timer].1)));
    }

    pub fn cancel_timer(&self, me: usize, timer: usize) {
        if let Some(t) = self.nodes[me].timers.borrow_mut().get_mut(timer) {
            *t = (None, t.1 + 1);
        }
    }

    /// Returns when a timer fires.
    pub fn timer_time(&self, me: usize, timer: usize) -> Option<Nanos> {
        self.nodes[me].timers.borrow().get(timer)?.0
    }

    /// Returns the time of the next timer. Drops those that were set again or cancelled.
    pub(super) fn next_timer(&self) -> Option<Nanos> {
        let mut heap = self.timers.borrow_mut();
        while let Some(Reverse((time, _, _, me, timer, set))) = heap.peek() {
            if self.nodes[*me].timers.borrow().get(*timer).is_some_and(|t| t.0.is_some() && t.1 == *set) {
                return Some(*time);
            }
            heap.pop();
        }
        None
    }

    /// Runs one timer that is due. Returns whether there was one.
    pub(super) fn run_one_timer(&self, now: Nanos) -> bool {
        if self.next_timer().is_none_or(|t| t > now) {
            return false;
        }
        let Some(Reverse((_, _, _, me, timer, _))) = self.timers.borrow_mut().pop() else { return false };
        if let Some(t) = self.nodes[me].timers.borrow_mut().get_mut(timer) {
            t.0 = None;
        }
        self.in_step(|| self.call(me, |e| e.run_timer(&self.cx(me), timer)));
        true
    }

    pub fn set_filled(&self, me: usize, is_filled: bool) {
        if self.nodes[me].is_filled.replace(is_filled) != is_filled && is_filled {
            self.wake(&self.nodes[me].filled_listeners);
        }
    }

    pub fn set_room(&self, me: usize, has_room: bool) {
        if self.nodes[me].has_room.replace(has_room) != has_room && has_room {
            self.wake(&self.nodes[me].room_listeners);
            self.tell_room(me);
        }
    }

    /// Calls [`Element::woken`] of each listener.
    pub fn wake(&self, listeners: &RefCell<Vec<usize>>) {
        let count = listeners.borrow().len();
        for i in 0..count {
            let Some(l) = listeners.borrow().get(i).copied() else { return };
            self.element(l).woken(&self.cx(l));
        }
    }

    /// Asks the run to stop. Elements that manage the end may go on.
    pub fn please_stop(&self) {
        self.stop(1);
    }

    /// Prints lines on standard error.
    pub fn message(&self, text: &str) {
        // If standard error is closed, the message is lost.
        let _ = write_lines(&mut *self.stderr.borrow_mut(), text);
    }

    /// Prints text on standard output, without another end of line.
    pub fn print(&self, text: &str) {
        let mut out = self.stdout.borrow_mut();
        let _ = out.write_all(&flame_click::text::encode(text)).and_then(|()| out.flush());
    }

    /// Returns a number below `bound`, from a sequence that the seed determines.
    pub fn random(&self, bound: u64) -> u64 {
        // SplitMix64: small, and the same on every machine.
        let seed = self.seed.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.seed.set(seed);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        ((u128::from(z) * u128::from(bound.max(1))) >> 64) as u64
    }

    /// Returns the account of one element.
    pub fn account(&self, index: usize) -> Account {
        let counts = &self.nodes[index].counts;
        let mut account = Account {
            taken: counts.taken.get(),
            made: counts.made.get(),
            given: counts.given.get(),
            dropped: counts.dropped.borrow().clone(),
            held: self.element(index).held() as u64,
        };
        let refused = self.member.as_ref().map_or(0, |m| m.refused(index));
        if refused > 0 {
            account.taken += refused;
            account.dropped.insert("thread behind", refused);
        }
        account
    }

    /// Calls an element. What it holds at the end goes to the element that has replaced it meanwhile.
    pub(super) fn call<T>(&self, me: usize, act: impl FnOnce(&dyn Element) -> T) -> T {
        let element = self.element(me);
        let result = act(&*element);
        if !Rc::ptr_eq(&element, &self.nodes[me].element.borrow()) {
            self.hand_over(me, &*element, self, me);
        }
        result
    }

    /// Hands what an element holds, of this or of an old router, to the element here that replaces it. What
    /// that cannot take is dropped and counted. All packets of replaced elements pass here.
    pub(super) fn hand_over(&self, me: usize, old: &dyn Element, from: &Self, was: usize) {
        let before = old.held();
        let new = self.element(me);
        for (count, before) in new.counts().into_iter().zip(old.counts()) {
            count.set(count.get().wrapping_add(before.take()));
        }
        new.take_state(&self.cx(me), old);
        let left = old.held();
        let moved = before.saturating_sub(left);
        if !std::ptr::eq(self, from) {
            account::add(&self.nodes[me].counts.made, moved);
            account::add(&from.nodes[was].counts.given, moved);
        }
        // Packets that are left go with the old element.
        from.nodes[was].counts.drop("replaced", left as u64);
        // When the new one was initialized, it had not replaced the old one.
        self.tell_room(me);
    }

    /// Takes over what the elements of an old router hold, where name and class are the same.
    pub fn take_state(&self, old: &Self) {
        for i in 0..self.nodes.len() {
            if let Some(was) = self.continued(i, old) {
                self.hand_over(i, &*old.element(was), old, was);
            }
        }
        self.take_deferred(old, |to, input, batch| {
            self.deferred.borrow_mut().push_back((to, input, batch));
        });
        self.keep_accounts(old, |_| true);
    }

    /// Keeps the accounts of those elements of an old router that none continues. What they hold ends.
    pub(super) fn keep_accounts(&self, old: &Self, is_own: impl Fn(usize) -> bool) {
        let continued: HashSet<usize> =
            (0..self.nodes.len()).filter_map(|i| self.continued(i, old)).collect();
        for was in (0..old.nodes.len()).filter(|was| is_own(*was) && !continued.contains(was)) {
            let mut account = old.account(was);
            let held = std::mem::take(&mut account.held);
            if held > 0 {
                *account.dropped.entry("replaced").or_default() += held;
            }
            self.past.keep(&old.nodes[was].name, account);
        }
    }

    /// Lets all elements write what they have collected, at the end of the run.
    pub(super) fn complete(&self) {
        for i in (0..self.nodes.len()).filter(|i| self.member.as_ref().is_none_or(|m| m.owns(*i))) {
            self.element(i).complete(&self.cx(i));
        }
    }

    /// Returns the element of an old router that an element continues: that of its name and class.
    pub(super) fn continued(&self, index: usize, old: &Self) -> Option<usize> {
        let node = &self.nodes[index];
        let was = old.by_name.get(&node.name).copied();
        was.filter(|was| old.nodes[*was].class.name == node.class.name)
    }

    /// Gives `act` the packets between two elements of an old router that go on to the second, if there is
    /// one of its name and class. Others end.
    pub(super) fn take_deferred(&self, old: &Self, act: impl Fn(usize, usize, Batch)) {
        while let Some((to, input, batch)) = old.deferred.borrow_mut().pop_front() {
            let was = &old.nodes[to];
            let new = self.by_name.get(&was.name).copied().filter(|new| {
                let node = &self.nodes[*new];
                node.class.name == was.class.name && node.inputs.get(input).is_some_and(|i| i.is_push)
            });
            match new {
                Some(new) => act(new, input, batch),
                None => {
                    account::add(&was.counts.taken, batch.len());
                    was.counts.drop("replaced", batch.len() as u64);
                }
            }
        }
    }

    /// Ends the work of all elements.
    pub fn cleanup(&self) {
        for i in 0..self.nodes.len() {
            self.element(i).cleanup(&self.cx(i));
        }
    }

    /// Returns the configuration that a handler asked for, once.
    pub fn take_hotconfig(&self) -> Option<(Graph, String)> {
        self.hotconfig.borrow_mut().take()
    }
}

fn write_lines(out: &mut dyn Write, text: &str) -> std::io::Result<()> {
    let mut bytes = flame_click::text::encode(text);
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    out.write_all(&bytes)?;
    out.flush()
}
