//! What an element is, and what it may do.

use super::account;
use super::packet::{Batch, Packet};
use super::router::Router;
use flame_click::{Nanos, Scope};
use std::any::Any;

/// How an element takes part in notification, seen from an output that is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It says itself whether there are packets.
    Own,
    /// It passes on what is upstream.
    Pass,
    /// It says nothing and must be asked all the time.
    Silent,
}

/// An element. Packets enter by `push` or leave by `pull`; `action` does for elements that handle packets one
/// by one.
pub trait Element: Any {
    /// Handles one packet on its way from input 0 to output 0.
    fn action(&self, _cx: &Cx<'_>, packet: Packet) -> Option<Packet> {
        Some(packet)
    }

    /// Takes packets at an input.
    fn push(&self, cx: &Cx<'_>, _port: usize, mut batch: Batch) {
        let mut out = Batch::default();
        out.extend(batch.drain(..).filter_map(|p| self.action(cx, p)));
        cx.push(0, out);
    }

    /// Appends at most `max` packets that an output gives.
    fn pull(&self, cx: &Cx<'_>, _port: usize, max: usize, out: &mut Batch) {
        let mut batch = Batch::default();
        cx.pull(0, max, &mut batch);
        out.extend(batch.drain(..).filter_map(|p| self.action(cx, p)));
    }

    /// Begins work, when all elements are there.
    fn initialize(&self, _cx: &Cx<'_>) -> Result<(), String> {
        Ok(())
    }

    /// All elements have begun. What runs here sees a whole router.
    fn started(&self, _cx: &Cx<'_>) {}

    /// Ends work: files are flushed.
    fn cleanup(&self, _cx: &Cx<'_>) {}

    /// Works for a moment. Returns whether there was work.
    fn run_task(&self, _cx: &Cx<'_>) -> bool {
        false
    }

    fn run_timer(&self, _cx: &Cx<'_>, _timer: usize) {}

    /// A notifier upstream or downstream became active.
    fn woken(&self, cx: &Cx<'_>) {
        cx.reschedule();
    }

    fn notice(&self, _output: usize) -> Notice {
        Notice::Pass
    }

    /// Whether it says when it has room again (a full queue that drains).
    fn notifies_room(&self) -> bool {
        false
    }

    /// Returns the value of a handler, or none if there is no such handler.
    fn read(&self, _cx: &Cx<'_>, _name: &str, _argument: &str) -> Option<Result<String, String>> {
        None
    }

    /// Writes a handler, or returns none if there is no such handler.
    fn write(&self, _cx: &Cx<'_>, _name: &str, _value: &str) -> Option<Result<(), String>> {
        None
    }

    /// The names of its own handlers: `r`, `w` or `rw`, and `p` for those that only a script may use.
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// How many packets it holds.
    fn held(&self) -> usize {
        0
    }

    /// Takes over what an element of the same name and class held.
    fn take_state(&self, _cx: &Cx<'_>, _old: &dyn Element) {}
}

/// An element's view of the router.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    pub router: &'a Router,
    pub me: usize,
}

impl<'a> Cx<'a> {
    pub fn name(&self) -> &'a str {
        &self.router.nodes[self.me].name
    }

    pub fn class(&self) -> &'static str {
        self.router.nodes[self.me].class.name
    }

    /// Returns `name :: Class`.
    pub fn declaration(&self) -> String {
        self.router.declaration(self.me)
    }

    pub fn inputs(&self) -> usize {
        self.router.nodes[self.me].inputs.len()
    }

    pub fn outputs(&self) -> usize {
        self.router.nodes[self.me].outputs.len()
    }

    pub fn now(&self) -> Nanos {
        self.router.clock.now()
    }

    /// Returns where arguments of this element are read.
    pub fn scope(&self) -> Scope<'a> {
        Scope { names: &self.router.names, element: self.name() }
    }

    pub fn push(&self, port: usize, batch: Batch) {
        if !batch.is_empty() {
            self.router.push(self.me, port, batch);
        }
    }

    pub fn push_one(&self, port: usize, packet: Packet) {
        self.router.push(self.me, port, Batch::one(packet));
    }

    /// Pushes to an output if it exists, and drops the packet otherwise.
    pub fn push_or_drop(&self, port: usize, cause: &'static str, packet: Packet) {
        match port < self.outputs() {
            true => self.push_one(port, packet),
            false => self.drop(cause, packet),
        }
    }

    pub fn pull(&self, port: usize, max: usize, out: &mut Batch) {
        self.router.pull(self.me, port, max, out);
    }

    pub fn pull_one(&self, port: usize) -> Option<Packet> {
        let mut batch = Batch::default();
        self.pull(port, 1, &mut batch);
        batch.pop()
    }

    /// Ends a packet and counts the cause.
    pub fn drop(&self, cause: &'static str, packet: Packet) {
        drop(packet);
        self.router.nodes[self.me].counts.drop(cause, 1);
    }

    /// Counts packets that this element made.
    pub fn made(&self, count: usize) {
        account::add(&self.router.nodes[self.me].counts.made, count);
    }

    pub fn reschedule(&self) {
        self.router.reschedule(self.me);
    }

    pub fn unschedule(&self) {
        self.router.unschedule(self.me);
    }

    pub fn is_scheduled(&self) -> bool {
        self.router.nodes[self.me].is_scheduled.get()
    }

    pub fn timer_at(&self, timer: usize, time: Nanos) {
        self.router.timer_at(self.me, timer, time);
    }

    pub fn timer_after(&self, timer: usize, delay: Nanos) {
        self.timer_at(timer, self.now() + delay);
    }

    pub fn cancel_timer(&self, timer: usize) {
        self.router.cancel_timer(self.me, timer);
    }

    /// Says whether there are packets to pull. A change to true wakes those who wait.
    pub fn set_filled(&self, is_filled: bool) {
        self.router.set_filled(self.me, is_filled);
    }

    /// Says whether there is room.
    pub fn set_room(&self, has_room: bool) {
        self.router.set_room(self.me, has_room);
    }

    /// Prints lines on standard error.
    pub fn message(&self, text: &str) {
        self.router.message(text);
    }

    /// Prints an error with the name of this element.
    pub fn error(&self, text: &str) {
        self.router.message(&format!("{}: {text}", self.declaration()));
    }

    /// Returns a random number below a bound.
    pub fn random(&self, bound: u64) -> u64 {
        self.router.random(bound)
    }
}
