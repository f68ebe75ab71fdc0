//! The wait of an element for a device, on a thread of its own that sleeps until it is asked to wait.

use crate::runtime::wake::Waker;
use flame_base::{lock, unpoisoned};
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};

struct State {
    /// Whether the element wants to be woken.
    is_armed: bool,
    is_closed: bool,
    waker: Waker,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// Waits until the element asks. Returns false at the end.
    fn is_wanted(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.is_armed && !state.is_closed {
            state = unpoisoned(self.changed.wait(state));
        }
        !state.is_closed
    }
}

/// A thread that wakes an element, once each time that it is asked to. It ends with this value.
pub struct Watch {
    shared: Arc<Shared>,
    /// The other end is closed with this one, which ends a wait.
    _stop: UnixStream,
}

impl Watch {
    /// Watches descriptors until one is readable, or writable.
    pub fn new(watched_fds: Vec<OwnedFd>, is_writer: bool, waker: Waker) -> std::io::Result<Self> {
        let state = State { is_armed: false, is_closed: false, waker };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (stop, stopped) = UnixStream::pair()?;
        let watched = shared.clone();
        let wanted = if is_writer { PollFlags::OUT } else { PollFlags::IN };
        let watch = move || {
            let mut fds: Vec<PollFd<'_>> =
                watched_fds.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), wanted)).collect();
            fds.push(PollFd::new(&stopped, PollFlags::IN));
            while watched.is_wanted() {
                // After a signal the element looks, and asks again.
                let _ = poll(&mut fds, None);
                let mut state = lock(&watched.state);
                state.is_armed = false;
                state.waker.wake();
            }
        };
        std::thread::Builder::new().name("flame-watch".into()).spawn(watch)?;
        Ok(Self { shared, _stop: stop })
    }

    /// Wakes the element once, when the device is ready or has a message.
    pub fn arm(&self) {
        let mut state = lock(&self.shared.state);
        if !std::mem::replace(&mut state.is_armed, true) {
            self.shared.changed.notify_one();
        }
    }

    /// Wakes another element from now on.
    pub fn adopt(&self, waker: Waker) {
        lock(&self.shared.state).waker = waker;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.shared.state).is_closed = true;
        self.shared.changed.notify_one();
    }
}
