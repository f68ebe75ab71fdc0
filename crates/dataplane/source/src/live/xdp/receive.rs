//! An interface from which frames are received by AF_XDP, to be sent on.

use super::queue::{self, AT_ONCE, Shape};
use super::shared::{self, Shared};
use super::{Clocks, Found, HEADERS, Manner, attach, failed, find, frames};
use crate::SourceError;
use crate::live::bpf::{Count, Sockets, XdpMode};
use crate::live::card::Card;
use crate::live::deaf::Deaf;
use crate::live::device::{BLOCK_BYTES, DeviceOptions, FrameIn, Receive};
use crate::live::finish::Unfinished;
use crate::live::interface::Interface;
use crate::live::socket::{self, Socket};
use crate::live::state::State;
use flame_abi::LinkType;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The time after which the address of the card is read again.
const ADDRESS_INTERVAL: Duration = Duration::from_millis(200);
/// The time after which the number of its queues, and its MTU, are.
const CARD_INTERVAL: Duration = Duration::from_millis(100);

/// An interface from which frames are received by AF_XDP, from all its queues. The fields are dropped in this
/// order: first, frames take their usual way again.
pub struct XdpReceiver {
    redirect: super::Redirect,
    /// Keeps from the kernel what the driver does not give to the program. Linux has it since 6.6.
    _deaf: Option<Deaf>,
    queues: Vec<Shared>,
    /// The sockets that the program knows.
    sockets: Sockets,
    /// The frames of queues without a socket: the program drops them, since the kernel must not handle them.
    unmatched: Count,
    /// The drops of queues that were open before.
    drops_before: u64,
    shape: Shape,
    blocks: usize,
    polled: Vec<libc::pollfd>,
    /// The queue that is next.
    next: usize,
    mode: XdpMode,
    card: Card,
    address: [u8; 6],
    looked: Instant,
    looked_at_card: Instant,
    /// Whether a queue could not be opened, and whether frames may be longer than there is room. Each is
    /// reported once.
    lacks_queue: bool,
    lacks_room: bool,
    /// Is told when the interface goes down.
    told: Socket,
    /// Keeps the interface in promiscuous mode.
    promiscuous: Option<Socket>,
    state: State,
    /// Whether the last call left frames.
    is_more: bool,
}

impl XdpReceiver {
    /// Opens an interface. Frames are then no longer received by the kernel's stack, nor by captures.
    ///
    /// # Errors
    ///
    /// Returns an error without the rights, if there is no such interface, or if AF_XDP cannot have it.
    pub fn open(interface: &str, options: &DeviceOptions) -> Result<Self, SourceError> {
        let io = |step: &str, error| failed(interface, step, error);
        let Found { socket, index, card, chunk } = find(&Interface::find(interface)?)?;
        let count = card.queues().map_err(|e| io("queues", e))?;
        let address = card.address().map_err(|e| io("address", e))?;
        let unmatched = Count::new().map_err(|e| io("program", e))?;
        let deaf = Deaf::new(index as u32, Some(&unmatched)).ok();
        // There is a place for each queue that may come later.
        let most = card.most_queues().map_err(|e| io("queues", e))?.max(count);
        let attached = attach(index, most, Some(&unmatched), false);
        let (sockets, redirect, mode) = attached.map_err(|e| io("program", e))?;
        let frames = frames(BLOCK_BYTES * options.blocks, chunk, count);
        let shape = Shape { chunk, frames, to_send: 0, may_share: mode == XdpMode::Native };
        let queues: Result<Vec<Shared>, SourceError> = (0..count)
            .map(|number| {
                let queue = open_queue(&sockets, index, number, shape);
                queue.map_err(|e| io(&format!("queue {number}"), e))
            })
            .collect();
        let queues = queues?;
        socket.be_told(index).map_err(|e| io("state", e))?;
        let mut receiver = Self {
            redirect,
            _deaf: deaf,
            polled: queues.iter().map(|queue| queue.queue().polled()).collect(),
            drops_before: queues.iter().map(|queue| queue.queue().drops()).sum(),
            queues,
            sockets,
            unmatched,
            shape,
            blocks: options.blocks,
            next: 0,
            mode,
            card,
            address,
            looked: Instant::now(),
            looked_at_card: Instant::now(),
            lacks_queue: false,
            lacks_room: false,
            told: socket,
            promiscuous: None,
            state: State::new(interface, index),
            is_more: false,
        };
        receiver.be_promiscuous(options.is_promiscuous).map_err(|e| io("promiscuous mode", e))?;
        Ok(receiver)
    }

    fn be_promiscuous(&mut self, is_promiscuous: bool) -> io::Result<()> {
        if !is_promiscuous {
            self.promiscuous = None;
        } else if self.promiscuous.is_none() {
            let opened =
                Interface::find(self.state.interface()).and_then(|found| socket::open_to_send(&found));
            let (socket, _) = opened.map_err(|e| io::Error::other(e.to_string()))?;
            socket.be_promiscuous(self.state.index())?;
            self.promiscuous = Some(socket);
        }
        Ok(())
    }

    /// Opens queues that the interface has got. Returns a message if there are some, or the first could not
    /// be opened.
    fn open_queues(&mut self, count: u32) -> Option<String> {
        let before = self.queues.len() as u32;
        let shape =
            Shape { frames: frames(BLOCK_BYTES * self.blocks, self.shape.chunk, count), ..self.shape };
        let opened = self.redirect.renew().map_err(|e| format!("program: {e}")).and_then(|()| {
            (before..count).try_for_each(|number| {
                let queue = open_queue(&self.sockets, self.state.index(), number, shape);
                let queue = queue.map_err(|e| format!("queue {number}: {e}"))?;
                self.polled.push(queue.queue().polled());
                self.queues.push(queue);
                Ok(())
            })
        });
        let (name, has) = (self.state.interface(), self.queues.len() as u32);
        let had_failed = std::mem::replace(&mut self.lacks_queue, opened.is_err());
        match opened {
            // It is tried again, and reported once.
            Err(e) if !had_failed => Some(format!("interface {name}: {e}: frames of new queues are dropped")),
            _ => (has > before).then(|| format!("interface {name} has {has} receive queues now")),
        }
    }

    /// Looks whether the interface has got queues or a larger MTU. Returns a message if so.
    fn look_at_card(&mut self) -> Option<String> {
        if self.looked_at_card.elapsed() < CARD_INTERVAL || self.state.is_down() {
            return None;
        }
        self.looked_at_card = Instant::now();
        let count = self.card.queues().ok()?;
        if count as usize > self.queues.len()
            && let Some(message) = self.open_queues(count)
        {
            return Some(message);
        }
        let rooms = self.queues.iter().map(|queue| queue.queue().chunk().room());
        let (mtu, room) = (self.card.mtu().ok()? as usize, rooms.min()?);
        let lacks_room = mtu + HEADERS > room;
        let is_new = lacks_room && !self.lacks_room;
        self.lacks_room = lacks_room;
        let name = self.state.interface();
        is_new.then(|| {
            format!(
                "interface {name}: its MTU is {mtu} now, but there is room for frames of {room} bytes: \
                 longer ones are dropped until it is opened again"
            )
        })
    }

    /// Returns the manner in which it is received.
    fn manner(&self) -> Manner {
        let is_zero_copy = self.queues.iter().any(|queue| queue.queue().is_zero_copy());
        Manner { mode: self.mode, is_zero_copy, queues: self.queues.len() }
    }
}

/// Opens a queue, and enters its socket.
fn open_queue(sockets: &Sockets, index: i32, number: u32, shape: Shape) -> io::Result<Shared> {
    let queue = shared::open(index as u32, number, shape)?;
    {
        let mut queue = queue.queue();
        // If it was open, it may have frames of an earlier receiver.
        while queue.take(AT_ONCE, |_, _| ()) > 0 {}
        sockets.set(number, queue.fd())?;
    }
    Ok(queue)
}

/// Returns the type that the kernel would give a frame that is received by a card with this address.
fn kind(frame: &[u8], address: [u8; 6]) -> u8 {
    match frame.first_chunk::<6>() {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => libc::PACKET_BROADCAST,
        Some(to) if to[0] & 1 == 1 => libc::PACKET_MULTICAST,
        Some(to) if *to != address => libc::PACKET_OTHERHOST,
        _ => libc::PACKET_HOST,
    }
}

impl Receive for XdpReceiver {
    fn link(&self) -> LinkType {
        LinkType::ETHERNET
    }

    fn way(&self) -> String {
        format!("{}; the kernel does not handle its packets", self.manner())
    }

    fn has_its_name(&self) -> bool {
        self.state.has_its_name()
    }

    fn is_ready(&self) -> bool {
        self.is_more
    }

    fn take(&mut self, most: usize, each: &mut dyn FnMut(FrameIn<'_>) -> usize) -> usize {
        if self.looked.elapsed() > ADDRESS_INTERVAL {
            self.looked = Instant::now();
            self.address = self.card.address().unwrap_or(self.address);
        }
        let (clocks, address) = (Clocks::read(), self.address);
        let mut count = 0;
        for _ in 0..self.queues.len() {
            let mut queue = self.queues[self.next].queue();
            let mut is_empty = false;
            while !is_empty && count < most {
                let asked = AT_ONCE.min(most - count);
                let taken = queue.take(asked, |bytes, stamp| {
                    let (ts_ns, wire_len) = (clocks.time_of(stamp), bytes.len() as u32);
                    let (kind, work) = (kind(bytes, address), Unfinished::default());
                    count += each(FrameIn { bytes, ts_ns, wire_len, kind, work }).max(1);
                });
                is_empty = taken < asked;
            }
            if is_empty {
                self.next = (self.next + 1) % self.queues.len();
            }
            if count >= most {
                break;
            }
        }
        self.is_more = count >= most;
        count
    }

    fn look(&mut self) -> Result<Option<String>, SourceError> {
        // Lets the kernel refill its queues.
        queue::wait(&mut self.polled, 0);
        let message =
            self.state.look(&self.told).inspect_err(|_| self.queues.iter().for_each(shared::forget))?;
        Ok(message.or_else(|| self.look_at_card()))
    }

    fn look_after(&self) -> Option<Duration> {
        Some(CARD_INTERVAL)
    }

    fn drops(&mut self) -> u64 {
        let drops: u64 = self.queues.iter().map(|queue| queue.queue().drops()).sum();
        (drops + self.unmatched.get()).saturating_sub(self.drops_before)
    }

    fn watched(&self) -> io::Result<Vec<OwnedFd>> {
        let told = self.told.as_fd().try_clone_to_owned();
        let queues = self.queues.iter().map(|queue| queue.queue().as_fd().try_clone_to_owned());
        std::iter::once(told).chain(queues).collect()
    }

    fn adopt(&mut self, options: &DeviceOptions) -> bool {
        self.be_promiscuous(options.is_promiscuous).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_follows_from_the_destination() {
        let of = |to: [u8; 6]| kind(&to, [2, 0, 0, 0, 0, 2]);
        assert_eq!(of([2, 0, 0, 0, 0, 2]), libc::PACKET_HOST);
        assert_eq!(of([2, 0, 0, 0, 0, 3]), libc::PACKET_OTHERHOST);
        assert_eq!(of([3, 0, 0, 0, 0, 2]), libc::PACKET_MULTICAST);
        assert_eq!(of([0xff; 6]), libc::PACKET_BROADCAST);
    }
}
