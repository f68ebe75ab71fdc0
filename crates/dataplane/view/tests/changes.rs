//! A module that may change the bytes that it sees cannot show itself others, nor learn about them by what it
//! may change. `FLAME_CASES` is the number of changes (200,000).

use crate::maker::{Hidden as Parts, Maker, Numbers};
use flame_abi::{Descriptor, LinkType};
use flame_decode::{Options, decode, differs_in_values_only};
use flame_plan::{Expose, Transforms, ViewSpec};
use flame_transform::Hidden;
use flame_view::View;

struct Seen {
    d: Descriptor,
    shown: usize,
    hidden: Hidden,
    shows_all: bool,
}

fn see(view: &mut View, packet: &[u8], decapsulate: bool) -> Seen {
    let d = decode(LinkType::ETHERNET, packet, packet.len() as u32, Options { decapsulate });
    let mut hidden = Hidden::default();
    let shown = view.hidden(LinkType::ETHERNET, &d, packet, &mut hidden).unwrap();
    let shows_all = view.shows_all_of(LinkType::ETHERNET, &d, packet).unwrap();
    Seen { d, shown, hidden, shows_all }
}

/// Changes some of the shown bytes, mostly of headers.
fn change(numbers: &mut Numbers, seen: &Seen, packet: &[u8]) -> Vec<u8> {
    let mut changed = packet[..seen.shown].to_vec();
    for _ in 0..=numbers.below(3) {
        let header = usize::from(seen.d.l4) + usize::from(seen.d.l4_len);
        let end = if numbers.below(4) > 0 { header.clamp(1, seen.shown) } else { seen.shown };
        let at = numbers.below(end as u64) as usize;
        changed[at] = match numbers.below(4) {
            0 => changed[at] ^ 1 << numbers.below(8),
            // Kinds, lengths, protocols and the bytes of tunnels' ports.
            1 => [0, 1, 2, 4, 5, 6, 8, 10, 17, 41, 47, 50, 0x12, 0xb5, 0x17, 0xc1, 0x4f]
                [numbers.below(17) as usize],
            2 => changed[at].wrapping_add(1),
            _ => numbers.next() as u8,
        };
    }
    seen.hidden.restore(packet, &mut changed);
    changed
}

#[test]
fn no_change_that_is_accepted_shows_another_byte() {
    let cases = std::env::var("FLAME_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let (mut numbers, mut accepted, mut refused) = (Numbers::new(7), 0, 0);
    let transforms = Transforms::new();
    for case in 0..cases {
        let mut maker = Maker {
            shown: Numbers::new(numbers.next()),
            secret: Numbers::new(numbers.next()),
            hidden: Parts::default(),
            transforms: &transforms,
            endless: false,
            prefix: None,
        };
        let packet = maker.frame();
        let expose = [Expose::Headers, Expose::Payload(16), Expose::Payload(300)][case % 3];
        let decapsulate = case & 8 != 0;
        let mut view = View::new(&ViewSpec { expose, ..ViewSpec::default() }, None).unwrap();
        let before = see(&mut view, &packet, decapsulate);
        if before.shown == 0 || before.shows_all {
            continue;
        }
        let changed = change(&mut numbers, &before, &packet);
        let skips = |at| before.hidden.contains(at);
        let accepts =
            |packet: &[u8]| differs_in_values_only(LinkType::ETHERNET, &before.d, (packet, &changed), skips);
        let is_accepted = accepts(&packet);
        // Bytes that are not shown have no part in the answer.
        let mut other = packet.clone();
        for (at, byte) in other.iter_mut().enumerate() {
            if at >= before.shown || skips(at) {
                *byte = numbers.next() as u8;
            }
        }
        assert_eq!(accepts(&other), is_accepted, "{expose} {packet:02x?}\n{changed:02x?}");
        if !is_accepted {
            refused += 1;
            continue;
        }
        accepted += 1;
        let after = see(&mut view, &[&changed, &packet[before.shown..]].concat(), decapsulate);
        let shows_more = after.shown > before.shown
            || (0..after.shown).any(|at| before.hidden.contains(at) && !after.hidden.contains(at));
        assert!(!shows_more, "{expose} {packet:02x?}\n{changed:02x?}");
        // So it can be changed back, and further.
        assert_eq!(after.shown, before.shown, "{expose} {packet:02x?}\n{changed:02x?}");
    }
    assert!(accepted > cases / 20 && refused > cases / 20, "{accepted} accepted, {refused} refused");
}
