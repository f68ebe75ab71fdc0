//! The exchange of keys.

use crate::chains::{Chain, holder, node};
use crate::{End, NOW, address, clock, link, linked};
use flame_active_link::{Cause, Clock, HEADER, Limit, Links, Time};
use std::net::SocketAddr;

fn ends() -> (End, End) {
    (End::new(1, Chain::default(), Limit::default()), End::new(2, Chain::default(), Limit::default()))
}

#[test]
fn two_nodes_make_a_link() {
    let (mut a, mut b) = linked();
    let packet = a.seal(&b, b"hello", 1);
    assert_eq!(b.open(a.address, &packet, 1).unwrap(), b"hello");
    let packet = b.seal(&a, b"you, too", 1);
    assert_eq!(a.open(b.address, &packet, 1).unwrap(), b"you, too");
    assert_eq!(a.links.peers().next().unwrap().1.until, NOW + 7_200_000);
    assert_eq!(a.links.peers().next().unwrap().1.share.instructions, 1000);
}

#[test]
fn an_exchange_may_end_at_each_message() {
    for lost in 1..=4 {
        let (mut a, mut b) = ends();
        let first = a.connect(&b, 0);
        assert!(a.links.connect(b.address, clock(999)).unwrap().is_none());
        if lost > 1 {
            let second = b.answer(a.address, &first, 0).unwrap();
            if lost > 2 {
                let third = a.answer(b.address, &second, 0).unwrap();
                if lost > 3 {
                    b.answer(a.address, &third, 0).unwrap();
                }
            }
        }
        // What the initiator sends now is refused, and it tries again after its probation.
        if lost == 3 {
            let packet = a.seal(&b, b"early", 1);
            assert_eq!(b.open(a.address, &packet, 1).unwrap_err(), Cause::NoSession);
        }
        assert!(a.links.is_due(b.address, NOW + 3000));
        link(&mut a, &mut b, 3000);
        assert!(!a.links.is_due(b.address, NOW + 3000), "{lost}");
        let packet = a.seal(&b, b"hello", 3001);
        assert_eq!(b.open(a.address, &packet, 3001).unwrap(), b"hello");
    }
}

#[test]
fn no_changed_bit_makes_a_session() {
    let (mut a, mut b) = ends();
    let first = a.connect(&b, 0);
    let second = b.answer(a.address, &first, 0).unwrap();
    let third = a.answer(b.address, &second, 0).unwrap();
    let flips = |length: usize| (0..length).step_by(7).chain(0..HEADER).chain([length - 1]);
    for at in flips(first.len()) {
        let (mut a, mut b) = ends();
        let mut first = a.connect(&b, 0);
        first[at] ^= 1;
        if let Ok(second) = b.answer(a.address, &first, 0) {
            assert!(a.answer(b.address, &second, 0).is_err(), "message 1, byte {at}");
        }
    }
    for at in flips(second.len()) {
        let (mut a, mut b) = ends();
        let first = a.connect(&b, 0);
        let mut second = b.answer(a.address, &first, 0).unwrap();
        second[at] ^= 1;
        assert!(a.answer(b.address, &second, 0).is_err(), "message 2, byte {at}");
        assert_eq!(a.links.sizes()[0], 0);
    }
    for at in flips(third.len()) {
        let (mut a, mut b) = ends();
        let first = a.connect(&b, 0);
        let second = b.answer(a.address, &first, 0).unwrap();
        let mut third = a.answer(b.address, &second, 0).unwrap();
        third[at] ^= 1;
        assert!(b.answer(a.address, &third, 0).is_err(), "message 3, byte {at}");
        assert_eq!(b.links.sizes()[0], 0);
    }
    for length in (0..third.len()).step_by(5) {
        let (mut a, mut b) = ends();
        let first = a.connect(&b, 0);
        assert!(b.answer(a.address, &first[..length], 0).is_err());
        let second = b.answer(a.address, &first, 0).unwrap();
        let third = a.answer(b.address, &second, 0).unwrap();
        assert!(b.answer(a.address, &third[..length], 0).is_err());
        assert_eq!(b.links.sizes()[0], 0);
    }
}

#[test]
fn replayed_messages_of_the_exchange_are_refused() {
    let (mut a, mut b) = ends();
    let first = a.connect(&b, 0);
    let second = b.answer(a.address, &first, 0).unwrap();
    let third = a.answer(b.address, &second, 0).unwrap();
    assert_eq!(a.answer(b.address, &second, 0).unwrap_err(), Cause::NoExchange);
    b.answer(a.address, &third, 0).unwrap();
    assert_eq!(b.answer(a.address, &third, 0).unwrap_err(), Cause::NoExchange);
    assert_eq!(b.answer(a.address, &first, 10).unwrap_err(), Cause::Repeated);
    // From another address, too; and later, when it is not remembered any more.
    assert_eq!(b.answer(address(9), &first, 10).unwrap_err(), Cause::Repeated);
    assert_eq!(b.answer(a.address, &first, 300_000).unwrap_err(), Cause::Skewed);
    // A third message does not finish another exchange.
    let again = a.connect(&b, 2000);
    let _ = b.answer(a.address, &again, 2000).unwrap_err();
    assert_eq!(b.links.counts().of(Cause::Repeated), 2);
}

#[test]
fn no_answer_is_longer_than_its_question() {
    let (mut a, mut b) = ends();
    let first = a.connect(&b, 0);
    assert_eq!(first.len(), 2048);
    assert_eq!(b.answer(a.address, &first[..2047], 0).unwrap_err(), Cause::Asks);
    assert!(b.answer(a.address, &first, 0).unwrap().len() <= first.len());
    let mut own = node(3, &Chain::default());
    own.identity.chain = vec![0; 1900];
    let (time, entropy) = (Time::begin(0, clock(0)), Box::new(|_: &mut [u8]| {}));
    let refused = Links::new(own, crate::Authority::default(), Limit::default(), entropy, time);
    assert!(refused.is_err_and(|(found, most)| found > most && most > 1800));
}

/// Lets a node with another chain ask, and returns why it was refused.
fn refused(chain: Chain, prepare: impl FnOnce(&mut End)) -> Cause {
    let mut a = End::new(1, chain, Limit::default());
    let mut b = End::new(2, Chain::default(), Limit::default());
    prepare(&mut b);
    let first = a.connect(&b, 0);
    let second = b.answer(a.address, &first, 0).unwrap();
    let third = a.answer(b.address, &second, 0).unwrap();
    let cause = b.answer(a.address, &third, 0).unwrap_err();
    assert_eq!((b.links.sizes()[0], b.links.counts().of(cause)), (0, 1));
    cause
}

#[test]
fn certificates_are_checked() {
    let chain = Chain::default;
    assert_eq!(refused(Chain { until: [NOW - 1; 2], ..chain() }, |_| {}), Cause::Expired);
    assert_eq!(refused(Chain { until: [NOW + 1, NOW + 2], ..chain() }, |_| {}), Cause::Widened);
    assert_eq!(refused(Chain { instructions: [5, 6], ..chain() }, |_| {}), Cause::Widened);
    assert_eq!(refused(Chain { root: 101, ..chain() }, |_| {}), Cause::Untrusted);
    let revoke = |number| {
        move |b: &mut End| {
            b.links.certificates().revoked.insert(holder(number));
        }
    };
    assert_eq!(refused(chain(), revoke(1)), Cause::Revoked);
    assert_eq!(refused(chain(), revoke(50)), Cause::Revoked);
    let attest = |b: &mut End| b.links.certificates().needs_attestation = true;
    assert_eq!(refused(chain(), attest), Cause::Attestation);
}

#[test]
fn certificates_belong_to_their_holder() {
    assert_eq!(refused(Chain { proof_for: Some(7), ..Chain::default() }, |_| {}), Cause::NotHolder);
}

#[test]
fn clocks_that_differ_are_refused() {
    for (ahead, behind) in [(30_001, 0), (0, 30_001)] {
        let (mut a, mut b) = ends();
        let first = a.connect(&b, ahead);
        assert_eq!(b.answer(a.address, &first, behind).unwrap_err(), Cause::Skewed);
    }
    let (mut a, mut b) = ends();
    let first = a.connect(&b, 0);
    let second = b.answer(a.address, &first, 30_000).unwrap();
    assert_eq!(a.answer(b.address, &second, 60_001).unwrap_err(), Cause::Skewed);
}

#[test]
fn a_clock_set_back_lets_no_one_in() {
    let chain = Chain { until: [NOW + 5000; 2], ..Chain::default() };
    let mut a = End::new(1, chain.clone(), Limit::default());
    let mut b = End::new(2, Chain::default(), Limit::default());
    link(&mut a, &mut b, 0);
    let packet = a.seal(&b, b"late", 1);
    let back = Clock { wall: NOW - 1_000_000, steady: 5000 };
    let ended = b.links.receive(a.address, &mut packet.clone(), back).unwrap_err();
    assert_eq!(ended, Cause::Ended);
    // A new exchange of the same node, with all clocks set back.
    let first = a.links.connect(b.address, Clock { steady: 5000, ..back }).unwrap().unwrap();
    let receive =
        |end: &mut End, from, datagram: &[u8]| match end.links.receive(from, &mut datagram.to_vec(), back) {
            Ok(flame_active_link::Received::Step(bytes) | flame_active_link::Received::Begun(bytes)) => {
                Ok(bytes)
            }
            Ok(other) => panic!("{other:?}"),
            Err(cause) => Err(cause),
        };
    let second = receive(&mut b, a.address, &first).unwrap();
    let third = receive(&mut a, b.address, &second).unwrap();
    assert_eq!(receive(&mut b, a.address, &third).unwrap_err(), Cause::Expired);
    // A restart with a clock set back: the stored time holds.
    let stored = b.links.advance(back);
    let mut time = Time::begin(stored, Clock { wall: 0, steady: 0 });
    assert_eq!(time.advance(Clock { wall: 1, steady: 10 }), NOW + 5010);
    assert_eq!(time.latest(), NOW + 5010);
}

#[test]
fn a_peer_that_restarts_is_found_again() {
    let (mut a, _) = linked();
    let mut b = End::new(2, Chain::default(), Limit::default());
    let packet = a.seal(&b, b"lost", 10);
    assert_eq!(b.open(a.address, &packet, 10).unwrap_err(), Cause::NoSession);
    // The node that restarted asks its neighbour; the newest session serves.
    link(&mut b, &mut a, 11);
    let packet = a.seal(&b, b"found", 12);
    assert_eq!(b.open(a.address, &packet, 12).unwrap(), b"found");
    link(&mut a, &mut b, 5000);
    assert!(a.links.sizes()[0] <= 2 && b.links.sizes()[0] <= 2);
}

#[test]
fn sessions_end() {
    let (mut a, mut b) = linked();
    assert!(!a.links.is_due(b.address, NOW + 1_799_999) && a.links.is_due(b.address, NOW + 1_800_000));
    let packet = a.seal(&b, b"late", 3_599_999);
    assert_eq!(b.open(a.address, &packet, 3_600_000).unwrap_err(), Cause::Ended);
    let mode = flame_active_link::Mode::Authenticated;
    let sealed = a.links.seal(b.address, mode, b"x", clock(3_600_000), &mut Vec::new());
    assert_eq!(sealed.unwrap_err(), Cause::Ended);
    // Revocation ends sessions that are open.
    let (mut a, mut b) = linked();
    let chain = b.links.peers().next().unwrap().1.chain;
    b.links.end(|peer| peer.chain == chain);
    let packet = a.seal(&b, b"x", 1);
    assert_eq!(b.open(a.address, &packet, 1).unwrap_err(), Cause::NoSession);
}

#[test]
fn tables_are_full() {
    let limit = Limit { sessions: 3, of_one: 2, exchanges: 4, remembered: 8, firsts: 1000 };
    let mut b = End::new(200, Chain::default(), limit);
    let mut firsts = Vec::new();
    for number in 1..=40 {
        let mut a = End::new(number, Chain::default(), Limit::default());
        let first = a.connect(&b, 0);
        let second = b.answer(a.address, &first, 0).unwrap();
        firsts.push((a, second));
        let [sessions, exchanges, seen] = b.links.sizes();
        assert!(sessions <= 3 && exchanges <= 4 && seen <= 8);
    }
    // The last four exchanges still wait; three of them find room.
    let third = |(a, second): &mut (End, Vec<u8>)| a.answer(address(200), second, 0).unwrap();
    let thirds: Vec<_> = firsts.iter_mut().map(|entry| (third(entry), entry.0.address)).collect();
    let results = thirds.iter().map(|(third, from)| b.answer(*from, third, 0).err());
    let results: Vec<_> = results.collect();
    assert!(results[..36].iter().all(|result| *result == Some(Cause::NoExchange)), "{results:?}");
    assert_eq!(results[36..], [None, None, None, Some(Cause::ManyLinks)]);
    // One principal with many addresses has the links of one.
    let mut b = End::new(200, Chain::default(), limit);
    let mut results = Vec::new();
    for number in 1..=3 {
        let mut own = node(1, &Chain::default());
        // X25519 ignores the lowest three bits.
        own.key[0] = number << 3;
        let proof = node_with(1, &own.key);
        own.identity.proof = proof;
        let time = Time::begin(0, clock(0));
        let mut rng = fastrand::Rng::with_seed(number.into());
        let entropy = Box::new(move |bytes: &mut [u8]| rng.fill(bytes));
        let links = Links::new(own, crate::Authority::default(), Limit::default(), entropy, time).unwrap();
        let mut a = End { links, address: address(number) };
        let first = a.connect(&b, 0);
        let second = b.answer(a.address, &first, 0).unwrap();
        let third = a.answer(b.address, &second, 0).unwrap();
        results.push(b.answer(a.address, &third, 0).err());
    }
    assert_eq!(results, [None, None, Some(Cause::ManyOfOne)]);
}

/// The rest costs no multiplication: the flood is from strangers, from one address and from many.
#[test]
fn a_flood_of_first_messages_is_answered_in_part() {
    let limit = Limit { firsts: 16, ..Limit::default() };
    let mut b = End::new(200, Chain::default(), limit);
    let neighbour = End::new(100, Chain::default(), limit);
    b.links.expect(neighbour.address, flame_capsule::Place(1));
    let mut number = 0;
    let mut answered = |b: &mut End, from: SocketAddr, after| {
        // Each message has a key of its own.
        number += 1;
        let mut rng = fastrand::Rng::with_seed(number);
        let entropy = Box::new(move |bytes: &mut [u8]| rng.fill(bytes));
        let (own, time) = (node(1, &Chain::default()), Time::begin(0, clock(after)));
        let mut a = Links::new(own, crate::Authority::default(), limit, entropy, time).unwrap();
        let first = a.connect(b.address, clock(after)).unwrap().unwrap();
        let answer = b.answer(from, &first, after).unwrap();
        // The others get a cookie.
        assert!(answer[3] == 4 || (answer[3] == 6 && answer.len() == HEADER + 16));
        u32::from(answer[3] == 4)
    };
    let one = SocketAddr::from(([10, 0, 1, 1], 1));
    let of_one: u32 = (0..100).map(|port| answered(&mut b, SocketAddr::new(one.ip(), port), 0)).sum();
    let of_others: u32 = (1..100).map(|other| answered(&mut b, address(other), 0)).sum();
    assert_eq!((of_one, of_others), (2, 14), "from one address, and from many");
    assert_eq!(answered(&mut b, neighbour.address, 0), 1, "a neighbour has its own part");
    assert_eq!(answered(&mut b, one, 999), 0);
    assert_eq!(answered(&mut b, one, 1000), 1, "a second later");
    assert_eq!(b.links.counts().of(Cause::Unproven), 98 + 85 + 1);
}

/// Returns a node's proof for another static key.
fn node_with(number: u8, secret: &[u8; 32]) -> Vec<u8> {
    use ed25519_dalek::{Signer, SigningKey};
    let public = flame_active_link::public_key(secret);
    SigningKey::from_bytes(&[number; 32]).sign(&[b"link", &public[..]].concat()).to_bytes().to_vec()
}

#[test]
fn a_reflected_exchange_makes_no_session() {
    let (mut a, b) = ends();
    let first = a.connect(&b, 0);
    let second = a.answer(b.address, &first, 0).unwrap();
    assert_eq!(a.answer(b.address, &second, 0).unwrap_err(), Cause::Reflected);
    assert_eq!(a.links.sizes()[0], 0);
}

#[test]
fn an_address_has_its_own_node() {
    // Certificates of the tests are of place 1.
    for (place, expected) in [(1, None), (2, Some(Cause::OtherPlace))] {
        let (mut a, mut b) = ends();
        a.links.expect(b.address, flame_capsule::Place(place));
        let first = a.connect(&b, 0);
        let second = b.answer(a.address, &first, 0).unwrap();
        assert_eq!(a.answer(b.address, &second, 0).err(), expected);
    }
}

/// Returns the first message of a stranger that has its own key.
fn stranger(number: u64, to: SocketAddr, after: u64) -> (Links<crate::Authority>, Vec<u8>) {
    let mut rng = fastrand::Rng::with_seed(1000 + number);
    let entropy = Box::new(move |bytes: &mut [u8]| rng.fill(bytes));
    let (own, time) = (node(1, &Chain::default()), Time::begin(0, clock(after)));
    let mut links = Links::new(own, crate::Authority::default(), Limit::default(), entropy, time).unwrap();
    let first = links.connect(to, clock(after)).unwrap().unwrap();
    (links, first)
}

/// Before each message of the honest end, more first messages come than are answered. Its second one shows
/// the cookie, and the link is there after one datagram more each way. The same holds where the flood states
/// the address of a neighbour.
#[test]
fn a_forged_flood_keeps_no_one_out() {
    for is_neighbour in [false, true] {
        let mut a = End::new(1, Chain::default(), Limit::default());
        let limit = Limit { firsts: 8, ..Limit::default() };
        let mut b = End::new(200, Chain::default(), limit);
        if is_neighbour {
            b.links.expect(a.address, flame_capsule::Place(1));
        }
        let (mut number, own) = (0, a.address);
        let mut flood = |b: &mut End| {
            for _ in 0..12 {
                number += 1;
                let forged = SocketAddr::from((u32::try_from(number).unwrap().to_be_bytes(), 4747));
                let from = if is_neighbour { own } else { forged };
                let _ = b.answer(from, &stranger(number, b.address, 0).1, 0);
            }
        };
        flood(&mut b);
        let first = a.connect(&b, 0);
        let cookie = b.answer(a.address, &first, 0).unwrap();
        assert!(cookie.len() < first.len());
        flood(&mut b);
        let again = a.answer(b.address, &cookie, 0).unwrap();
        let second = b.answer(a.address, &again, 0).unwrap();
        flood(&mut b);
        let third = a.answer(b.address, &second, 0).unwrap();
        let confirmation = b.answer(a.address, &third, 0).unwrap();
        assert!(a.answer(b.address, &confirmation, 0).unwrap().is_empty());
        assert!(a.links.is_linked(b.address, NOW) && b.links.is_linked(a.address, NOW));
    }
}

#[test]
fn a_cookie_proves_one_address() {
    let limit = Limit { firsts: 1, ..Limit::default() };
    let mut b = End::new(200, Chain::default(), limit);
    let asked = address(1);
    // Each second, one from elsewhere takes what there is for strangers.
    let answered = |b: &mut End, from, first: &[u8], after: u64| {
        let _ = b.answer(address(150), &stranger(after, b.address, after).1, after);
        b.answer(from, first, after)
    };
    let (mut a, first) = stranger(7, b.address, 0);
    let mut cookie = answered(&mut b, asked, &first, 0).unwrap();
    assert_eq!((cookie[3], cookie.len()), (6, HEADER + 16));
    let again = match a.receive(b.address, &mut cookie, clock(0)).unwrap() {
        flame_active_link::Received::Step(again) => again,
        other => panic!("{other:?}"),
    };
    let with_cookie = |number, after| {
        let mut message = stranger(number, address(200), after).1;
        message[HEADER + 44..HEADER + 60].copy_from_slice(&again[HEADER + 44..HEADER + 60]);
        message
    };
    // Of another address or port it proves nothing; of its own once, as that is its part of a second.
    for from in [address(2), SocketAddr::new(asked.ip(), 9)] {
        assert_eq!(answered(&mut b, from, &with_cookie(8, 0), 0).unwrap()[3], 6, "{from}");
    }
    assert_eq!(answered(&mut b, asked, &again, 0).unwrap()[3], 4);
    assert_eq!(answered(&mut b, asked, &with_cookie(9, 0), 0).unwrap_err(), Cause::Crowded);
    // It is good in the minute that follows, and no longer.
    assert_eq!(answered(&mut b, asked, &with_cookie(10, 119_000), 119_000).unwrap()[3], 4);
    assert_eq!(answered(&mut b, asked, &with_cookie(11, 120_000), 120_000).unwrap()[3], 6);
    // It is asked for once in an exchange, by the address that was asked, under the exchange's number.
    let (mut a, first) = stranger(12, b.address, 200_000);
    let forged = [&first[..3], &[6], &first[HEADER + 40..HEADER + 44], &[0; 8], &[1; 16]].concat();
    let mut receive = |from, length: usize| {
        a.receive(from, &mut forged[..length].to_vec(), clock(200_000)).map(|_| ()).err()
    };
    assert_eq!(receive(address(3), HEADER + 16), Some(Cause::NoExchange));
    assert_eq!(receive(b.address, HEADER + 15), Some(Cause::Exchange));
    assert_eq!(receive(b.address, HEADER + 16), None);
    assert_eq!(receive(b.address, HEADER + 16), Some(Cause::NoExchange));
    // Nor does the exchange that follows ask again.
    let (mut a, first) = stranger(13, b.address, 200_000);
    let number = |message: &[u8]| message[HEADER + 40..HEADER + 44].to_vec();
    let cookie_for = |message: &[u8]| [&message[..3], &[6], &number(message), &[0; 8], &[1; 16]].concat();
    let second = match a.receive(b.address, &mut cookie_for(&first), clock(200_000)).unwrap() {
        flame_active_link::Received::Step(second) => second,
        other => panic!("{other:?}"),
    };
    let refused = a.receive(b.address, &mut cookie_for(&second), clock(200_000)).map(|_| ());
    assert_eq!(refused.unwrap_err(), Cause::NoExchange);
}
