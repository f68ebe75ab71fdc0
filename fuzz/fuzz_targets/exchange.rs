//! The exchange of keys: the first byte chooses one of the datagrams of an exchange, the second what happens
//! to it, and the rest changes it or stands in its place. A changed datagram makes no session, nor does it
//! open.
#![no_main]

use flame_active_link::{
    Certificates, Clock, Identity, Limit, Links, Mode, Own, Peer, Presented, Received, Role, Time, Wrong,
};
use flame_capsule::{Grant, Limits, Payer, Place};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

/// Takes the chain that both have.
struct Judge;

impl Certificates for Judge {
    fn verify(&self, presented: &Presented<'_>, _: u64) -> Result<Peer, Wrong> {
        if presented.chain != b"chain" {
            return Err(Wrong::Untrusted);
        }
        let (payer, place, share) = (Payer::default(), Place(1), Limits::default());
        let (grant, chain) = (Grant::ALL, presented.digest());
        Ok(Peer { payer, place, role: Role::Node, until: u64::MAX, share, grant, chain })
    }
}

const CLOCK: Clock = Clock { wall: 1_800_000_000_000, steady: 1 };

fn end(number: u8) -> (SocketAddr, Links<Judge>) {
    let mut next = u64::from(number);
    let entropy = Box::new(move |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (next >> 56) as u8;
        }
    });
    let identity = Identity { chain: b"chain".to_vec(), ..Identity::default() };
    let own = Own { key: [number; 32], identity };
    let links = Links::new(own, Judge, Limit::default(), entropy, Time::begin(0, CLOCK));
    let Ok(links) = links else { panic!("the identity is short") };
    (SocketAddr::from(([127, 0, 0, number], 1)), links)
}

fuzz_target!(|data: &[u8]| {
    let [which, change, rest @ ..] = data else { return };
    let (a_is, mut a) = end(1);
    let (b_is, mut b) = end(2);
    let Ok(Some(mut datagram)) = a.connect(b_is, CLOCK) else { panic!("a node can ask") };
    let mut is_changed = false;
    for step in 0..5 {
        if step == usize::from(which % 5) {
            let before = datagram.clone();
            match change % 3 {
                0 => datagram = rest.to_vec(),
                1 => datagram.truncate(rest.len()),
                _ => datagram.iter_mut().zip(rest).for_each(|(byte, mask)| *byte ^= mask),
            }
            is_changed = datagram != before;
        }
        let (to, from) = if step % 2 == 0 { (&mut b, a_is) } else { (&mut a, b_is) };
        let sessions = to.sizes()[0];
        let answer = match to.receive(from, &mut datagram, CLOCK) {
            Ok(Received::Step(answer) | Received::Begun(answer)) => Some(answer),
            Ok(Received::Packet { .. } | Received::Nothing) => {
                assert!(!is_changed, "a changed packet was opened");
                None
            }
            Ok(Received::Plain(_)) | Err(_) => None,
        };
        if is_changed {
            assert_eq!(to.sizes()[0], sessions, "a changed datagram made a session");
        }
        datagram = match (step, answer) {
            (0..3, Some(answer)) => answer,
            (3, _) if !is_changed => {
                let mut packet = Vec::new();
                a.seal(b_is, Mode::Encrypted, b"a packet", CLOCK, &mut packet).expect("both have a session");
                packet
            }
            _ => return,
        };
    }
});
