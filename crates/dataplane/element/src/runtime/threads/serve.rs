//! A router's part in its team: it takes packets of other threads, and answers their calls.

use crate::runtime::limits::{ACROSS, HANDLER, LATE, Limits, PULL, TOO_MUCH, WAIT};
use crate::runtime::router::Router;
use crate::runtime::threads::team::{Kind, Means, Member, TEAM_CHECK};
use crate::runtime::{account, loops};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Router {
    /// Returns whether an element is another thread's.
    pub(in crate::runtime) fn is_elsewhere(&self, element: usize) -> bool {
        self.member.as_ref().is_some_and(|m| !m.owns(element))
    }

    /// Returns whether an element reports when it has room again.
    pub(in crate::runtime) fn notifies_room(&self, element: usize) -> bool {
        match &self.member {
            Some(m) if !m.owns(element) => m.team.facts(element).notifies_room,
            _ => self.element(element).room().is_some(),
        }
    }

    /// Tells other threads that an element has room.
    pub(in crate::runtime) fn tell_room(&self, element: usize) {
        if let Some(member) = self.member.as_ref().filter(|m| m.owns(element))
            && let Some(room) = self.element(element).room()
        {
            member.publish_room(element, room);
        }
    }

    /// Calls a handler of an element of another thread.
    ///
    /// # Errors
    ///
    /// Returns the error of the handler, or one if the other thread has ended or this step does too much.
    pub(in crate::runtime) fn call_elsewhere(
        &self,
        member: &Member,
        kind: Kind,
        element: usize,
        call: (&str, &str),
    ) -> Result<String, String> {
        if !self.spend(ACROSS) {
            return Err(TOO_MUCH.into());
        }
        let (fuel, depth) = (self.limits.fuel.get(), self.limits.depth.get());
        let means = Means { fuel, depth, loops: loops::inherited() };
        let (begun, waited) = (Instant::now(), self.limits.waited.get());
        let deadline = begun + WAIT.saturating_sub(waited);
        let (value, left) = member.call(kind, element, call, (means, deadline), &|| self.serve_calls());
        self.limits.waited.set(waited + begun.elapsed());
        self.limits.fuel.set(left);
        value
    }

    /// Answers the calls of other threads that wait now, each within the limits of the step that it comes
    /// from. Those that come meanwhile wait: threads that call again and again would stop this one.
    pub fn serve_calls(&self) {
        let Some(member) = &self.member else { return };
        // Calls that wait for other threads have taken most of the stack: they end before it serves more.
        if self.limits.stack.get() + HANDLER > PULL {
            return;
        }
        for _ in 0..member.waiting_calls() {
            let Some(call) = member.next_call() else { return };
            let name = format!("{}.{}", self.nodes[call.element].name, call.handler);
            let Limits { fuel, depth, is_in_step, waited, .. } = &self.limits;
            let before = (fuel.replace(call.means.fuel), depth.replace(call.means.depth));
            let (was_in_step, had_waited) = (is_in_step.replace(true), waited.take());
            let born = loops::Call::with([&call.means.loops]);
            let value = match call.kind {
                Kind::Read => self.read(None, &name, &call.value),
                Kind::Write => self.write(None, &name, &call.value).map(|()| String::new()),
            };
            drop(born);
            is_in_step.set(was_in_step);
            waited.set(had_waited);
            depth.set(before.1);
            let left = fuel.replace(before.0);
            call.reply(value, left);
        }
    }

    /// Answers the calls of other threads within a round, if the last ones ended a while ago: tasks of this
    /// thread may take long, but short ones are not stopped by calls.
    pub(in crate::runtime) fn serve_late_calls(&self) {
        let is_late = || self.limits.served.get().is_none_or(|served| served.elapsed() >= LATE);
        if self.member.as_ref().is_some_and(|m| m.waiting_calls() > 0) && is_late() {
            self.serve_calls();
            self.limits.served.set(Some(Instant::now()));
        }
    }

    /// Takes the packets of other threads. Returns whether there was something to do.
    pub(in crate::runtime) fn collect_mail(&self) -> bool {
        let Some(member) = &self.member else { return false };
        self.serve_calls();
        let Some((mut packets, rooms)) = member.take_mail() else { return false };
        for (element, input, batch) in packets.drain(..) {
            let count = batch.len();
            self.in_step(|| self.deliver(element, input, batch));
            member.arrived(element, count, self.element(element).room());
        }
        member.give_back(packets);
        for element in rooms {
            if member.has_credit(element) {
                self.set_room(element, true);
            }
        }
        true
    }

    /// Drops the packets of other threads, at the end.
    pub(in crate::runtime) fn drop_mail(&self) {
        let Some((member, (packets, _))) = self.member.as_ref().and_then(|m| Some((m, m.take_mail()?)))
        else {
            return;
        };
        for (element, _, batch) in packets {
            let (counts, count) = (&self.nodes[element].counts, batch.len());
            account::add(&counts.taken, count);
            counts.drop("interrupted", count as u64);
            member.arrived(element, count, None);
        }
    }

    /// Sends the packets for other threads on their way.
    pub(in crate::runtime) fn flush(&self) {
        if let Some(member) = &self.member {
            member.flush();
        }
    }

    /// Counts the stops that other threads asked for, in thread 0, and returns their number. Another thread
    /// that asked for one does nothing until that is decided.
    pub(in crate::runtime) fn collect_stops(&self) -> u64 {
        let Some(member) = &self.member else { return 0 };
        if member.me == 0 {
            let stops = member.stops();
            let count = i64::try_from(stops).unwrap_or(i64::MAX);
            self.runcount.set(self.runcount.get().saturating_sub(count));
            return stops;
        }
        while self.runcount.get() <= 0 && !self.is_stopping() && !self.is_to_be_replaced() {
            match member.stops() {
                0 => self.runcount.set(1),
                _ => {
                    member.flush();
                    self.serve_calls();
                    std::thread::park_timeout(TEAM_CHECK);
                }
            }
        }
        0
    }

    /// Lets the threads go on whose stops were collected.
    pub(in crate::runtime) fn go_on_after(&self, stops: u64) {
        if let Some(member) = self.member.as_ref().filter(|_| stops > 0) {
            member.go_on(stops);
        }
    }

    /// Asks the run to stop, which thread 0 decides.
    pub(in crate::runtime) fn stop(&self, times: u32) {
        match self.member.as_ref().filter(|m| m.me != 0) {
            Some(member) => {
                self.runcount.set(0);
                member.ask_to_stop(times.into());
            }
            None => self.runcount.set(self.runcount.get().saturating_sub(times.into())),
        }
    }

    /// Returns whether a handler has asked for another configuration.
    pub(in crate::runtime) fn is_to_be_replaced(&self) -> bool {
        self.hotconfig.borrow().is_some() || self.member.as_ref().is_some_and(|m| m.team.is_wanted())
    }

    /// Returns whether the run of the team ends.
    pub(in crate::runtime) fn is_stopping(&self) -> bool {
        self.member.as_ref().is_some_and(|m| m.team.is_stopping())
    }

    /// Returns whether another thread wants something of this one.
    pub(in crate::runtime) fn is_called(&self) -> bool {
        self.any_wake.load(Ordering::SeqCst)
            || self.interrupt.load(Ordering::SeqCst)
            || self.member.as_ref().is_some_and(|m| m.is_called())
    }
}
