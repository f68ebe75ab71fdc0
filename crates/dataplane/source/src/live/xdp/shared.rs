//! The first queue of an interface, which a receiver and a sender on one thread share: the kernel permits one
//! memory for a queue, and binds it to one process.

use super::queue::{Queue, Shape};
use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The frames of a queue for packets to send.
const TO_SEND: u32 = 2048;
/// The kernel frees a queue a moment after its socket was closed.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(5);

pub type Shared = Rc<RefCell<Queue>>;

thread_local! {
    /// Queues that are open, by the number of their interface.
    static FIRST: RefCell<Vec<(u32, Weak<RefCell<Queue>>)>> = const { RefCell::new(Vec::new()) };
}

/// Returns queue `number` of an interface. The first one has frames for packets to send; if it is open on
/// this thread already, it is that one.
pub fn open(interface: u32, number: u32, shape: Shape) -> io::Result<Shared> {
    if number > 0 {
        return when_free(interface, number, shape);
    }
    let found = FIRST.with_borrow_mut(|all| {
        all.retain(|(_, queue)| queue.strong_count() > 0);
        all.iter().find(|(index, _)| *index == interface).and_then(|(_, queue)| queue.upgrade())
    });
    if let Some(found) = found {
        return Ok(found);
    }
    let queue = when_free(interface, number, Shape { to_send: TO_SEND, ..shape })?;
    FIRST.with_borrow_mut(|all| all.push((interface, Rc::downgrade(&queue))));
    Ok(queue)
}

/// Keeps a queue from being found, since it has lost its interface. One that has its number may be there
/// again.
pub fn forget(lost: &Shared) {
    FIRST.with_borrow_mut(|all| all.retain(|(_, queue)| !std::ptr::eq(queue.as_ptr(), Rc::as_ptr(lost))));
}

fn when_free(interface: u32, number: u32, shape: Shape) -> io::Result<Shared> {
    let mut left = ATTEMPTS;
    loop {
        match Queue::open(interface, number, shape) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && left > 0 => {
                left -= 1;
                std::thread::sleep(PAUSE);
            }
            result => return result.map(|queue| Rc::new(RefCell::new(queue))),
        }
    }
}
