//! The threads of a router, and what passes between them: packets, calls of handlers, and credit.

use crate::runtime::loops::Loops;
use crate::runtime::packet::Batch;
use flame_base::lock;
use flame_click::Graph;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The largest number of threads of a router: each has a bit in a word.
pub const MOST_THREADS: usize = 64;
/// Packets that may be on their way to a queue of another thread. Further ones are dropped.
const MOST_UNDERWAY: usize = 8192;
/// Packets that a thread collects for another one within a round.
const PARCEL: usize = 256;
/// Longest wait of a thread for another thread before it checks again, although nothing woke it.
pub const TEAM_CHECK: Duration = Duration::from_millis(10);

/// The kinds of calls of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

/// The limits of a step, which calls of handlers take to other threads: calls that go back and forth are as
/// limited as those in one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    pub fuel: u64,
    /// The levels of the calls around this one.
    pub depth: usize,
    /// The counts of new packets.
    pub loops: Loops,
}

/// A call of a handler of an element by another thread.
pub struct Call {
    pub kind: Kind,
    pub element: usize,
    pub handler: String,
    pub value: String,
    pub means: Means,
    reply: Arc<Reply>,
}

/// The value of a handler, or its error.
pub type Value = Result<String, String>;

struct Reply {
    /// The value, and the fuel that is left.
    value: Mutex<Option<(Value, u64)>>,
    caller: Thread,
}

impl Call {
    /// Ends the call, with the fuel that it left.
    pub fn reply(self, value: Value, fuel: u64) {
        *lock(&self.reply.value) = Some((value, fuel));
        self.reply.caller.unpark();
    }
}

/// Packets for an input of an element.
pub type Parcel = (usize, usize, Batch);

#[derive(Default)]
struct Mailbox {
    has_mail: AtomicBool,
    /// Whether a call waits.
    has_calls: AtomicBool,
    packets: Mutex<Vec<Parcel>>,
    /// Elements of other threads whose queues have room again.
    rooms: Mutex<Vec<usize>>,
    calls: Mutex<VecDeque<Call>>,
    thread: OnceLock<Thread>,
}

impl Mailbox {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The properties of an element that other threads must know.
#[derive(Clone, Copy)]
pub struct Facts {
    pub handlers: &'static [(&'static str, &'static str)],
    pub notifies_room: bool,
}

/// The state of an element that several threads use.
#[derive(Default)]
struct Shared {
    facts: OnceLock<Facts>,
    /// Packets on their way to it.
    underway: AtomicUsize,
    /// Packets that were posted to it, and those of them that have arrived.
    posted: AtomicU64,
    arrived: AtomicU64,
    /// The number that may have been posted if all are to find room.
    credit: AtomicU64,
    /// The threads that wait for credit, a bit for each.
    waiting: AtomicU64,
    /// Packets that were dropped since too many were on their way.
    refused: AtomicU64,
}

/// The threads of a router.
pub struct Team {
    owners: Vec<usize>,
    mailboxes: Vec<Mailbox>,
    elements: Vec<Shared>,
    arrivals: AtomicUsize,
    /// The stops that were asked for and that thread 0 has not decided.
    stops: AtomicU64,
    is_running: AtomicBool,
    is_stopping: AtomicBool,
    is_broken: AtomicBool,
    /// The configuration that a handler asked for, and its text.
    wanted: Mutex<Option<(Graph, String)>>,
    is_wanted: AtomicBool,
    /// Whether thread 0 has decided that another configuration replaces this one.
    is_replacing: AtomicBool,
}

impl Team {
    /// Creates a team of `threads`. `owners` has the thread of each element.
    pub fn new(threads: usize, owners: Vec<usize>) -> Arc<Self> {
        Arc::new(Self {
            elements: owners.iter().map(|_| Shared::default()).collect(),
            owners,
            mailboxes: (0..threads).map(|_| Mailbox::default()).collect(),
            arrivals: AtomicUsize::new(0),
            stops: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            wanted: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            is_replacing: AtomicBool::new(false),
        })
    }

    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Ends all waiting: a thread has ended before its time.
    pub fn break_up(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Begins the run of all threads.
    pub fn begin(&self) {
        self.is_running.store(true, Ordering::SeqCst);
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Ends the run of all threads.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Asks for another configuration, in place of one that was asked for before. No thread does more than
    /// its step until thread 0 has decided.
    pub fn want(&self, graph: Graph, text: String) {
        *lock(&self.wanted) = Some((graph, text));
        self.is_wanted.store(true, Ordering::SeqCst);
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Returns whether another configuration was asked for.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Has all threads meet, since another configuration replaces this one.
    pub fn replace(&self) {
        self.is_replacing.store(true, Ordering::SeqCst);
        self.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Returns the configuration that was asked for, once. All threads have met.
    pub fn take_wanted(&self) -> Option<(Graph, String)> {
        self.is_wanted.store(false, Ordering::SeqCst);
        self.is_replacing.store(false, Ordering::SeqCst);
        lock(&self.wanted).take()
    }

    /// Returns the properties of an element, once its thread has made it.
    pub fn facts(&self, element: usize) -> Facts {
        let none = Facts { handlers: &[], notifies_room: false };
        self.elements[element].facts.get().copied().unwrap_or(none)
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns whether packets are on their way between threads.
    pub fn is_underway(&self) -> bool {
        self.elements.iter().any(|e| e.underway.load(Ordering::SeqCst) > 0)
    }
}

/// A thread of a team.
pub struct Member {
    pub team: Arc<Team>,
    pub me: usize,
    /// Packets that are collected for each thread.
    outbox: RefCell<Vec<(usize, Vec<Parcel>)>>,
    /// The memory of the packets that were taken last.
    taken: RefCell<Vec<Parcel>>,
}

impl Member {
    /// Joins a team as its thread `me`, which is the present thread.
    pub fn join(team: &Arc<Team>, me: usize) -> Self {
        let _ = team.mailboxes[me].thread.set(std::thread::current());
        let outbox = RefCell::new((0..team.threads()).map(|_| (0, Vec::new())).collect());
        Self { team: team.clone(), me, outbox, taken: RefCell::default() }
    }

    /// Returns whether an element is made by this thread.
    pub fn owns(&self, element: usize) -> bool {
        self.team.owners[element] == self.me
    }

    /// Returns the thread of an element.
    pub fn owner(&self, element: usize) -> usize {
        self.team.owners[element]
    }

    pub fn publish_facts(&self, element: usize, facts: Facts) {
        let _ = self.team.elements[element].facts.set(facts);
    }

    /// Posts packets to an element of another thread. Those that are too many are dropped and counted there.
    pub fn post(&self, element: usize, input: usize, mut batch: Batch) {
        let shared = &self.team.elements[element];
        let before = shared.underway.fetch_add(batch.len(), Ordering::SeqCst);
        let room = MOST_UNDERWAY.saturating_sub(before);
        if batch.len() > room {
            let excess = batch.len() - room;
            shared.underway.fetch_sub(excess, Ordering::SeqCst);
            shared.refused.fetch_add(excess as u64, Ordering::Relaxed);
            batch.truncate(room);
        }
        if batch.is_empty() {
            return;
        }
        shared.posted.fetch_add(batch.len() as u64, Ordering::SeqCst);
        let mut outbox = self.outbox.borrow_mut();
        let (count, parcels) = &mut outbox[self.team.owners[element]];
        *count += batch.len();
        parcels.push((element, input, batch));
        if *count >= PARCEL {
            self.deliver(self.team.owners[element], count, parcels);
        }
    }

    fn deliver(&self, to: usize, count: &mut usize, parcels: &mut Vec<Parcel>) {
        *count = 0;
        let mailbox = &self.team.mailboxes[to];
        lock(&mailbox.packets).append(parcels);
        if !mailbox.has_mail.swap(true, Ordering::SeqCst) {
            mailbox.wake();
        }
    }

    /// Delivers the packets that were collected.
    pub fn flush(&self) {
        for (to, (count, parcels)) in self.outbox.borrow_mut().iter_mut().enumerate() {
            if *count > 0 {
                self.deliver(to, count, parcels);
            }
        }
    }

    /// Returns whether something waits for this thread.
    pub fn is_called(&self) -> bool {
        let mailbox = &self.team.mailboxes[self.me];
        mailbox.has_mail.load(Ordering::SeqCst)
            || mailbox.has_calls.load(Ordering::SeqCst)
            || (self.me == 0 && self.team.stops.load(Ordering::SeqCst) > 0)
            || self.team.is_stopping()
            || self.team.is_wanted()
    }

    /// Takes the packets for this thread, and the elements of other threads that have room again. The memory
    /// of the packets is given back by [`Member::give_back`].
    pub fn take_mail(&self) -> Option<(Vec<Parcel>, Vec<usize>)> {
        let mailbox = &self.team.mailboxes[self.me];
        if !mailbox.has_mail.load(Ordering::Relaxed) || !mailbox.has_mail.swap(false, Ordering::SeqCst) {
            return None;
        }
        let mut packets = self.taken.take();
        std::mem::swap(&mut packets, &mut lock(&mailbox.packets));
        Some((packets, std::mem::take(&mut lock(&mailbox.rooms))))
    }

    pub fn give_back(&self, mut memory: Vec<Parcel>) {
        memory.clear();
        self.taken.replace(memory);
    }

    /// Records that packets have arrived at an element of this thread, which notifies room if `room` is the
    /// number of packets that it can take now.
    pub fn arrived(&self, element: usize, count: usize, room: Option<usize>) {
        let shared = &self.team.elements[element];
        shared.arrived.fetch_add(count as u64, Ordering::SeqCst);
        shared.underway.fetch_sub(count, Ordering::SeqCst);
        if let Some(room) = room {
            self.publish_room(element, room);
        }
    }

    /// Publishes the number of packets that an element of this thread can take now.
    pub fn publish_room(&self, element: usize, room: usize) {
        let shared = &self.team.elements[element];
        let arrived = shared.arrived.load(Ordering::SeqCst);
        shared.credit.store(arrived + room.min(MOST_UNDERWAY) as u64, Ordering::SeqCst);
        let mut waiting = shared.waiting.swap(0, Ordering::SeqCst);
        while waiting != 0 {
            let mailbox = &self.team.mailboxes[waiting.trailing_zeros() as usize];
            waiting &= waiting - 1;
            lock(&mailbox.rooms).push(element);
            if !mailbox.has_mail.swap(true, Ordering::SeqCst) {
                mailbox.wake();
            }
        }
    }

    /// Returns whether an element of another thread has room for more packets. If not, this thread is told
    /// when it has.
    pub fn has_credit(&self, element: usize) -> bool {
        let shared = &self.team.elements[element];
        let has = || shared.posted.load(Ordering::SeqCst) < shared.credit.load(Ordering::SeqCst);
        if has() {
            return true;
        }
        shared.waiting.fetch_or(1 << self.me, Ordering::SeqCst);
        // The credit may have come before the bit.
        has()
    }

    /// Returns the packets for an element of this thread that were dropped on their way.
    pub fn refused(&self, element: usize) -> u64 {
        self.team.elements[element].refused.load(Ordering::Relaxed)
    }

    /// Asks thread 0 to stop the run.
    pub fn ask_to_stop(&self, times: u64) {
        self.team.stops.fetch_add(times, Ordering::SeqCst);
        self.team.mailboxes[0].wake();
    }

    /// Returns how often other threads have asked for the end, which thread 0 decides.
    pub fn stops(&self) -> u64 {
        self.team.stops.load(Ordering::SeqCst)
    }

    /// Lets the threads go on that asked for the end `times` times, since the run does.
    pub fn go_on(&self, times: u64) {
        self.team.stops.fetch_sub(times, Ordering::SeqCst);
        self.team.mailboxes.iter().for_each(Mailbox::wake);
    }

    /// Returns the number of calls of handlers by other threads that wait.
    pub fn waiting_calls(&self) -> usize {
        let mailbox = &self.team.mailboxes[self.me];
        if mailbox.has_calls.load(Ordering::SeqCst) { lock(&mailbox.calls).len() } else { 0 }
    }

    /// Returns the next call of a handler by another thread.
    pub fn next_call(&self) -> Option<Call> {
        let mailbox = &self.team.mailboxes[self.me];
        if !mailbox.has_calls.load(Ordering::SeqCst) {
            return None;
        }
        let mut calls = lock(&mailbox.calls);
        let call = calls.pop_front();
        mailbox.has_calls.store(!calls.is_empty(), Ordering::SeqCst);
        call
    }

    /// Calls a handler of an element of another thread. Meanwhile `serve` answers calls of others. Returns
    /// the value, and the fuel that is left. The value is an error if the handler fails, the other thread has
    /// ended, or it does not answer by `deadline`.
    pub fn call(
        &self,
        kind: Kind,
        element: usize,
        (handler, value): (&str, &str),
        (means, deadline): (Means, Instant),
        serve: &dyn Fn(),
    ) -> (Value, u64) {
        let reply = Arc::new(Reply { value: Mutex::default(), caller: std::thread::current() });
        let mailbox = &self.team.mailboxes[self.team.owners[element]];
        let (handler, value) = (handler.to_owned(), value.to_owned());
        let call = Call { kind, element, handler, value, means, reply: reply.clone() };
        {
            let mut calls = lock(&mailbox.calls);
            calls.push_back(call);
            mailbox.has_calls.store(true, Ordering::SeqCst);
        }
        mailbox.wake();
        loop {
            if let Some(value) = lock(&reply.value).take() {
                return value;
            }
            if let Err(e) = self.check() {
                return (Err(e), means.fuel);
            }
            if Instant::now() >= deadline {
                return (Err("given up, since another thread takes too long".to_owned()), 0);
            }
            serve();
            std::thread::park_timeout(TEAM_CHECK);
        }
    }

    fn check(&self) -> Result<(), String> {
        match self.team.is_broken.load(Ordering::SeqCst) {
            true => Err("another thread of the router has ended".to_owned()),
            false => Ok(()),
        }
    }

    /// Waits until the run begins, or ends before. Meanwhile `serve` answers calls of others.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread has ended before its time.
    pub fn await_run(&self, serve: &dyn Fn()) -> Result<(), String> {
        while !self.team.is_running.load(Ordering::SeqCst) && !self.team.is_stopping() {
            self.check()?;
            serve();
            std::thread::park_timeout(TEAM_CHECK);
        }
        Ok(())
    }

    /// Waits until thread 0 has decided what follows a run, and returns whether that is another router.
    /// Meanwhile `serve` answers calls of others.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread has ended before its time.
    pub fn is_replaced(&self, serve: &dyn Fn()) -> Result<bool, String> {
        loop {
            self.check()?;
            if self.team.is_replacing.load(Ordering::SeqCst) {
                return Ok(true);
            }
            if self.team.is_stopping() {
                return Ok(false);
            }
            serve();
            std::thread::park_timeout(TEAM_CHECK);
        }
    }

    /// Waits until all threads are here. Meanwhile `serve` answers calls of others.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread has ended before its time.
    pub fn meet(&self, serve: &dyn Fn()) -> Result<(), String> {
        let threads = self.team.threads();
        let arrived = self.team.arrivals.fetch_add(1, Ordering::SeqCst) + 1;
        let all = arrived.div_ceil(threads) * threads;
        if arrived == all {
            self.team.mailboxes.iter().for_each(Mailbox::wake);
        }
        while self.team.arrivals.load(Ordering::SeqCst) < all {
            self.check()?;
            serve();
            std::thread::park_timeout(TEAM_CHECK);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::packet::Packet;

    fn batch(count: usize) -> Batch {
        let mut batch = Batch::default();
        batch.extend((0..count).map(|_| Packet::new(b"x")));
        batch
    }

    #[test]
    fn packets_beyond_the_limit_are_counted_and_others_arrive() {
        let team = Team::new(2, vec![0, 1]);
        let (a, b) = (Member::join(&team, 0), Member::join(&team, 1));
        a.post(1, 0, batch(MOST_UNDERWAY - 1));
        a.post(1, 0, batch(5));
        a.post(1, 0, batch(1));
        assert_eq!(b.refused(1), 5);
        a.flush();
        let (packets, _) = b.take_mail().unwrap();
        let arrived: usize = packets.iter().map(|p| p.2.len()).sum();
        assert_eq!(arrived, MOST_UNDERWAY);
        assert!(team.is_underway());
        b.arrived(1, arrived, None);
        assert!(!team.is_underway() && b.take_mail().is_none());
    }

    #[test]
    fn credit_is_the_room_without_what_is_underway() {
        let team = Team::new(2, vec![0, 1]);
        let (a, b) = (Member::join(&team, 0), Member::join(&team, 1));
        b.publish_room(1, 3);
        assert!(a.has_credit(1));
        a.post(1, 0, batch(2));
        assert!(a.has_credit(1));
        a.post(1, 0, batch(1));
        assert!(!a.has_credit(1));
        // One of three arrived, and took a place.
        b.arrived(1, 1, Some(2));
        assert!(!a.has_credit(1));
        b.arrived(1, 2, Some(0));
        assert!(!a.has_credit(1));
        a.take_mail();
        b.publish_room(1, 1);
        let (_, rooms) = a.take_mail().unwrap();
        assert_eq!((rooms, a.has_credit(1)), (vec![1], true));
    }

    #[test]
    fn threads_that_wait_for_each_other_answer() {
        let team = Team::new(2, vec![0, 1]);
        let work = |me: usize| {
            let member = Member::join(&team, me);
            let serve = || {
                while let Some(call) = member.next_call() {
                    let (value, fuel) = (format!("{} of {me}", call.handler), call.means.fuel - 1);
                    call.reply(Ok(value), fuel);
                }
            };
            member.meet(&serve).unwrap();
            let means = Means { fuel: 9, ..Means::default() };
            let deadline = Instant::now() + Duration::from_secs(60);
            for _ in 0..100 {
                let answer = member.call(Kind::Read, 1 - me, ("length", ""), (means, deadline), &serve);
                assert_eq!(answer, (Ok(format!("length of {}", 1 - me)), 8));
            }
            member.meet(&serve).unwrap();
        };
        std::thread::scope(|s| {
            s.spawn(|| work(1));
            work(0);
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let team = Team::new(2, vec![0, 1]);
        let member = Member::join(&team, 0);
        team.break_up();
        assert!(member.meet(&|| ()).is_err());
        let later = Instant::now() + Duration::from_secs(60);
        assert!(member.call(Kind::Read, 1, ("length", ""), (Means::default(), later), &|| ()).0.is_err());
    }

    #[test]
    fn a_thread_that_does_not_answer_is_given_up() {
        let team = Team::new(2, vec![0, 1]);
        let member = Member::join(&team, 0);
        let (means, soon) = (Means { fuel: 9, ..Means::default() }, Instant::now() + TEAM_CHECK);
        let (value, fuel) = member.call(Kind::Read, 1, ("length", ""), (means, soon), &|| ());
        assert!(value.unwrap_err().contains("takes too long") && fuel == 0);
    }
}
