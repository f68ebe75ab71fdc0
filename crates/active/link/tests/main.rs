//! Tests of links.

mod chains;
mod exchanges;
mod packets;

use chains::{Authority, Chain, node};
use flame_active_link::{Clock, Limit, Links, Received, Time};
use std::net::SocketAddr;

const NOW: u64 = 1_800_000_000_000;

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 4747))
}

fn clock(after: u64) -> Clock {
    Clock { wall: NOW + after, steady: after }
}

/// One node in a test.
struct End {
    links: Links<Authority>,
    address: SocketAddr,
}

impl End {
    fn new(number: u8, chain: Chain, limit: Limit) -> Self {
        let mut rng = fastrand::Rng::with_seed(number.into());
        let time = Time::begin(0, clock(0));
        let entropy = Box::new(move |bytes: &mut [u8]| rng.fill(bytes));
        let links = Links::new(node(number, &chain), Authority::default(), limit, entropy, time);
        Self { links: links.unwrap(), address: address(number) }
    }

    fn connect(&mut self, to: &Self, after: u64) -> Vec<u8> {
        self.links.connect(to.address, clock(after)).unwrap().unwrap()
    }

    /// Receives a datagram, and returns the answer.
    fn answer(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        after: u64,
    ) -> Result<Vec<u8>, flame_active_link::Cause> {
        match self.links.receive(from, &mut datagram.to_vec(), clock(after))? {
            Received::Step(answer) | Received::Begun(answer) => Ok(answer),
            Received::Nothing => Ok(Vec::new()),
            other => panic!("{other:?}"),
        }
    }

    /// Receives a packet, and returns its body.
    fn open(
        &mut self,
        from: SocketAddr,
        packet: &[u8],
        after: u64,
    ) -> Result<Vec<u8>, flame_active_link::Cause> {
        match self.links.receive(from, &mut packet.to_vec(), clock(after))? {
            Received::Packet { body, .. } => Ok(body.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn seal(&mut self, to: &Self, body: &[u8], after: u64) -> Vec<u8> {
        let (mut packet, mode) = (Vec::new(), flame_active_link::Mode::Authenticated);
        self.links.seal(to.address, mode, body, clock(after), &mut packet).unwrap();
        packet
    }
}

/// Returns two nodes with a link.
fn linked() -> (End, End) {
    let mut a = End::new(1, Chain::default(), Limit::default());
    let mut b = End::new(2, Chain::default(), Limit::default());
    link(&mut a, &mut b, 0);
    (a, b)
}

fn link(a: &mut End, b: &mut End, after: u64) {
    let first = a.connect(b, after);
    let second = b.answer(a.address, &first, after).unwrap();
    let third = a.answer(b.address, &second, after).unwrap();
    let confirmation = b.answer(a.address, &third, after).unwrap();
    assert!(a.answer(b.address, &confirmation, after).unwrap().is_empty());
}
