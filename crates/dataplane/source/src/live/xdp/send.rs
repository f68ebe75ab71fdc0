//! An interface to which frames are sent by AF_XDP.

use super::queue::{Frame, Queue, Shape};
use super::ring::{PLACES, SendRing};
use super::shared::{self, Shared};
use super::{Found, failed, find};
use crate::SourceError;
use crate::live::card::Card;
use crate::live::device::Unsent;
use crate::live::interface::Interface;
use crate::live::socket::Socket;
use crate::live::state::State;
use flame_abi::LinkType;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// The time after which the MTU is read again.
const MTU_INTERVAL: Duration = Duration::from_millis(100);
/// The frames for received packets of a queue that was opened to send.
const RECEIVED: u32 = super::LEAST_FRAMES as u32;

/// An interface to which frames are sent by AF_XDP, by its first queue.
pub struct XdpSender {
    output: RefCell<Output>,
    card: Card,
    socket: Socket,
    state: State,
    /// The longest frame without a VLAN tag.
    longest: Cell<usize>,
    looked: Cell<Instant>,
}

/// The ring, and the frames of the memory that belong to it.
struct Output {
    interface: u32,
    ring: SendRing,
    /// The frames in the places that the kernel has not read yet.
    written: VecDeque<Frame>,
    /// The number of places that the kernel has read.
    read: u32,
    /// Whether the last packet found the interface down.
    was_down: bool,
    /// Whether the card reads frames itself, some time after they were given to it.
    is_zero_copy: bool,
    /// Has the memory of the frames, and is dropped last.
    queue: Shared,
}

impl XdpSender {
    /// Opens an interface. If this thread receives from it by AF_XDP, too, both share the memory of its first
    /// queue.
    ///
    /// # Errors
    ///
    /// Returns an error without the rights, if there is no such interface, or if AF_XDP cannot have it.
    pub fn open(interface: &str) -> Result<Self, SourceError> {
        let io = |step: &str, error| failed(interface, step, error);
        let Found { socket, index, card, chunk } = find(&Interface::find(interface)?)?;
        // Without a program that receives, not every driver can read the memory itself.
        let shape = Shape { chunk, frames: RECEIVED, to_send: 0, may_share: false };
        let queue = shared::open(index as u32, 0, shape).map_err(|e| io("queue 0", e))?;
        let ring = SendRing::open(index as u32, 0, queue.queue().fd()).map_err(|e| io("sending", e))?;
        let is_zero_copy = queue.queue().is_zero_copy();
        let written = VecDeque::with_capacity(PLACES as usize);
        let output =
            Output { interface: index as u32, ring, written, read: 0, was_down: false, is_zero_copy, queue };
        let longest = Cell::new(card.mtu().map_err(|e| io("MTU", e))? as usize + 14);
        Ok(Self {
            output: RefCell::new(output),
            card,
            socket,
            state: State::new(interface, index),
            longest,
            looked: Cell::new(Instant::now()),
        })
    }

    /// Returns the way in which frames are sent, in words.
    pub fn way(&self) -> String {
        let copy = if self.output.borrow().is_zero_copy { "zero-copy" } else { "copy" };
        format!("AF_XDP ({copy}, queue 0)")
    }

    pub fn link(&self) -> LinkType {
        LinkType::ETHERNET
    }

    /// Returns whether the interface was removed.
    pub fn is_gone(&self) -> bool {
        let is_gone = self.socket.is_still_up().is_err();
        if is_gone {
            shared::forget(&self.output.borrow().queue);
        }
        is_gone
    }

    /// Returns whether the interface has a carrier, without which it sends nothing.
    pub fn has_carrier(&self) -> bool {
        self.card.has_carrier()
    }

    /// Returns whether its interface still has the name by which it was opened.
    pub fn has_its_name(&self) -> bool {
        self.state.has_its_name()
    }

    /// Sends whole frames, as many as there is room for. Returns how many were sent. Those behind them are to
    /// be given again.
    ///
    /// # Errors
    ///
    /// Returns the reason why the first one was not sent.
    pub fn send(&self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        if self.looked.get().elapsed() > MTU_INTERVAL {
            self.looked.set(Instant::now());
            self.longest.set(self.card.mtu().map_or(self.longest.get(), |mtu| mtu as usize + 14));
        }
        let mut output = self.output.borrow_mut();
        let (longest, room) = (self.longest.get(), output.queue.queue().chunk().room());
        let mut is_too_long = false;
        let mut fitting = frames.take_while(|frame| {
            // As the kernel's packet sockets do.
            let tag = if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 };
            is_too_long = frame.len() > (longest + tag).min(room);
            !is_too_long
        });
        match output.send(&mut fitting) {
            Ok(0) if is_too_long => Err(Unsent::TooLong),
            sent => sent,
        }
    }
}

impl Output {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        let queue = self.queue.clone();
        let mut queue = queue.queue();
        queue.complete();
        if self.is_zero_copy {
            return self.give(&mut queue, frames);
        }
        // An interface that is down is asked with one frame.
        let most = if self.was_down { 1 } else { PLACES as usize };
        let (mut count, is_full) = self.write(&mut queue, frames, most);
        if count == 0 {
            return if is_full { Err(Unsent::QueueFull) } else { Ok(0) };
        }
        if count < self.written.len() {
            self.renew(&mut queue, count).map_err(|e| self.reason(&e))?;
        }
        self.ring.publish(self.read.wrapping_add(count as u32));
        let mut sent = 0;
        loop {
            let result = self.ring.send();
            // A dropped packet is the last packet that was read. If it is the first one, too, not every
            // kernel states at once that it was read: then the stated number is behind ours.
            let stated = self.ring.read().wrapping_sub(self.read) as i32;
            let is_dropped = is(&result, libc::EBUSY);
            let read = (stated.max(i32::from(is_dropped)) as usize).min(count);
            self.read = self.read.wrapping_add(read as u32);
            self.written.drain(..read);
            count -= read;
            sent += read - usize::from(is_dropped);
            // The kernel sends some packets in each call.
            if count > 0 && read > 0 && (result.is_ok() || is(&result, libc::EAGAIN)) {
                continue;
            }
            self.was_down = false;
            return match result {
                _ if sent > 0 => Ok(sent),
                Err(e) => Err(self.reason(&e)),
                Ok(()) => Err(Unsent::QueueFull),
            };
        }
    }

    /// Returns the reason why a frame was not sent.
    fn reason(&mut self, error: &io::Error) -> Unsent {
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                self.was_down = true;
                Unsent::Down
            }
            Some(libc::EBUSY) => Unsent::Dropped,
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => Unsent::QueueFull,
            _ => Unsent::Refused,
        }
    }

    /// Makes the ring again with the first `count` places that are written: the kernel may know more from an
    /// earlier call, whose packets were refused by then, and it never forgets one.
    fn renew(&mut self, queue: &mut Queue, count: usize) -> io::Result<()> {
        self.ring = SendRing::open(self.interface, 0, queue.fd())?;
        self.read = 0;
        self.written.drain(count..).for_each(|frame| queue.give_back(frame));
        for (number, frame) in (0..).zip(&self.written) {
            self.ring.write(number, queue.offset(frame), frame.len());
        }
        Ok(())
    }

    /// Copies at most `most` frames to the memory, and their places to the ring. Returns how many, and
    /// whether there was no room for more.
    fn write(
        &mut self,
        queue: &mut Queue,
        frames: &mut dyn Iterator<Item = &[u8]>,
        most: usize,
    ) -> (usize, bool) {
        for count in 0..most {
            let Some(frame) = frames.next() else { return (count, false) };
            if count == self.written.len() {
                let Some(free) = queue.lend() else { return (count, true) };
                self.written.push_back(free);
            }
            let to = &mut self.written[count];
            to.clear();
            // There is room for the longest frame.
            if to.adjust_tail(frame.len() as i32).is_err() {
                return (count, true);
            }
            to.copy_from_slice(frame);
            self.ring.write(self.read.wrapping_add(count as u32), queue.offset(to), frame.len());
        }
        (most, true)
    }

    /// Gives frames to a card that reads them itself.
    fn give(&mut self, queue: &mut Queue, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Unsent> {
        if self.was_down && !is_up(&self.ring.send()) {
            return Err(Unsent::Down);
        }
        let used = self.read.wrapping_sub(self.ring.read());
        let (count, is_full) = self.write(queue, frames, PLACES.saturating_sub(used) as usize);
        if count == 0 && is_full {
            return Err(Unsent::QueueFull);
        }
        self.written.clear();
        self.read = self.read.wrapping_add(count as u32);
        self.ring.publish(self.read);
        self.was_down = !is_up(&self.ring.send());
        Ok(count)
    }
}

fn is(result: &io::Result<()>, code: i32) -> bool {
    result.as_ref().is_err_and(|e| e.raw_os_error() == Some(code))
}

/// Returns whether the result of a call does not mean that the interface is down or was removed.
fn is_up(result: &io::Result<()>) -> bool {
    !is(result, libc::ENETDOWN) && !is(result, libc::ENXIO)
}

impl Drop for Output {
    fn drop(&mut self) {
        // The kernel may know these places, but the socket is closed before a queue is used again.
        let mut queue = self.queue.queue();
        self.written.drain(..).for_each(|frame| queue.give_back(frame));
    }
}
