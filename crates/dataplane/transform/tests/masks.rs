//! Bytes that a packet is not shown as they are stay, and checksums among them follow the changes of others.

use flame_abi::LinkType;
use flame_transform::Rewriter;
use proptest::prelude::*;

/// Returns the sum of the 16-bit words.
fn sum(bytes: &[u8]) -> i64 {
    bytes.chunks(2).map(|w| i64::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]))).sum()
}

/// A frame of UDP or TCP over IPv4 with right checksums, or none if `none`.
fn frame(is_tcp: bool, payload: &[u8], none: bool) -> Vec<u8> {
    let header = if is_tcp { 24 } else { 8 };
    let mut b = vec![0; 34 + header];
    b.extend_from_slice(payload);
    let end = b.len();
    b[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    b[16..18].copy_from_slice(&((end - 14) as u16).to_be_bytes());
    b[22..24].copy_from_slice(&[64, if is_tcp { 6 } else { 17 }]);
    b[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    b[34..38].copy_from_slice(&[1, 2, 3, 4]);
    // An option that is not known, which is masked.
    if is_tcp {
        (b[46], b[54], b[55]) = (0x60, 30, 4);
    } else {
        b[38..40].copy_from_slice(&((end - 34) as u16).to_be_bytes());
    }
    let at = if is_tcp { 50 } else { 40 };
    if !none {
        let right = right(&b, is_tcp);
        b[at..at + 2].copy_from_slice(&(!(right as u16)).to_be_bytes());
    }
    b
}

/// Returns the sum that the checksum makes 0xffff.
fn right(b: &[u8], is_tcp: bool) -> i64 {
    let proto = if is_tcp { 6 } else { 17 };
    (sum(&b[34..]) + sum(&b[26..34]) + proto + (b.len() - 34) as i64).rem_euclid(0xffff)
}

proptest! {
    #[test]
    fn what_is_hidden_stays_and_checksums_follow(
        is_tcp in any::<bool>(),
        none in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 1..40),
        edits in prop::collection::vec((26..58_usize, any::<u8>()), 0..6),
    ) {
        let before = frame(is_tcp, &payload, none && !is_tcp);
        let ask = if is_tcp { 58 } else { 42 };
        let mut rewriter = Rewriter::hiding(&Default::default(), None).unwrap();
        let mut shown = before.clone();
        rewriter.record(Default::default());
        prop_assert_eq!(rewriter.rewrite_shown(LinkType::ETHERNET, &mut shown, ask), ask);
        let hidden = rewriter.recorded();
        let (sum_at, options) = if is_tcp { (50..52, 54..58) } else { (40..42, 0..0) };
        let mut changed = shown[..ask].to_vec();
        let fixed = |at: &usize| *at >= 38 && (!is_tcp && *at < 40 || is_tcp && *at == 46);
        for (at, byte) in edits.into_iter().filter(|(at, _)| *at < ask && !fixed(at)) {
            changed[at] = byte;
        }
        let asked = changed.clone();
        hidden.restore(&before, &mut changed);
        for at in 0..ask {
            match at {
                _ if sum_at.contains(&at) => {}
                _ if options.contains(&at) => prop_assert_eq!(changed[at], before[at], "byte {}", at),
                _ => prop_assert_eq!(changed[at], asked[at], "byte {}", at),
            }
        }
        let whole = [&changed, &before[ask..]].concat();
        match none && !is_tcp {
            true => prop_assert_eq!(&whole[sum_at], &[0, 0]),
            false => prop_assert_eq!(right(&whole, is_tcp), 0),
        }
    }
}
