//! ToDevice(DEVNAME, BURST, METHOD): sends frames by an interface of this machine, at most BURST (64) at
//! once. METHOD is LINUX: one system call (`sendmmsg`) on an AF_PACKET socket; PCAP is another name for it.
//! METHOD XDP is AF_XDP: the transmit ring of a socket on the interface's first queue, whose memory it shares
//! with a FromDevice of the same interface and METHOD in this router. When the interface takes no more, it
//! waits with the frames that are left, which `account` shows as held. Frames that the interface refuses are
//! dropped: too long for it, cut off by a SNAPLEN, while it is down, or since it takes none although it is up
//! and has a carrier: after 2 s, and sooner if there are more of them. It needs CAP_NET_RAW.
//! Expects: whole frames to pull, whose checksums are right.
//! Gives: 0, if connected: the frames that were sent; 1, if connected: those that were refused.
//! Handlers: count, drops, pulls, signal, reset_counts (w).
//! Example: `q :: Queue -> ToDevice(eth0)`

use super::from_device::{Method, is_received_by_xdp, method};
use super::opened::Opened;
use super::watch::Watch;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Batch, Packet};
use crate::runtime::signal::Signal;
use crate::runtime::wake::Waker;
use flame_abi::LinkType;
use flame_click::Nanos;
use flame_source::live::{Patience, Sender, Unsent, XdpSender, may_open};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

const SOURCE: &str = include_str!("to_device.rs");

/// The first and the longest pause while the queue of the interface is full.
const PAUSE: Nanos = Nanos(50_000);
const LONGEST_PAUSE: Nanos = Nanos(5_000_000);

/// The state in which the sending ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// The interface takes more.
    All,
    /// Frames wait until there is room.
    Waits,
    /// The interface was removed.
    Gone,
}

/// An open interface.
trait Wire: Send {
    fn link(&self) -> LinkType;
    /// Sends frames. Returns how many, or why the first one was not sent.
    fn send(&self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent>;
    /// Wakes the element when there is room.
    fn await_room(&self);
    fn adopt(&self, waker: Waker);
    /// Returns whether the interface has a carrier.
    fn has_carrier(&self) -> bool;
    /// Returns whether the interface was removed.
    fn is_gone(&self) -> bool;
    /// Returns whether its name is still that of the interface.
    fn has_its_name(&self) -> bool;
}

/// An interface, and the thread that waits for room.
struct Interface {
    sender: Sender,
    watch: Watch,
}

impl Wire for Interface {
    fn link(&self) -> LinkType {
        self.sender.link()
    }

    fn send(&self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        self.sender.send(frames)
    }

    fn await_room(&self) {
        self.watch.arm();
    }

    fn adopt(&self, waker: Waker) {
        self.watch.adopt(waker);
    }

    fn has_carrier(&self) -> bool {
        self.sender.has_carrier()
    }

    fn is_gone(&self) -> bool {
        self.sender.is_gone()
    }

    fn has_its_name(&self) -> bool {
        self.sender.has_its_name()
    }
}

/// The end of a wait for room is not reported: it is looked for after a pause.
impl Wire for XdpSender {
    fn link(&self) -> LinkType {
        self.link()
    }

    fn send(&self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        self.send(frames)
    }

    fn await_room(&self) {}

    fn adopt(&self, _: Waker) {}

    fn has_carrier(&self) -> bool {
        self.has_carrier()
    }

    fn is_gone(&self) -> bool {
        self.is_gone()
    }

    fn has_its_name(&self) -> bool {
        self.has_its_name()
    }
}

struct ToDevice {
    name: String,
    method: Method,
    burst: usize,
    open: Opened<Box<dyn Wire>>,
    /// Frames that were pulled and not sent yet.
    waiting: RefCell<VecDeque<Packet>>,
    patience: Patience,
    /// The next pause, and whether it waits.
    pause: Cell<Nanos>,
    is_waiting: Cell<bool>,
    count: Cell<u64>,
    drops: Cell<u64>,
    pulls: Cell<u64>,
    signal: RefCell<Signal>,
}

fn nanoseconds(cx: &Cx<'_>) -> u64 {
    u64::try_from(cx.now().0).unwrap_or(0)
}

impl ToDevice {
    fn open(&self, cx: &Cx<'_>) -> Result<Box<dyn Wire>, String> {
        #[cfg(test)]
        if let Some(wire) = tests::wire(cx, &self.name) {
            return wire;
        }
        let name = &self.name;
        let (wire, way): (Box<dyn Wire>, String) = match self.method {
            Method::Linux => {
                let sender = Sender::open(name).map_err(|e| e.to_string())?;
                let fd = sender.fd().try_clone_to_owned();
                let watch = fd.and_then(|fd| Watch::new(vec![fd], true, cx.router.waker(cx.me)));
                let watch = watch.map_err(|e| format!("interface {name}: {e}"))?;
                (Box::new(Interface { sender, watch }), "sendmmsg on an AF_PACKET socket".to_owned())
            }
            Method::Xdp => {
                let sender = XdpSender::open(name).map_err(|e| e.to_string())?;
                let way = sender.way();
                (Box::new(sender), way)
            }
        };
        cx.message(&format!("{}: interface {name} by {way}", cx.declaration()));
        Ok(wire)
    }

    fn refuse(&self, cx: &Cx<'_>, cause: &'static str, packet: Packet) {
        add(&self.drops, 1);
        cx.push_or_drop(1, cause, packet);
    }

    /// Pulls frames. Those that cannot be right are refused.
    fn fill(&self, cx: &Cx<'_>, link: LinkType) {
        let room = self.burst.saturating_sub(self.waiting.borrow().len());
        if room == 0 {
            return;
        }
        let mut batch = Batch::default();
        cx.pull(0, room, &mut batch);
        add(&self.pulls, 1);
        let least = if link == LinkType::ETHERNET { 14 } else { 1 };
        for packet in batch.drain(..) {
            let is_cut = packet.anno.u32(ANNO_EXTRA_LENGTH) > 0;
            match packet.len() >= least {
                true if !is_cut => self.waiting.borrow_mut().push_back(packet),
                true => self.refuse(cx, "cut off", packet),
                false => self.refuse(cx, "too short", packet),
            }
        }
    }

    /// Looks for a frame that the interface takes, behind the first one, which it drops. Returns how many in
    /// front are refused, and how many were taken.
    fn send_others(&self, open: &dyn Wire) -> (usize, usize) {
        let waiting = self.waiting.borrow();
        let send = |first| open.send(&mut waiting.iter().skip(first).map(|p| p.data()));
        self.patience.send_others(waiting.len(), send)
    }

    /// Passes on the first `count` frames, which were sent.
    fn sent(&self, cx: &Cx<'_>, count: usize) {
        self.pause.set(PAUSE);
        add(&self.count, count);
        let mut done = Batch::default();
        done.extend(self.waiting.borrow_mut().drain(..count));
        match cx.outputs() > 0 {
            true => cx.push(0, done),
            false => cx.drop_all("sent", done.drain(..)),
        }
    }

    /// Sends what waits.
    fn send(&self, cx: &Cx<'_>, open: &dyn Wire) -> Sent {
        let mut is_there = false;
        loop {
            let result = {
                let waiting = self.waiting.borrow();
                if waiting.is_empty() {
                    return Sent::All;
                }
                open.send(&mut waiting.iter().map(|p| p.data()))
            };
            match result {
                Ok(sent) => {
                    self.patience.taken(nanoseconds(cx));
                    self.sent(cx, sent);
                    if sent == 0 {
                        return Sent::All;
                    }
                }
                Err(Unsent::NoRoom) => {
                    open.await_room();
                    return Sent::Waits;
                }
                Err(why @ (Unsent::QueueFull | Unsent::Dropped)) => {
                    let is_over = || self.patience.is_over(nanoseconds(cx), || open.has_carrier());
                    if why == Unsent::Dropped {
                        let (refused, taken) = self.send_others(open);
                        if refused > 0 || is_over() {
                            for _ in 0..refused.max(1) {
                                let Some(packet) = self.waiting.borrow_mut().pop_front() else { break };
                                self.refuse(cx, "refused by the interface", packet);
                            }
                            self.pause.set(PAUSE);
                            self.sent(cx, taken);
                            continue;
                        }
                    }
                    cx.timer_after(0, self.pause.get());
                    self.pause.set(LONGEST_PAUSE.min(Nanos(self.pause.get().0 * 2)));
                    return Sent::Waits;
                }
                Err(why) => {
                    // It is asked once, and not for each frame.
                    if matches!(why, Unsent::Down | Unsent::Refused) && !is_there {
                        if open.is_gone() {
                            return Sent::Gone;
                        }
                        is_there = true;
                    }
                    let cause = match why {
                        Unsent::TooLong => "too long for the interface",
                        Unsent::Down => "interface down",
                        _ => "refused by the kernel",
                    };
                    let Some(packet) = self.waiting.borrow_mut().pop_front() else { return Sent::All };
                    self.patience.begin_again();
                    self.refuse(cx, cause, packet);
                }
            }
        }
    }
}

impl Element for ToDevice {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        *self.signal.borrow_mut() = cx.upstream_signal(0);
        cx.reschedule();
        // A FromDevice chooses the manner and the memory that both use: it is opened before.
        if self.method == Method::Xdp && is_received_by_xdp(cx.router, &self.name) {
            return may_open(&self.name).map(drop).map_err(|e| e.to_string());
        }
        self.open.initialize(cx, &self.name, || self.open(cx))
    }

    /// Packets upstream do not wake it while the interface takes none.
    fn woken(&self, cx: &Cx<'_>) {
        if !self.is_waiting.get() {
            cx.reschedule();
        }
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if !self.open.ensure(cx, || self.open(cx)) {
            return false;
        }
        // An element that is pushed to may read handlers of this one, or replace it.
        let Some(open) = self.open.take() else { return false };
        let before = self.count.get() + self.drops.get();
        self.fill(cx, open.link());
        let sent = self.send(cx, &*open);
        let goes_on = sent == Sent::All;
        self.is_waiting.set(!goes_on);
        self.open.set(open);
        // The frames that wait are sent when it is there again.
        if sent == Sent::Gone {
            self.open.fail(cx, &format!("interface {}: it was removed", self.name));
        }
        let has_worked = self.count.get() + self.drops.get() > before;
        if goes_on && (has_worked || self.signal.borrow().is_active(cx.router)) {
            cx.reschedule();
        }
        has_worked
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        cx.reschedule();
    }

    fn held(&self) -> usize {
        self.waiting.borrow().len()
    }

    fn cleanup(&self, _: &Cx<'_>) {
        self.open.take();
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.count, &self.drops, &self.pulls]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        cx.reschedule();
        // Frames are those of an interface: none leaves by another one, should its name be another's now.
        let is_same = |open: &mut Box<dyn Wire>| open.has_its_name() || open.is_gone();
        if old.name == self.name && old.open.with(is_same) != Some(false) {
            self.waiting.borrow_mut().append(&mut old.waiting.borrow_mut());
            self.patience.take_over(&old.patience);
        } else {
            cx.drop_all("replaced", old.waiting.borrow_mut().drain(..));
        }
        if (&old.name, old.method) != (&self.name, self.method) || self.open.is_open() {
            return;
        }
        if let Some(open) = old.open.take().filter(|open| open.has_its_name()) {
            open.adopt(cx.router.waker(cx.me));
            self.open.set(open);
        }
    }

    fn read(&self, cx: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "count" => self.count.get().to_string(),
            "drops" => self.drops.get().to_string(),
            "pulls" => self.pulls.get().to_string(),
            "signal" => self.signal.borrow().unparse(cx.router),
            _ => return None,
        }))
    }

    fn write(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        (name == "reset_counts").then(|| {
            [&self.count, &self.drops, &self.pulls].iter().for_each(|c| c.set(0));
            Ok(())
        })
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r"), ("drops", "r"), ("pulls", "r"), ("signal", "r"), ("reset_counts", "w")]
    }
}

class!(TO_DEVICE, "ToDevice", "1/0-2", "l/h", ["DEVNAME", "BURST", "METHOD", "DEBUG"], |args, _| {
    let name: String = args.req("DEVNAME");
    let burst = args.key("BURST").unwrap_or(Sender::MOST as u16);
    if !(1..=1024).contains(&burst) {
        args.error(format!("BURST: expected 1 to 1024, found {burst}"));
    }
    args.ignore::<bool>("DEBUG");
    let method = method(args);
    Box::new(ToDevice {
        name,
        method,
        burst: usize::from(burst),
        open: Opened::default(),
        waiting: RefCell::default(),
        patience: Patience::default(),
        pause: Cell::new(PAUSE),
        is_waiting: Cell::new(false),
        count: Cell::new(0),
        drops: Cell::new(0),
        pulls: Cell::new(0),
        signal: RefCell::default(),
    })
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Router};
    use flame_click::{Connection, Graph, Port};

    thread_local! {
        /// The answers of the interface `test` to calls, and the numbers of frames that it was offered.
        static ANSWERS: RefCell<VecDeque<Result<usize, Unsent>>> = const { RefCell::new(VecDeque::new()) };
        static OFFERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        /// The attempts to open it that fail, once it was removed.
        static REMOVED_FOR: Cell<u32> = const { Cell::new(0) };
    }

    struct Script(Waker);

    impl Wire for Script {
        fn link(&self) -> LinkType {
            LinkType::ETHERNET
        }

        fn send(&self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
            let count = frames.count();
            OFFERED.with_borrow_mut(|offered| offered.push(count));
            ANSWERS.with_borrow_mut(|answers| answers.pop_front().unwrap_or(Ok(count)))
        }

        fn await_room(&self) {
            self.0.wake();
        }

        fn adopt(&self, _: Waker) {}

        fn has_carrier(&self) -> bool {
            true
        }

        fn is_gone(&self) -> bool {
            REMOVED_FOR.get() > 0
        }

        fn has_its_name(&self) -> bool {
            !self.is_gone()
        }
    }

    pub fn wire(cx: &Cx<'_>, name: &str) -> Option<Result<Box<dyn Wire>, String>> {
        let failures = REMOVED_FOR.get();
        REMOVED_FOR.set(failures.saturating_sub(1));
        (name == "test").then(|| match failures {
            0 => Ok(Box::new(Script(cx.router.waker(cx.me))) as Box<dyn Wire>),
            _ => Err("no such interface".to_owned()),
        })
    }

    /// Returns a router that sends 10 frames.
    fn router() -> Router {
        let classes =
            [("InfiniteSource", "LIMIT 10, LENGTH 60, BURST 10"), ("Queue", ""), ("ToDevice", "test")];
        let mut graph = Graph::default();
        for (i, (class, config)) in classes.into_iter().enumerate() {
            let (name, landmark) = (format!("e{i}"), "f:1".into());
            graph.elements.push(flame_click::Element {
                name,
                class: class.into(),
                config: config.into(),
                landmark,
            });
            if i > 0 {
                let (from, to) = (Port { element: i - 1, port: 0 }, Port { element: i, port: 0 });
                graph.connections.push(Connection { from, to, landmark: "f:1".into() });
            }
        }
        Router::new(graph, "", Environment::silent(None)).unwrap()
    }

    fn steps(router: &Router) {
        for _ in 0..100 {
            router.step();
            let accounts = (0..3).map(|i| router.account(i));
            accounts.for_each(|a| assert!(a.adds_up(), "{a:?}"));
            if let Some(time) = router.next_event() {
                router.clock.jump(time);
            }
        }
    }

    /// Sends 10 frames, while the interface gives these answers first. Returns the router at the end, and the
    /// numbers of frames that were offered.
    fn run(answers: &[Result<usize, Unsent>]) -> (Router, Vec<usize>) {
        ANSWERS.with_borrow_mut(|all| *all = answers.to_vec().into());
        OFFERED.with_borrow_mut(Vec::clear);
        let router = router();
        steps(&router);
        (router, OFFERED.with_borrow(Clone::clone))
    }

    #[test]
    fn it_waits_for_room_and_goes_on_with_the_rest() {
        let (router, offered) = run(&[Ok(3), Err(Unsent::NoRoom), Ok(2), Err(Unsent::QueueFull), Ok(1)]);
        let account = router.account(2);
        assert_eq!(account.dropped.get("sent"), Some(&10), "{account:?}");
        // The rest is offered again, without a frame more or less.
        assert_eq!(offered[..6], [10, 7, 7, 5, 5, 4], "{offered:?}");
        assert_eq!(router.read(None, "e2.count", ""), Ok("10".into()));
    }

    #[test]
    fn an_interface_that_is_made_again_is_opened_again() {
        // The interface is removed after three frames: the next two attempts to open it fail.
        let router = router();
        ANSWERS.with_borrow_mut(|all| *all = [Ok(3), Err(Unsent::Down)].into());
        REMOVED_FOR.set(2);
        let since = router.clock.now();
        steps(&router);
        assert_eq!(router.account(2).dropped, [("sent", 10)].into());
        assert!(router.clock.now() - since >= Nanos(3 * flame_click::time::SECOND));
    }

    #[test]
    fn a_frame_that_the_interface_drops_again_and_again_is_given_up() {
        // Each attempt that fails is of the fourth frame.
        let answers = [&[Ok(3)][..], &[Err(Unsent::Dropped); 2000]].concat();
        let (router, offered) = run(&answers);
        assert_eq!(router.account(2).dropped, [("sent", 3)].into());
        assert!(offered.len() > 20, "{offered:?}");
        let since = router.clock.now();
        while !router.account(2).dropped.contains_key("refused by the interface") {
            steps(&router);
        }
        assert!(router.clock.now() - since <= Nanos(3 * flame_click::time::SECOND));
        ANSWERS.with_borrow_mut(VecDeque::clear);
        steps(&router);
        assert_eq!(router.account(2).dropped, [("refused by the interface", 1), ("sent", 9)].into());
        // For a full queue, it waits.
        let answers = [&[Ok(3)][..], &[Err(Unsent::QueueFull); 1000]].concat();
        let (router, _) = run(&answers);
        (0..30).for_each(|_| steps(&router));
        assert_eq!(router.account(2).dropped, [("sent", 10)].into());
    }

    #[test]
    fn others_show_which_frames_the_interface_refuses() {
        let router = router();
        ANSWERS.with_borrow_mut(|all| *all = vec![Err(Unsent::Dropped); 5000].into());
        while !router.account(2).dropped.contains_key("refused by the interface") {
            steps(&router);
        }
        // From now on every other frame is refused: the one behind it shows that.
        let since = router.clock.now();
        let refused = [Err(Unsent::Dropped), Ok(1)];
        ANSWERS.with_borrow_mut(|all| *all = refused.repeat(4).into());
        steps(&router);
        assert_eq!(router.account(2).dropped, [("refused by the interface", 5), ("sent", 5)].into());
        assert!(router.clock.now() - since <= Nanos(10_000_000));
    }

    #[test]
    fn a_frame_that_is_refused_does_not_stop_those_after_it() {
        let refusals = [Unsent::TooLong, Unsent::Down, Unsent::Refused];
        let answers: Vec<_> = refusals.into_iter().flat_map(|e| [Ok(1), Err(e)]).collect();
        let (router, _) = run(&answers);
        let dropped = router.account(2).dropped;
        let expected = [
            ("interface down", 1),
            ("refused by the kernel", 1),
            ("sent", 7),
            ("too long for the interface", 1),
        ];
        assert_eq!(dropped, expected.into());
        assert_eq!(router.read(None, "e2.drops", ""), Ok("3".into()));
    }
}
