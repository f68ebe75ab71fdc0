//! The state of a module that outlives its instances: one blob for each place, which is a worker's fast
//! instance or the slow one.
//!
//! One instance at a time holds a place. It begins with the state there, stores what it exports, and gives
//! the place back when it is dropped. An instance that is to follow it requests the place before, and waits.
//! So an update carries the state as it was after the last packet of the old instance.

use flame_base::{lock, unpoisoned};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// The state of one place.
pub type State = Arc<[u8]>;

/// An instance to which a state belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The fast instance on this worker.
    Worker(usize),
    Slow,
}

impl Place {
    /// Returns the place of a fast instance by its worker, or of the slow one.
    pub fn of(worker: Option<usize>) -> Self {
        worker.map_or(Self::Slow, Self::Worker)
    }

    /// Returns the worker of a fast instance.
    pub fn worker(self) -> Option<usize> {
        match self {
            Self::Worker(worker) => Some(worker),
            Self::Slow => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(worker) => write!(f, "worker {worker}"),
            Self::Slow => f.write_str("slow instance"),
        }
    }
}

/// The way in which an instance began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// There was no state.
    Empty,
    Taken,
    /// The module refused the state, and began empty.
    Refused,
    /// It ended in a fault before it had taken the state, which was dropped.
    Dropped,
}

/// An event of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Begun(Begun),
    /// The instance exported this state.
    Stored(State),
    /// The instance ended in a fault, and its state was dropped with it.
    Dropped,
    /// The end of the run cut the instance off. The state that it exported last stays.
    CutOff,
}

/// Receives the events of all places, on the threads of their instances.
pub type OnNews = Box<dyn Fn(Place, &News) + Send + Sync>;

/// The state of one module. All clones are the same.
#[derive(Clone)]
pub struct Keep(Arc<Shared>);

struct Shared {
    places: Mutex<Vec<Slot>>,
    changed: Condvar,
    on_news: OnNews,
    /// The largest state in bytes.
    most: AtomicUsize,
    /// The packet time between exports, or 0 for one at the end alone.
    every_ns: u64,
    /// Whether successors of all instances wait, in another process.
    is_followed: AtomicBool,
}

#[derive(Default)]
struct Slot {
    state: Option<State>,
    is_held: bool,
    /// The number of changes of the state.
    changes: u64,
    begun: Option<Begun>,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    /// Gone when nobody waits any more.
    alive: Weak<()>,
    then: Box<dyn FnOnce(Held, Option<State>) + Send>,
}

/// A place that an instance holds until this value is dropped.
pub struct Held {
    keep: Keep,
    at: usize,
}

/// A requested place.
pub struct Requested {
    begin: Receiver<(Held, Option<State>)>,
    _alive: Arc<()>,
}

impl Requested {
    /// Returns the place with its state, or `None` if another instance still holds it.
    ///
    /// # Errors
    ///
    /// Returns an error if the module does not have the place.
    pub fn take(&self) -> Result<Option<(Held, Option<State>)>, Lost> {
        match self.begin.try_recv() {
            Ok(begin) => Ok(Some(begin)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Lost),
        }
    }
}

/// A place that will not be given: the module does not have it.
#[derive(Debug)]
pub struct Lost;

impl Keep {
    /// Creates the places of a module on `workers` workers, with the states that earlier instances exported.
    /// States that do not fit ([`Keep::fits`]) are left out. Instances export theirs with the first tick in
    /// each `every_ns` of packet time, if that is not 0, and at their end: by packet time, so that modules
    /// learn nothing from it.
    pub fn new(
        (most, every_ns): (u32, u64),
        workers: usize,
        states: impl IntoIterator<Item = (Place, State)>,
        on_news: OnNews,
    ) -> Self {
        let mut places: Vec<Slot> = (0..=workers).map(|_| Slot::default()).collect();
        for (place, state) in states {
            if let Some(slot) = places.get_mut(index(place, workers))
                && Self::fits(most, workers, place, &state)
            {
                slot.state = Some(state);
            }
        }
        Self(Arc::new(Shared {
            places: Mutex::new(places),
            changed: Condvar::new(),
            on_news,
            most: AtomicUsize::new(most as usize),
            every_ns,
            is_followed: AtomicBool::new(false),
        }))
    }

    /// Returns whether a state can be given to a module on `workers` workers with states of at most `most`
    /// bytes: there is the place, and the state is neither empty nor too large.
    pub fn fits(most: u32, workers: usize, place: Place, state: &[u8]) -> bool {
        index(place, workers) <= workers && (1..=most as usize).contains(&state.len())
    }

    /// Creates places whose states come later, by [`Keep::give`].
    pub fn awaiting(limits: (u32, u64), workers: usize, on_news: OnNews) -> Self {
        let keep = Self::new(limits, workers, [], on_news);
        lock(&keep.0.places).iter_mut().for_each(|slot| slot.is_held = true);
        keep
    }

    fn workers(&self) -> usize {
        lock(&self.0.places).len() - 1
    }

    /// Returns all places, of which the slow one is the last.
    pub fn all(&self) -> Vec<Place> {
        let workers = self.workers();
        (0..workers).map(Place::Worker).chain([Place::Slow]).collect()
    }

    /// Returns the largest state in bytes.
    pub fn most(&self) -> usize {
        self.0.most.load(Ordering::Relaxed)
    }

    /// Raises the limit of states, for a successor that keeps more.
    pub fn raise(&self, most: u32) {
        self.0.most.fetch_max(most as usize, Ordering::Relaxed);
    }

    /// Returns the packet time between exports in nanoseconds, or 0.
    pub fn every_ns(&self) -> u64 {
        self.0.every_ns
    }

    /// Requests a place for an instance that is about to begin.
    pub fn request(&self, place: Place) -> Requested {
        let (sender, begin): (SyncSender<(Held, Option<State>)>, _) = sync_channel(1);
        let alive = Arc::new(());
        // If nobody receives it, the place is given back.
        self.request_with(place, &alive, Box::new(move |held, state| drop(sender.try_send((held, state)))));
        Requested { begin, _alive: alive }
    }

    /// Requests a place. `then` receives it once it is free, unless `alive` is dropped before.
    pub fn request_with(
        &self,
        place: Place,
        alive: &Arc<()>,
        then: Box<dyn FnOnce(Held, Option<State>) + Send>,
    ) {
        let at = index(place, self.workers());
        let state = {
            let mut places = lock(&self.0.places);
            let Some(slot) = places.get_mut(at) else { return };
            slot.begun = None;
            if slot.is_held {
                slot.waiting.push_back(Waiter { alive: Arc::downgrade(alive), then });
                return;
            }
            slot.is_held = true;
            slot.state.clone()
        };
        // Without the lock: it may use the place at once.
        then(Held { keep: self.clone(), at }, state);
    }

    /// Gives a place that has waited for its state to the instance there.
    pub fn give(&self, place: Place, state: Option<State>) {
        let at = index(place, self.workers());
        if let Some(slot) = lock(&self.0.places).get_mut(at) {
            slot.state = state.filter(|state| state.len() <= self.most());
        }
        self.release(at);
    }

    fn release(&self, at: usize) {
        let next = {
            let mut places = lock(&self.0.places);
            let Some(slot) = places.get_mut(at) else { return };
            let next = std::iter::from_fn(|| slot.waiting.pop_front()).find(|w| w.alive.strong_count() > 0);
            slot.is_held = next.is_some();
            next.map(|waiter| (waiter, slot.state.clone()))
        };
        self.0.changed.notify_all();
        if let Some((waiter, state)) = next {
            (waiter.then)(Held { keep: self.clone(), at }, state);
        }
    }

    /// Records that successors of all instances wait, in another process.
    pub fn set_followed(&self) {
        self.0.is_followed.store(true, Ordering::Relaxed);
    }

    fn is_awaited_at(&self, at: usize) -> bool {
        let waits = |slot: &Slot| slot.waiting.iter().any(|w| w.alive.strong_count() > 0);
        self.0.is_followed.load(Ordering::Relaxed) || lock(&self.0.places).get(at).is_some_and(waits)
    }

    /// Returns the states that there are now, and a number that grows whenever one of them changes.
    pub fn states(&self) -> (u64, Vec<(Place, State)>) {
        let places = lock(&self.0.places);
        let workers = places.len() - 1;
        let changes = places.iter().map(|slot| slot.changes).sum();
        let of = |(at, slot): (usize, &Slot)| Some((place_at(at, workers), slot.state.clone()?));
        (changes, places.iter().enumerate().filter_map(of).collect())
    }

    /// Returns how each place's last instance began, for those that have begun.
    pub fn begun(&self) -> Vec<(Place, Begun)> {
        let places = lock(&self.0.places);
        let workers = places.len() - 1;
        places
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| Some((place_at(at, workers), slot.begun?)))
            .collect()
    }

    /// Waits until `count` places have begun, but not longer than `most`.
    pub fn wait_for_begun(&self, count: usize, most: Duration) {
        let end = Instant::now() + most;
        let mut places = lock(&self.0.places);
        while places.iter().filter(|slot| slot.begun.is_some()).count() < count {
            let Some(left) = end.checked_duration_since(Instant::now()) else { return };
            let waited = self.0.changed.wait_timeout(places, left);
            places = unpoisoned(waited).0;
        }
    }

    fn report(&self, at: usize, news: &News, change: impl FnOnce(&mut Slot)) {
        let workers = {
            let mut places = lock(&self.0.places);
            if let Some(slot) = places.get_mut(at) {
                change(slot);
            }
            places.len() - 1
        };
        self.0.changed.notify_all();
        (self.0.on_news)(place_at(at, workers), news);
    }
}

fn index(place: Place, workers: usize) -> usize {
    match place {
        // A worker that does not exist has no place.
        Place::Worker(worker) if worker < workers => worker,
        Place::Worker(_) => usize::MAX,
        Place::Slow => workers,
    }
}

fn place_at(at: usize, workers: usize) -> Place {
    if at < workers { Place::Worker(at) } else { Place::Slow }
}

impl Held {
    /// Stores a state that the instance exported. One that is too large is not stored.
    pub fn store(&mut self, state: &[u8]) {
        if state.len() > self.keep.most() {
            return;
        }
        let state: State = state.into();
        let kept = Some(state.clone()).filter(|state| !state.is_empty());
        self.keep.report(self.at, &News::Stored(state), |slot| {
            slot.changes += u64::from(slot.state != kept);
            slot.state = kept;
        });
    }

    /// Records how the instance began. A state that it refused is dropped.
    pub fn begin(&mut self, begun: Begun) {
        self.keep.report(self.at, &News::Begun(begun), |slot| {
            slot.begun = Some(begun);
            if begun == Begun::Refused {
                slot.changes += u64::from(slot.state.is_some());
                slot.state = None;
            }
        });
    }

    /// Drops the state of an instance that ended in a fault.
    pub fn fault(&mut self) {
        self.keep.report(self.at, &News::Dropped, |slot| {
            slot.begun.get_or_insert(Begun::Dropped);
            slot.changes += u64::from(slot.state.is_some());
            slot.state = None;
        });
    }

    /// Records that the end of the run cut the instance off. The state stays.
    pub fn cut_off(&mut self) {
        self.keep.report(self.at, &News::CutOff, |_| {});
    }

    /// Returns whether another instance waits for the place.
    pub fn is_awaited(&self) -> bool {
        self.keep.is_awaited_at(self.at)
    }

    pub(crate) fn every_ns(&self) -> u64 {
        self.keep.0.every_ns
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keep.release(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> State {
        text.as_bytes().into()
    }

    type Reported = Arc<Mutex<Vec<(Place, News)>>>;

    fn keep(states: &[(Place, &str)]) -> (Keep, Reported) {
        let reported = Reported::default();
        let news = reported.clone();
        let on_news: OnNews = Box::new(move |place, n| news.lock().unwrap().push((place, n.clone())));
        let states = states.iter().map(|(place, text)| (*place, bytes(text)));
        (Keep::new((4, 0), 2, states, on_news), reported)
    }

    #[test]
    fn a_successor_waits_for_the_last_state() {
        let (keep, reported) = keep(&[(Place::Worker(1), "ab")]);
        let first = keep.request(Place::Worker(1));
        let (mut held, state) = first.take().unwrap().unwrap();
        assert_eq!(state, Some(bytes("ab")));
        held.begin(Begun::Taken);
        assert!(!held.is_awaited());
        let second = keep.request(Place::Worker(1));
        assert!(held.is_awaited() && second.take().unwrap().is_none());
        held.store(b"cd");
        held.store(b"much too long");
        drop(held);
        let (held, state) = second.take().unwrap().unwrap();
        assert_eq!(state, Some(bytes("cd")));
        drop(held);
        let expected = [News::Begun(Begun::Taken), News::Stored(bytes("cd"))];
        assert!(reported.lock().unwrap().iter().map(|(_, news)| news).eq(&expected));
        assert_eq!(keep.states(), (1, vec![(Place::Worker(1), bytes("cd"))]));
    }

    #[test]
    fn nobody_waits_for_one_that_has_gone() {
        let (keep, _) = keep(&[(Place::Slow, "ab"), (Place::Worker(7), "x"), (Place::Worker(0), "large")]);
        let (held, _) = keep.request(Place::Slow).take().unwrap().unwrap();
        drop(keep.request(Place::Slow));
        assert!(!held.is_awaited(), "it was dropped");
        let third = keep.request(Place::Slow);
        drop(held);
        assert_eq!(third.take().unwrap().unwrap().1, Some(bytes("ab")));
        // A place that is not taken is free again.
        drop(keep.request(Place::Worker(0)));
        assert_eq!(keep.request(Place::Worker(0)).take().unwrap().unwrap().1, None, "too large");
        assert!(keep.request(Place::Worker(7)).take().is_err());
    }

    #[test]
    fn faults_and_refusals_drop_the_state() {
        for refused in [true, false] {
            let (keep, _) = keep(&[(Place::Worker(0), "ab")]);
            let (mut held, _) = keep.request(Place::Worker(0)).take().unwrap().unwrap();
            if refused {
                held.begin(Begun::Refused)
            } else {
                held.fault()
            }
            assert_eq!(keep.states(), (1, vec![]));
            let begun = if refused { Begun::Refused } else { Begun::Dropped };
            assert_eq!(keep.begun(), [(Place::Worker(0), begun)]);
        }
    }

    #[test]
    fn an_instance_that_is_cut_off_keeps_what_it_exported() {
        let (keep, reported) = keep(&[]);
        let (mut held, _) = keep.request(Place::Slow).take().unwrap().unwrap();
        held.store(b"ab");
        held.cut_off();
        assert_eq!(keep.states(), (1, vec![(Place::Slow, bytes("ab"))]));
        assert_eq!(reported.lock().unwrap().last(), Some(&(Place::Slow, News::CutOff)));
    }

    #[test]
    fn only_states_that_fit_are_given() {
        for (place, text, fits) in [
            (Place::Worker(1), "abcd", true),
            (Place::Slow, "a", true),
            (Place::Worker(2), "a", false),
            (Place::Slow, "", false),
            (Place::Slow, "abcde", false),
        ] {
            assert_eq!(Keep::fits(4, 2, place, text.as_bytes()), fits, "{place} {text}");
        }
        let (keep, _) = keep(&[]);
        keep.raise(2);
        let (mut held, _) = keep.request(Place::Slow).take().unwrap().unwrap();
        held.store(b"abcd");
        keep.raise(5);
        held.store(b"abcde");
        assert_eq!(keep.states().1, [(Place::Slow, bytes("abcde"))]);
    }

    #[test]
    fn a_state_may_come_later() {
        let keep = Keep::awaiting((4, 0), 1, Box::new(|_, _| {}));
        let requested = keep.request(Place::Worker(0));
        assert!(requested.take().unwrap().is_none());
        keep.give(Place::Worker(0), Some(bytes("ab")));
        let (held, state) = requested.take().unwrap().unwrap();
        assert_eq!(state, Some(bytes("ab")));
        keep.set_followed();
        assert!(held.is_awaited());
    }
}
