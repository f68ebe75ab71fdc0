//! The first queue of an interface, which a receiver and a sender of one thread share: the kernel permits one
//! memory for a queue, and binds it to one process. Both may go to another thread together.

use super::queue::{Queue, Shape};
use flame_base::{Backoff, lock};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The frames of a queue for packets to send.
const TO_SEND: u32 = 2048;
/// The kernel frees a queue a moment after its socket was closed.
const ATTEMPTS: usize = 20;
const FREE_CHECK: Backoff = Backoff::every(Duration::from_millis(5));

/// A queue, which one thread at a time uses.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<Queue>>);

impl Shared {
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }
}

/// An interface: the network namespace of the thread that opened it, and its number there.
type Interface = (u64, u32);

/// Queues that are open.
static FIRST: Mutex<Vec<(Interface, Weak<Mutex<Queue>>)>> = Mutex::new(Vec::new());

/// Returns queue `number` of an interface. The first one has frames for packets to send; if it is open
/// already, it is that one.
pub fn open(interface: u32, number: u32, shape: Shape) -> io::Result<Shared> {
    if number > 0 {
        return when_free(interface, number, shape);
    }
    let named = (std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |ns| ns.st_ino()), interface);
    {
        let mut all = lock(&FIRST);
        all.retain(|(_, queue)| queue.strong_count() > 0);
        let found = all.iter().find(|(of, _)| *of == named).and_then(|(_, queue)| queue.upgrade());
        if let Some(found) = found {
            return Ok(Shared(found));
        }
    }
    let queue = when_free(interface, number, Shape { to_send: TO_SEND, ..shape })?;
    lock(&FIRST).push((named, Arc::downgrade(&queue.0)));
    Ok(queue)
}

/// Keeps a queue from being found, since it has lost its interface. Another interface with its number may
/// appear.
pub fn forget(Shared(lost): &Shared) {
    lock(&FIRST).retain(|(_, queue)| !std::ptr::eq(queue.as_ptr(), Arc::as_ptr(lost)));
}

fn when_free(interface: u32, number: u32, shape: Shape) -> io::Result<Shared> {
    let mut left = ATTEMPTS;
    FREE_CHECK.sleep_until(|| match Queue::open(interface, number, shape) {
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy && left > 0 => {
            left -= 1;
            None
        }
        result => Some(result.map(|queue| Shared(Arc::new(Mutex::new(queue))))),
    })
}
