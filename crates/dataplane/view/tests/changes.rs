//! A module that may change the bytes that it sees cannot show itself others. What it may change follows from
//! what it was shown, since nothing else is asked. `FLAME_CASES` is the number of changes (200,000).

use crate::maker::{Hidden as Parts, Maker, Numbers};
use flame_abi::{Descriptor, LinkType};
use flame_decode::{Options, decode, differs_in_values_only};
use flame_plan::{Expose, Transforms, ViewSpec};
use flame_transform::Hidden;
use flame_view::View;

struct Seen {
    /// The descriptor as it is shown.
    d: Descriptor,
    shown: Vec<u8>,
    hidden: Hidden,
    shows_all: bool,
}

fn see(view: &mut View, packet: &[u8], wire_len: u32, decapsulate: bool) -> Seen {
    let d = decode(LinkType::ETHERNET, packet, wire_len, Options { decapsulate, ..Options::default() });
    let shows_all = view.shows_all_of(LinkType::ETHERNET, &d, packet).unwrap();
    let mut hidden = Hidden::default();
    let mut shown = Vec::new();
    let d = view.show(LinkType::ETHERNET, &d, packet, (&mut shown, &mut hidden)).unwrap();
    Seen { d, shown, hidden, shows_all }
}

/// Changes some of the shown bytes, mostly of headers.
fn change(numbers: &mut Numbers, seen: &Seen) -> Vec<u8> {
    let mut changed = seen.shown.clone();
    for _ in 0..=numbers.below(3) {
        let header = usize::from(seen.d.l4) + usize::from(seen.d.l4_len);
        let end = if numbers.below(4) > 0 { header.clamp(1, changed.len()) } else { changed.len() };
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
        let mut packet = maker.frame();
        let wire_len = packet.len() as u32;
        // Headers that contradict each other, and captures that end within one.
        for _ in 0..numbers.below(3) {
            let at = numbers.below(packet.len().min(90) as u64) as usize;
            packet[at] = numbers.next() as u8;
        }
        if numbers.below(3) == 0 {
            packet.truncate(1 + numbers.below(u64::from(wire_len)) as usize);
        }
        let expose = [Expose::Headers, Expose::Payload(16), Expose::Payload(300)][case % 3];
        let decapsulate = case & 8 != 0;
        let mut view = View::new(&ViewSpec { expose, ..ViewSpec::default() }, None).unwrap();
        let before = see(&mut view, &packet, wire_len, decapsulate);
        if before.shown.is_empty() || before.shows_all {
            continue;
        }
        let mut changed = change(&mut numbers, &before);
        let is_accepted = differs_in_values_only(LinkType::ETHERNET, &before.d, &before.shown, &changed);
        if !is_accepted {
            refused += 1;
            continue;
        }
        accepted += 1;
        before.hidden.restore(&packet, &mut changed);
        let end = before.shown.len();
        let after = see(&mut view, &[&changed, &packet[end..]].concat(), wire_len, decapsulate);
        // Not fewer either, so that it can be changed back, and further.
        assert_eq!(after.shown.len(), end, "{expose} {packet:02x?}\n{changed:02x?}");
        let shows_more = (0..end).any(|at| before.hidden.contains(at) && !after.hidden.contains(at));
        assert!(!shows_more, "{expose} {packet:02x?}\n{changed:02x?}");
    }
    assert!(accepted > cases / 20 && refused > cases / 20, "{accepted} accepted, {refused} refused");
}
