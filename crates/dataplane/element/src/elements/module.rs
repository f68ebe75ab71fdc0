//! Module(FILE, NAME VALUE..., CREDENTIAL, IDENTITY, EXPOSE, SELECT, TRANSFORM, INTERVAL, RESTART, BUDGET,
//! ENCAP, ON_EVICT, LIVE, CAPACITY, LIMIT, MAX_LENGTH): runs a module of WebAssembly on the packets that
//! pass. FILE is its path or the name of an installed one; NAME VALUE sets one of its parameters. Without a
//! policy the module has the rights of the operator, which EXPOSE (headers), SELECT and TRANSFORM narrow;
//! with `flame click --policy`, those of the CREDENTIAL, whose holder's key is in the file IDENTITY. Packets
//! begin with an Ethernet header, or with IP if ENCAP is IP. A module that has ended after a fault (more than
//! RESTART of them), or lost its grant, lets packets pass, or ON_EVICT drop drops them. With LIVE true, other
//! elements work between the slices of a metered module's call, and packets that find no room meanwhile do
//! not reach the module. LIMIT is the time that a packet may take (2us): a module with a larger estimate, by
//! more than the packets that can wait for it make up for (1 + CAPACITY / 256), is metered, and with LIVE
//! true one that takes longer in more than 1 % of its batches, or whose calls together take longer than their
//! packets allow, loses its grant. Bounds and estimates are for packets of MAX_LENGTH bytes (262144): one
//! that measures does not see what follows, and longer packets do not pass one that forwards, but are dropped
//! as `too long`. With LIVE true, a module whose call was not interrupted and took long rests until the other
//! elements of its thread had four times as long, and after each RESTART for 10 ms to 1 s: packets do not
//! reach it meanwhile (`shed` as `share`), or wait for one that forwards.
//! Expects: anything. A module that forwards (`[ports]` in its manifest) takes packets that are pushed.
//! Gives: the same packets; of a module that forwards, those that it sends, from the output that it names.
//! Packets that its view does not show leave by output 0. CAPACITY (4096) packets wait for it; `length`
//! is their number, `held` that of those that it holds. The module's records go to `flame click --records`.
//! Handlers: account, module, stats, faults, gone, length, held.
//! Example: `FromDump(in.pcap) -> Module(rtt, max_handshakes 4096) -> q`

use super::module_block::fill;
use super::module_forward::{Forwarding, OnEvict};
use super::module_rest::Rest;
use crate::modules::{ModuleArgs, ModuleError, Prepared, Running};
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{Batch, Packet};
use flame_abi::LinkType;
use flame_click::Nanos;
use flame_click::text::first_word;
use flame_plan::Discipline;
use flame_source::{Frame, RawBlock};
use flame_worker::{Attached, RunError};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

const SOURCE: &str = include_str!("module.rs");

/// Time after which a module that holds packets is checked, although none come: it may have lost its grant.
const HELD_CHECK: Nanos = Nanos(500_000_000);
/// The timers of an element.
const PAUSED: usize = 0;
const HOLDS: usize = 1;
const LOOK: usize = 2;

/// Times after which a module in a process is checked, although no packets come: while it has not reported
/// everything, and afterwards, since its process may have ended nevertheless.
const REPORT_CHECK: Nanos = Nanos(10_000_000);
const PROCESS_CHECK: Nanos = Nanos(1_000_000_000);

/// Interval of attempts to continue a module that has used up its share of time.
const SHARE_CHECK: Duration = Duration::from_millis(1);

/// The life of an element's module. It starts at most once.
enum State {
    Ready(Box<dyn Prepared>),
    Running(Box<Running>),
    /// It has ended, or runs in the element that has replaced this one. Nothing starts here any more.
    Over,
}

impl State {
    fn running(&mut self) -> Option<&mut Running> {
        if let Self::Running(running) = self { Some(running) } else { None }
    }

    /// Returns the run of the module, if it runs.
    fn attached(&mut self) -> Option<&mut Attached> {
        self.running().map(|running| &mut running.attached)
    }
}

/// The timer that looks at a module that works elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The module was not asked where it works.
    Unknown,
    /// It works here.
    Never,
    After(Nanos),
}

struct Module {
    /// The element's arguments, by which it recognizes itself in another router.
    config: String,
    file: String,
    state: RefCell<State>,
    /// Whether starting failed, or the output did. Then the module is gone.
    has_failed: Cell<bool>,
    /// The state that the last module of this element left, for the handlers.
    last: RefCell<(flame_plan::Account, Vec<String>)>,
    on_evict: OnEvict,
    link: LinkType,
    block: RefCell<RawBlock>,
    /// Whether a timer is set, after which the module may have time again.
    is_paused: Cell<bool>,
    /// Whether the timer of a module that holds packets is set.
    is_observed: Cell<bool>,
    /// Whether the module works elsewhere, and the time after which the timer was set that looks at it.
    look: Cell<Look>,
    /// The rest after long calls and restarts, in a live graph.
    rest: Option<Rest>,
    /// The state of forwarding, if the module forwards.
    forward: Option<Forwarding>,
    /// The packets that the module of an element that this one has replaced held, and that leave.
    leaving: RefCell<Batch>,
}

impl Module {
    fn is_gone(&self) -> bool {
        self.has_failed.get() || self.state.borrow_mut().attached().is_some_and(Attached::is_gone)
    }

    fn is_over(&self) -> bool {
        matches!(&*self.state.borrow(), State::Over)
    }

    /// Asks the module's run, as [`Module::run`]. No call of the module is made.
    fn ask<T>(&self, cx: &Cx<'_>, act: impl FnOnce(&mut Attached) -> Result<T, RunError>) -> Option<T> {
        self.run(cx, |running| act(&mut running.attached))
    }

    /// Lets the module work, as [`Module::run`], on packets that it is given, and charges its time.
    fn work<T>(
        &self,
        cx: &Cx<'_>,
        packets: usize,
        act: impl FnOnce(&mut Attached) -> Result<T, RunError>,
    ) -> Option<T> {
        self.run(cx, |running| {
            let resting = self.rest(cx).map(|rest| (rest, cx.router.owed.begin()));
            let worked = act(&mut running.attached);
            if let Some((rest, begun)) = resting {
                let ended = cx.router.owed.end(begun);
                rest.worked(ended, running.restarts());
                running.worked(ended.at, ended.took, packets);
            }
            worked
        })
    }

    /// Acts on the module, which is started if it does not run yet. A failure of its output ends it.
    fn run<T>(&self, cx: &Cx<'_>, act: impl FnOnce(&mut Running) -> Result<T, RunError>) -> Option<T> {
        if self.has_failed.get() {
            return None;
        }
        let mut state = self.state.borrow_mut();
        let worked = match std::mem::replace(&mut *state, State::Over) {
            State::Ready(prepared) => prepared.start().map(Box::new),
            State::Running(running) => Ok(running),
            State::Over => return None,
        };
        let worked = worked.and_then(|mut running| {
            let worked = act(&mut running);
            *state = State::Running(running);
            Ok(worked?)
        });
        match worked {
            Ok(value) => Some(value),
            Err(e) => {
                self.has_failed.set(true);
                cx.error(&e.to_string());
                None
            }
        }
    }

    /// Returns the rest of the module, if others of its thread have to work meanwhile. Simulated time stands
    /// still while there is work.
    fn rest(&self, cx: &Cx<'_>) -> Option<&Rest> {
        self.rest.as_ref().filter(|_| !cx.router.clock.is_simulated())
    }

    /// Returns whether the module rests. If so, its element works again when the rest is over.
    fn rests(&self, cx: &Cx<'_>) -> bool {
        let left = self.rest(cx).and_then(|rest| rest.left(&cx.router.owed, Instant::now));
        if let Some(left) = left
            && !self.is_paused.replace(true)
        {
            cx.timer_after(PAUSED, Nanos(i64::try_from(left.as_nanos()).unwrap_or(i64::MAX)));
        }
        left.is_some()
    }

    /// Continues calls that have not ended later: in the next step, or, if the module has used up its share
    /// of time, after a while. Nothing else would be done in the steps until then.
    fn go_on(&self, cx: &Cx<'_>) {
        match self.ask(cx, |attached| Ok(attached.is_waiting())) {
            // Packets that come meanwhile do not prolong it.
            Some(true) if self.is_paused.get() => {}
            Some(true) => {
                self.is_paused.set(true);
                cx.timer_after(PAUSED, Nanos(SHARE_CHECK.as_nanos() as i64));
            }
            _ => cx.reschedule(),
        }
    }

    /// Lets time pass for a module that waits for its share of time or for its process. Simulated time does
    /// not bring either, and would only run ahead.
    fn let_time_pass(&self, cx: &Cx<'_>) {
        let is_waiting = || self.state.borrow_mut().attached().is_some_and(Attached::is_waiting);
        if cx.router.clock.is_simulated() && is_waiting() {
            std::thread::sleep(SHARE_CHECK);
        }
    }

    /// Looks at a module that works elsewhere, and will do so again. Simulated time does not wait.
    fn look(&self, cx: &Cx<'_>) {
        if cx.router.clock.is_simulated() {
            return self.look.set(Look::Never);
        }
        match self.work(cx, 0, Attached::look).flatten() {
            Some(is_settled) => self.look_after(cx, if is_settled { PROCESS_CHECK } else { REPORT_CHECK }),
            None => self.look.set(Look::Never),
        }
    }

    fn look_after(&self, cx: &Cx<'_>, after: Nanos) {
        self.look.set(Look::After(after));
        cx.timer_after(LOOK, after);
    }

    /// Looks soon at a module that was offered packets, if it works elsewhere.
    fn look_soon(&self, cx: &Cx<'_>) {
        match self.look.get() {
            Look::Never | Look::After(REPORT_CHECK) => {}
            Look::Unknown => self.look(cx),
            Look::After(_) => self.look_after(cx, REPORT_CHECK),
        }
    }

    /// Offers packets to the module, in blocks.
    fn measure(&self, cx: &Cx<'_>, packets: &[Packet]) {
        let mut rest = packets;
        while !rest.is_empty() {
            if self.rests(cx) {
                self.state.borrow_mut().running().into_iter().for_each(|running| running.rested(rest.len()));
                break;
            }
            let taken = fill(&mut self.block.borrow_mut(), rest, self.link, || cx.now());
            rest = &rest[taken..];
            let busy = self.work(cx, taken, |attached| {
                attached.packets(&self.block.borrow())?;
                Ok(attached.is_busy())
            });
            if busy == Some(true) {
                self.go_on(cx);
            }
        }
        self.look_soon(cx);
    }

    /// Returns those of the packets that go on, after the module has seen them.
    fn pass(&self, cx: &Cx<'_>, mut batch: Batch) -> Batch {
        // Whether these are dropped depends on what became of those before.
        if self.on_evict == OnEvict::Drop && self.state.borrow_mut().running().is_some() {
            self.work(cx, 0, Attached::settle);
        }
        if !self.is_gone() {
            self.measure(cx, &batch);
        } else if self.on_evict == OnEvict::Drop {
            cx.drop_all("module gone", batch.drain(..));
        }
        batch
    }

    /// Lets a module that forwards decide about the packets that wait, and sends them on. Those that come
    /// meanwhile wait for the next step, so that a cycle does not keep the others from their turn.
    fn forward(&self, cx: &Cx<'_>, forward: &Forwarding) {
        // A packet that comes back while others are sent waits for its turn.
        let Some(_turn) = forward.enter() else { return };
        let mut left = forward.waiting();
        loop {
            let decide = |attached: &mut Attached| Ok(forward.decide(|bytes| attached.decided(bytes)));
            if forward.is_in_flight()
                && let Some(decided) = self.ask(cx, decide).flatten()
            {
                forward.apply(cx, decided, self.on_evict);
                if self.is_over() {
                    // It was replaced meanwhile, and held packets after that. The next module has its own.
                    forward.forget(cx, self.on_evict, "replaced");
                }
                continue;
            }
            if self.has_failed.get() {
                forward.fail(cx, self.on_evict, "module gone");
                break;
            }
            if self.is_over() {
                // The element that has replaced this one is handed what waits here.
                return;
            }
            if self.rests(cx) {
                // The packets wait, as far as they find room.
                return;
            }
            let is_busy = |attached: &mut Attached| Ok(attached.is_busy());
            if forward.is_in_flight() || self.ask(cx, is_busy) == Some(true) {
                // Its call continues in another slice.
                self.look_soon(cx);
                return self.go_on(cx);
            }
            if left == 0 {
                break;
            }
            let push = |port, packets: &[Frame<'_>]| {
                let port = u16::try_from(port).unwrap_or(u16::MAX);
                let push = |attached: &mut Attached| attached.push(port, self.link, packets);
                self.work(cx, packets.len(), push).unwrap_or(0)
            };
            let Some(count) = forward.offer(|| cx.now(), push) else { break };
            left = left.saturating_sub(count);
        }
        if forward.waiting() > 0 {
            cx.reschedule();
        }
        self.observe(cx, forward);
        if self.state.borrow_mut().running().is_some() {
            self.look_soon(cx);
        }
    }

    /// Sends or drops what a module held that has ended, and looks after one that holds packets again later.
    fn observe(&self, cx: &Cx<'_>, forward: &Forwarding) {
        if forward.kept() == 0 {
            return;
        }
        if self.is_gone() {
            forward.forget(cx, self.on_evict, "module gone");
        } else if !self.is_observed.get() && !cx.router.clock.is_simulated() {
            self.is_observed.set(true);
            cx.timer_after(HOLDS, HELD_CHECK);
        }
    }

    /// Sends the packets that a module held, whose element this one has replaced.
    fn leave(&self, cx: &Cx<'_>) -> bool {
        let is_pulled = cx.router.nodes[cx.me].outputs.first().is_some_and(|output| !output.is_push);
        if is_pulled || self.leaving.borrow().is_empty() {
            return false;
        }
        let leaving = self.leaving.take();
        cx.push(0, leaving);
        true
    }

    /// Returns the number of packets that wait for the module's decision.
    fn undecided(&self) -> usize {
        self.forward.as_ref().map_or(0, Forwarding::undecided)
    }

    /// Ends the module.
    fn finish(&self, is_interrupted: bool) -> Result<(), ModuleError> {
        let state = std::mem::replace(&mut *self.state.borrow_mut(), State::Over);
        let State::Running(mut running) = state else { return Ok(()) };
        *self.last.borrow_mut() = (running.account(), running.faults());
        running.end(is_interrupted)
    }

    fn state(&self) -> (flame_plan::Account, Vec<String>) {
        match self.state.borrow_mut().running() {
            Some(running) => (running.account(), running.faults()),
            None => self.last.borrow().clone(),
        }
    }
}

impl Element for Module {
    fn push(&self, cx: &Cx<'_>, port: usize, batch: Batch) {
        self.leave(cx);
        match &self.forward {
            None => {
                let batch = self.pass(cx, batch);
                cx.push(0, batch);
            }
            Some(forward) => {
                forward.take(cx, port, batch);
                self.forward(cx, forward);
            }
        }
    }
    fn pull(&self, cx: &Cx<'_>, _: usize, max: usize, out: &mut Batch) {
        let mut leaving = self.leaving.borrow_mut();
        let count = leaving.len().min(max);
        out.extend(leaving.drain(..count));
        drop(leaving);
        let mut batch = Batch::default();
        cx.pull(0, max - count, &mut batch);
        out.extend(self.pass(cx, batch).drain(..));
    }
    fn run_task(&self, cx: &Cx<'_>) -> bool {
        let has_left = self.leave(cx);
        // A module that does not run is not started for this.
        if self.state.borrow_mut().running().is_none() && self.undecided() == 0 {
            return has_left;
        }
        if self.rests(cx) {
            return has_left;
        }
        let had_packets = self.undecided() > 0;
        let is_left = self.work(cx, 0, Attached::resume);
        if let Some(forward) = &self.forward {
            self.forward(cx, forward);
        } else if is_left == Some(true) {
            self.go_on(cx);
        }
        is_left.is_some() || had_packets || has_left
    }
    fn run_timer(&self, cx: &Cx<'_>, timer: usize) {
        match timer {
            LOOK => {
                // One that was replaced meanwhile is not started again.
                if self.state.borrow_mut().running().is_some() {
                    self.look(cx);
                }
                // Decisions may have come.
                if self.undecided() == 0 {
                    return;
                }
            }
            HOLDS => self.is_observed.set(false),
            _ => {
                self.is_paused.set(false);
                self.let_time_pass(cx);
            }
        }
        cx.reschedule();
    }
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        let inputs = &cx.router.nodes[cx.me].inputs;
        match self.forward.is_some() && inputs.iter().any(|input| !input.is_push) {
            true => {
                Err("a module that forwards packets takes those that are pushed: put an Unqueue before it"
                    .into())
            }
            false => Ok(()),
        }
    }
    fn cost_ns(&self) -> Option<Result<f64, String>> {
        match &*self.state.borrow() {
            State::Ready(prepared) => Some(prepared.cost_ns()),
            _ => None,
        }
    }
    fn cost_class(&self) -> Option<&'static str> {
        match &*self.state.borrow() {
            State::Ready(prepared) => prepared.cost_class(),
            _ => None,
        }
    }
    fn held(&self) -> usize {
        let leaving = self.leaving.borrow().len();
        leaving + self.forward.as_ref().map_or(0, |forward| forward.undecided() + forward.kept())
    }
    fn cleanup(&self, cx: &Cx<'_>) {
        let is_interrupted = cx.router.interrupt.load(std::sync::atomic::Ordering::Relaxed);
        if let Err(e) = self.finish(is_interrupted) {
            cx.error(&e.to_string());
        }
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        if matches!(name, "gone" | "stats" | "faults")
            && let Some(attached) = self.state.borrow_mut().attached()
            && let Err(e) = attached.settle()
        {
            return Some(Err(e.to_string()));
        }
        Some(Ok(match name {
            "module" => self.file.clone(),
            "gone" => self.is_gone().to_string(),
            "length" => self.undecided().to_string(),
            "held" => self.forward.as_ref().map_or(0, Forwarding::kept).to_string(),
            "stats" => {
                let (a, _) = self.state();
                let shed = flame_plan::Shed::ALL.map(|cause| (cause.name(), a.shed_by(cause)));
                let shed = shed.iter().filter(|(_, n)| *n > 0);
                let shed: String = shed.map(|(name, n)| format!("shed {n} {name}\n")).collect();
                let flame_plan::Account { offered, processed, filtered, sampled, records, faults, .. } = a;
                format!(
                    "offered {offered}\nprocessed {processed}\nfiltered {filtered}\nsampled {sampled}\n\
                     {shed}records {records}\nfaults {faults}\n"
                )
            }
            "faults" => self.state().1.iter().map(|text| format!("{text}\n")).collect(),
            _ => return None,
        }))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("module", "r"), ("stats", "r"), ("faults", "r"), ("gone", "r"), ("length", "r"), ("held", "r")]
    }
    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        let mut leaving = self.leaving.borrow_mut();
        leaving.append(&mut old.leaving.borrow_mut());
        let is_kept = match (&*self.state.borrow(), &mut *old.state.borrow_mut()) {
            (State::Ready(new), State::Running(running)) => {
                old.config == self.config && new.continues(running)
            }
            _ => false,
        };
        if is_kept {
            *self.state.borrow_mut() = std::mem::replace(&mut *old.state.borrow_mut(), State::Over);
            self.has_failed.set(old.has_failed.get());
            if let (Some(rest), Some(old)) = (&self.rest, &old.rest) {
                rest.continues(old);
            }
            if let (Some(forward), Some(old)) = (&self.forward, &old.forward) {
                forward.take_flight(old);
            }
            if self.state.borrow_mut().attached().is_some_and(Attached::is_busy) {
                cx.reschedule();
            }
            self.look_soon(cx);
        } else {
            if let Err(e) = old.finish(false) {
                cx.error(&e.to_string());
            }
            // The packets of the module that has ended have no decision: they are offered to this one.
            if let Some(forward) = &old.forward {
                forward.give_back();
                match old.on_evict {
                    // Elements behind this one may not have what they held before yet.
                    OnEvict::Pass => leaving.append(&mut forward.take_kept()),
                    OnEvict::Drop => forward.drop_kept(cx, "replaced"),
                }
            }
        }
        if !leaving.is_empty() {
            cx.reschedule();
        }
        drop(leaving);
        match (&self.forward, &old.forward) {
            (Some(forward), Some(old)) => {
                forward.take_over(cx, old);
                cx.reschedule();
            }
            // The file has another module by now, which only measures.
            (None, Some(old)) => old.fail(cx, OnEvict::Drop, "replaced"),
            (_, None) => {}
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // No receiver is left for an error.
        let _ = self.finish(false);
    }
}

class!(
    MODULE,
    "Module",
    "1-/-",
    "a/a",
    [
        "FILE",
        "CREDENTIAL",
        "IDENTITY",
        "EXPOSE",
        "SELECT",
        "TRANSFORM",
        "INTERVAL",
        "RESTART",
        "BUDGET",
        "ENCAP",
        "ON_EVICT",
        "LIVE",
        "CAPACITY",
        "LIMIT",
        "MAX_LENGTH"
    ],
    |args, setup| {
        let link = match args.key::<String>("ENCAP").as_deref() {
            None | Some("ETHER") => LinkType::ETHERNET,
            Some("IP") => LinkType::RAW,
            Some(other) => {
                args.error(format!("ENCAP: expected ETHER or IP, found '{other}'"));
                LinkType::ETHERNET
            }
        };
        let on_evict = match args.key::<String>("ON_EVICT").as_deref() {
            None | Some("pass") => OnEvict::Pass,
            Some("drop") => OnEvict::Drop,
            Some(other) => {
                args.error(format!("ON_EVICT: expected drop or pass, found '{other}'"));
                OnEvict::Pass
            }
        };
        let capacity = args.key("CAPACITY").unwrap_or(4096_usize);
        let max_length = args.key::<u32>("MAX_LENGTH");
        if max_length == Some(0) {
            args.error("MAX_LENGTH: expected at least 1, found 0");
        }
        let module_args = ModuleArgs {
            element: setup.name.to_owned(),
            file: args.req("FILE"),
            credential: args.key("CREDENTIAL"),
            identity: args.key("IDENTITY"),
            expose: args.key("EXPOSE"),
            select: args.all("SELECT"),
            transform: args.all("TRANSFORM"),
            interval: args.key("INTERVAL"),
            restarts: args.key("RESTART").unwrap_or(0),
            packet_budget: args.key("BUDGET"),
            discipline: match (args.key("LIVE").unwrap_or(false), on_evict) {
                (true, _) => Discipline::LiveGraph,
                // The first packet after a fault is dropped, so each waits for those before it.
                (false, OnEvict::Drop) => Discipline::StepwiseGraph,
                (false, OnEvict::Pass) => Discipline::WaitingGraph,
            },
            limit: args.key("LIMIT"),
            max_length,
            capacity,
            settings: args.rest().iter().map(|text| first_word(text)).collect(),
            inputs: setup.inputs,
            outputs: setup.outputs,
        };
        // No module is read for arguments that are wrong.
        let prepared = match setup.router.modules {
            _ if args.has_errors() => None,
            Some(modules) => modules.prepare(&module_args).map_err(|e| args.error(e)).ok(),
            None => {
                args.error("modules cannot run here: use `flame click`");
                None
            }
        };
        let forwards = prepared.as_deref().is_some_and(|p: &dyn Prepared| p.forwards());
        Box::new(Module {
            forward: forwards.then(|| Forwarding::new(capacity, max_length)),
            config: setup.config.to_owned(),
            file: module_args.file,
            state: RefCell::new(prepared.map_or(State::Over, State::Ready)),
            has_failed: Cell::new(false),
            last: RefCell::default(),
            on_evict,
            link,
            block: RefCell::default(),
            is_paused: Cell::new(false),
            is_observed: Cell::new(false),
            look: Cell::new(Look::Unknown),
            rest: module_args.discipline.loses_late_packets().then(Rest::default),
            leaving: RefCell::default(),
        })
    }
);
