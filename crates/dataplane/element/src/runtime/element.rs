//! The trait of elements, and their view of the router.

use super::account;
use super::packet::{Batch, Packet};
use super::router::Router;
use flame_click::{Nanos, Scope};
use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;

/// The part of an element in notification, seen from an output that is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It reports itself whether there are packets.
    Own,
    /// It passes on the signal from upstream.
    Pass,
    /// It reports nothing and must be polled.
    Silent,
}

/// A value that can leave its references.
pub trait Sole {
    /// Takes the value out of its only reference. Returns none if there are others.
    fn into_sole(self: Rc<Self>) -> Option<Box<dyn Element>>;
}

impl<T: Element> Sole for T {
    fn into_sole(self: Rc<Self>) -> Option<Box<dyn Element>> {
        Rc::into_inner(self).map(|element| Box::new(element) as _)
    }
}

/// An element. Packets enter by `push` or leave by `pull`; `action` does for elements that handle packets one
/// by one. It goes to another thread if one of another configuration continues it there.
pub trait Element: Any + Send + Sole {
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

    /// Returns whether it may pull from an input when an output is pulled, in any state that it can have.
    fn pulls(&self, _output: usize, _input: usize) -> bool {
        true
    }

    /// Returns whether [`pulls`](Self::pulls) depends on the output.
    fn pulls_by_output(&self) -> bool {
        false
    }

    /// Begins work, when all elements are there.
    ///
    /// # Errors
    ///
    /// Returns an error, with which the router does not start, if the element cannot begin, for example
    /// because a file cannot be opened.
    fn initialize(&self, _cx: &Cx<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Handles the start of the router: all elements have been initialized and are visible.
    fn started(&self, _cx: &Cx<'_>) {}

    /// Writes collected bytes, at the end of a run. Handlers and accounts are read afterwards.
    fn complete(&self, _cx: &Cx<'_>) {}

    /// Ends work: files are closed.
    fn cleanup(&self, _cx: &Cx<'_>) {}

    /// Works for a moment. Returns whether there was work.
    fn run_task(&self, _cx: &Cx<'_>) -> bool {
        false
    }

    /// Handles the timer of this number, which the element chose and which is due.
    fn run_timer(&self, _cx: &Cx<'_>, _timer: usize) {}

    /// Handles the notification that packets or room are there, upstream or downstream.
    fn woken(&self, cx: &Cx<'_>) {
        cx.reschedule();
    }

    /// Returns the element's part in notification, seen from an output.
    fn notice(&self, _output: usize) -> Notice {
        Notice::Pass
    }

    /// Returns the number of packets that it has room for, if it reports when it has room again (a full queue
    /// that drains).
    fn room(&self) -> Option<usize> {
        None
    }

    /// Returns the value of a handler, or none if there is no such handler.
    fn read(&self, _cx: &Cx<'_>, _name: &str, _argument: &str) -> Option<Result<String, String>> {
        None
    }

    /// Writes a handler, or returns none if there is no such handler.
    fn write(&self, _cx: &Cx<'_>, _name: &str, _value: &str) -> Option<Result<(), String>> {
        None
    }

    /// Returns the names of its own handlers: `r`, `w` or `rw`, and `p` for those that only a script may use.
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Returns the most nanoseconds that a packet costs here, if that is known without a measurement, or why
    /// it has no bound.
    fn cost_ns(&self) -> Option<Result<f64, String>> {
        None
    }

    /// Returns the class of this cost, E1 to E7, if it is not that of the class of elements.
    fn cost_class(&self) -> Option<&'static str> {
        None
    }

    /// Returns the number of packets that it holds.
    fn held(&self) -> usize {
        0
    }

    /// Returns its counts, always in the same order. An element of the same name and class that replaces it
    /// continues them.
    fn counts(&self) -> Vec<&Cell<u64>> {
        Vec::new()
    }

    /// Takes over what an element of the same name and class held: its packets are added to those here, or
    /// dropped by [`Cx::drop`] if there is no room. Its [`Element::counts`] are added without this. Nothing
    /// that was moved stays there, since the old element may still be at work, and then this is called again:
    /// what is here by then must not be overwritten.
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

    /// Pushes packets to an output. Packets for an output that does not exist are dropped and counted.
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

    /// Appends at most `max` packets that an input gives; none if it is a push input.
    pub fn pull(&self, port: usize, max: usize, out: &mut Batch) {
        self.router.pull(self.me, port, max, out);
    }

    /// Returns the next packet of an input, if it has one.
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

    /// Gives up to `count` packets that this element has ended another cause.
    pub fn recount(&self, from: &'static str, to: &'static str, count: u64) {
        self.router.nodes[self.me].counts.recount(from, to, count);
    }

    /// Ends packets for one cause.
    pub fn drop_all(&self, cause: &'static str, packets: impl IntoIterator<Item = Packet>) {
        let mut count = 0;
        for packet in packets {
            drop(packet);
            count += 1;
        }
        self.router.nodes[self.me].counts.drop(cause, count);
    }

    /// Counts packets that this element made.
    pub fn made(&self, count: usize) {
        account::add(&self.router.nodes[self.me].counts.made, count);
    }

    /// Schedules one more run of the element's task.
    pub fn reschedule(&self) {
        self.router.reschedule(self.me);
    }

    pub fn unschedule(&self) {
        self.router.unschedule(self.me);
    }

    pub fn is_scheduled(&self) -> bool {
        self.router.nodes[self.me].is_scheduled.get()
    }

    /// Sets a timer of the element, in place of its former time. Numbers of timers count from 0.
    pub fn timer_at(&self, timer: usize, time: Nanos) {
        self.router.timer_at(self.me, timer, time);
    }

    pub fn timer_after(&self, timer: usize, delay: Nanos) {
        self.timer_at(timer, self.now() + delay);
    }

    pub fn is_timer_set(&self, timer: usize) -> bool {
        self.router.timer_time(self.me, timer).is_some()
    }

    pub fn cancel_timer(&self, timer: usize) {
        self.router.cancel_timer(self.me, timer);
    }

    /// Sets whether there are packets to pull. A change to true wakes the elements that wait.
    pub fn set_filled(&self, is_filled: bool) {
        self.router.set_filled(self.me, is_filled);
    }

    /// Sets whether there is room.
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
