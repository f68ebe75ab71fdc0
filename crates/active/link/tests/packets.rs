//! Packets of a session.

use crate::{address, clock, linked};
use flame_active_link::{Cause, HEADER, Mode, OVERHEAD, Received};

#[test]
fn packets_are_checked() {
    let (mut a, mut b) = linked();
    let packet = a.seal(&b, b"share: 5", 1);
    assert_eq!(packet.len(), OVERHEAD + 8);
    for at in 0..packet.len() {
        let mut changed = packet.clone();
        changed[at] ^= 4;
        let cause = b.links.receive(a.address, &mut changed, clock(1)).map(|r| format!("{r:?}"));
        let expected: &[Cause] = match at {
            0..2 => &[Cause::Foreign],
            2 | 3 => &[Cause::Foreign, Cause::NoExchange],
            4..8 => &[Cause::NoSession],
            8..HEADER => &[Cause::Forged, Cause::Ahead],
            _ => &[Cause::Forged],
        };
        assert!(expected.contains(cause.as_ref().unwrap_err()), "byte {at}: {cause:?}");
    }
    for length in 0..packet.len() {
        let cause = b.open(a.address, &packet[..length], 1).unwrap_err();
        assert!(matches!(cause, Cause::Short | Cause::Forged), "{length}: {cause:?}");
    }
    assert_eq!(b.open(address(9), &packet, 1).unwrap_err(), Cause::OtherAddress);
    // Reflected to its sender, under the number that the sender gave the session.
    a.seal(&b, b"lost", 1);
    let mut reflected = a.seal(&b, b"reflected", 1);
    let theirs = b.seal(&a, b"x", 1);
    reflected[4..8].copy_from_slice(&theirs[4..8]);
    assert_eq!(a.open(b.address, &reflected, 1).unwrap_err(), Cause::Forged);
    // None of these has changed the session.
    assert_eq!(b.open(a.address, &packet, 1).unwrap(), b"share: 5");
    assert_eq!(b.open(a.address, &packet, 1).unwrap_err(), Cause::Replayed);
    assert_eq!(b.links.counts().of(Cause::Replayed), 1);
    let old = a.seal(&b, b"old", 1);
    for _ in 0..flame_active_link::Window::SIZE {
        let packet = a.seal(&b, b"x", 1);
        b.open(a.address, &packet, 1).unwrap();
    }
    assert_eq!(b.open(a.address, &old, 1).unwrap_err(), Cause::Late);
    // An encrypted packet shows nothing, and opens.
    let mut secret = Vec::new();
    a.links.seal(b.address, Mode::Encrypted, b"secret", clock(1), &mut secret).unwrap();
    assert!(!secret.windows(6).any(|part| part == b"secret"));
    assert_eq!(b.open(a.address, &secret, 1).unwrap(), b"secret");
    // A plain one has no peer.
    let mut plain = [&b"FL\x01\0"[..], &[0; 12], b"hello"].concat();
    let received = b.links.receive(a.address, &mut plain, clock(1)).unwrap();
    assert!(matches!(received, Received::Plain(b"hello")));
}

#[test]
fn keys_change() {
    let (mut a, mut b) = linked();
    // By time: each packet has a key of its own; some are lost, some come late.
    let mut after = 0;
    let mut held = None;
    for n in 0..13u32 {
        after += 120_000;
        let packet = a.seal(&b, b"x", after);
        assert_eq!(packet[10] >> 4, u8::try_from(n + 1).unwrap());
        match n % 4 {
            0 => held = Some(packet),
            1 => {
                assert_eq!(b.open(a.address, &packet, after).unwrap(), b"x");
                // The key before serves once more, and no other.
                let held = held.take().unwrap();
                assert_eq!(b.open(a.address, &held, after).unwrap(), b"x");
            }
            _ => {}
        }
    }
    // By count.
    let (mut a, mut b) = linked();
    let mut packet = Vec::new();
    let mode = Mode::Authenticated;
    for _ in 0..(1 << 20) {
        packet.clear();
        a.links.seal(b.address, mode, b"", clock(1), &mut packet).unwrap();
    }
    let last = packet.clone();
    let next = a.seal(&b, b"next", 1);
    assert_eq!(next[8..16], (1u64 << 20).to_le_bytes());
    assert_eq!(b.open(a.address, &next, 1).unwrap(), b"next");
    assert!(matches!(b.links.receive(a.address, &mut last.clone(), clock(1)), Ok(Received::Nothing)));
    // A key that is too far ahead.
    let mut far = next.clone();
    far[8..16].copy_from_slice(&(10u64 << 20).to_le_bytes());
    assert_eq!(b.open(a.address, &far, 1).unwrap_err(), Cause::Ahead);
}
