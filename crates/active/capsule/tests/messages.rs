//! Messages as bytes.

use flame_capsule::{
    Calls, Capsule, CodeMessage, Delivery, Grant, HEADER, Hash, Key, Limits, Malformed, Message, Named,
    Payer, Place, Request, hash_of, name,
};
use proptest::prelude::*;

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    bytes
}

fn example<'a>(arguments: &'a [u8], code: Option<&'a [u8]>) -> Capsule<'a> {
    Capsule {
        function: 2,
        limits: Limits { hops: 9, instructions: 10_000, bytes: 20_000, copies: 30 },
        origin: Place(7),
        place: Place(8),
        payer: Payer([3; 16]),
        key: Key([4; 16]),
        hash: code.map_or(Hash([5; 32]), hash_of),
        grant: Grant::ALL,
        arguments,
        code,
    }
}

#[test]
fn what_is_written_is_read() {
    let code = [1, 2, 3];
    let all = [
        Message::Capsule(example(b"abc", Some(&code))),
        Message::Capsule(example(b"", None)),
        Message::Request(Request { most: 77, hash: Hash([9; 32]) }),
        Message::Code(CodeMessage { hash: hash_of(&code), code: &code }),
    ];
    for message in all {
        assert_eq!(Message::read(&written(&message)).as_ref(), Ok(&message));
    }
    let capsule = written(&Message::Capsule(example(b"abc", Some(&code))));
    assert_eq!(capsule.len(), HEADER + 6);
    assert_eq!(capsule[..8], [1, 1, 2, 9, 3, 0, 3, 0]);
    assert_eq!(name("queue"), Some(u64::from_le_bytes(*b"queue\0\0\0")));
    assert_eq!(name("too long!"), None);
}

#[test]
fn each_field_is_checked() {
    let good = written(&Message::Capsule(example(b"abc", None)));
    let wrong = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Message::read(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(wrong(0, 2), Malformed { field: "version", at: 0, found: 2, expected: "1" });
    assert_eq!(wrong(1, 9), Malformed { field: "kind", at: 1, found: 9, expected: "1 to 4" });
    assert_eq!(wrong(5, 5).field, "arguments' length");
    assert_eq!(wrong(7, 32).field, "code's length");
    assert_eq!(wrong(7, 1).field, "arguments and code");
    assert_eq!(wrong(4, 4).field, "arguments and code");
    assert_eq!(wrong(31, 1).field, "reserved");
    assert_eq!(
        wrong(0, 2).to_string(),
        "the field \"version\" at byte 0 is 2, expected 1: it was damaged, or is of others"
    );
    // A message that is cut anywhere, or has a byte more.
    for length in 0..good.len() {
        assert!(Message::read(&good[..length]).is_err(), "{length}");
    }
    assert!(Message::read(&[&good[..], &[0]].concat()).is_err());
    let request = written(&Message::Request(Request { most: 1, hash: Hash([9; 32]) }));
    for length in 0..request.len() {
        assert!(Message::read(&request[..length]).is_err(), "{length}");
    }
    assert!(Message::read(&[&request[..], &[0]].concat()).is_err());
    let delivery = written(&Message::Delivery(Delivery { key: Key([4; 16]), bytes: b"bytes" }));
    assert_eq!(Message::read(&delivery).map(|message| written(&message)), Ok(delivery.clone()));
    for length in 0..delivery.len() {
        assert!(Message::read(&delivery[..length]).is_err(), "{length}");
    }
    assert_eq!(Message::read(&[&delivery[..], &[0]].concat()).unwrap_err().field, "bytes");
    let long = written(&Message::Delivery(Delivery { key: Key([4; 16]), bytes: &[0; 1025] }));
    assert_eq!(Message::read(&long).unwrap_err().field, "bytes");
}

#[test]
fn code_has_its_hash() {
    let code = [1, 2, 3];
    for message in [
        Message::Capsule(Capsule { hash: Hash([5; 32]), ..example(b"abc", Some(&code)) }),
        Message::Code(CodeMessage { hash: Hash([5; 32]), code: &code }),
    ] {
        assert_eq!(Message::read(&written(&message)).unwrap_err().field, "hash");
    }
}

fn grants() -> impl Strategy<Value = Grant> {
    let named = || prop::option::of(prop::collection::vec(0..4_u64, 0..4));
    let number = || prop_oneof![Just(u64::MAX), 0..3_u64];
    let set = |numbers: Option<Vec<u64>>| numbers.map_or(Some(Named::ALL), Named::some).unwrap();
    let copies = prop_oneof![Just(u32::MAX), 0..3_u32];
    (0..32_u8, number(), number(), number(), copies, named(), named(), named()).prop_map(
        move |(calls, instructions, bytes, state, copies, services, places, interfaces)| {
            let each = [Calls::SEND, Calls::DELIVER, Calls::LEAVE, Calls::SERVICE, Calls::TIMES];
            let calls = (0..5).filter(|bit| calls >> bit & 1 == 1).map(|bit| each[bit]);
            let calls = calls.fold(Calls::NONE, Calls::with);
            let (services, places, interfaces) = (set(services), set(places), set(interfaces));
            Grant { calls, instructions, bytes, copies, state, services, places, interfaces }
        },
    )
}

#[test]
fn a_grant_names_at_most_eight() {
    assert!(Named::some(0..8).is_some() && Named::some(0..9).is_none());
    assert!(Named::some([1; 20]).unwrap().has(1) && !Named::some([]).unwrap().has(1));
    let grant = Grant { places: Named::some([5, 3]).unwrap(), ..Grant::ALL };
    let good = written(&Message::Capsule(Capsule { grant, ..example(b"abc", None) }));
    let wrong = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let Malformed { field, at, .. } = Message::read(&bytes).map(|_| ()).unwrap_err();
        (field, at)
    };
    assert_eq!(wrong(HEADER, 32), ("grant's calls", HEADER));
    assert_eq!(wrong(HEADER + 1, 8), ("grant's kinds", HEADER + 1));
    assert_eq!(wrong(HEADER + 1, 0), ("grant's places", HEADER + 3));
    assert_eq!(wrong(HEADER + 2, 1), ("grant's services", HEADER + 2));
    assert_eq!(wrong(HEADER + 3, 9), ("grant's places", HEADER + 3));
    assert_eq!(wrong(HEADER + 4, 1), ("grant's interfaces", HEADER + 4));
    assert_eq!(wrong(HEADER + 5, 1), ("grant's reserved", HEADER + 5));
    assert_eq!(wrong(HEADER + 36, 1), ("grant's copies", HEADER + 36));
    assert_eq!(wrong(HEADER + 40, 9), ("grant's places", HEADER + 3));
    assert_eq!(wrong(28, 233), ("grant's length", 28));
    assert_eq!(wrong(28, 40), ("arguments and code", HEADER));
}

proptest! {
    #[test]
    fn the_meet_leaves_no_more(a in grants(), b in grants(), c in grants()) {
        prop_assert_eq!(a.meet(b), b.meet(a));
        prop_assert_eq!(a.meet(b).meet(c), a.meet(b.meet(c)));
        prop_assert_eq!((a.meet(a), a.meet(Grant::ALL)), (a, a));
        prop_assert!(a.meet(b).within(a) && a.meet(b).within(b));
        for grant in [a, b, c] {
            let capsule = Capsule { grant, ..example(b"abc", None) };
            let bytes = written(&Message::Capsule(capsule.clone()));
            prop_assert_eq!(bytes.len(), capsule.length());
            prop_assert_eq!(Message::read(&bytes), Ok(Message::Capsule(capsule)));
        }
    }

    #[test]
    fn any_bytes_are_refused_or_have_one_form(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..6u8, sane in any::<bool>()
    ) {
        if sane && bytes.len() > HEADER {
            let length = u16::try_from(bytes.len() - HEADER).unwrap().to_le_bytes();
            bytes[..8].copy_from_slice(&[1, kind, 0, 0, length[0], length[1], 0, 0]);
            bytes[28..32].fill(0);
        }
        if let Ok(message) = Message::read(&bytes) {
            prop_assert_eq!(written(&message), bytes);
        }
    }
}
