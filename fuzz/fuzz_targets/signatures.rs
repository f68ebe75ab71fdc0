//! A list of worm signatures of any bytes: refused with a place inside it, or an automaton that finds each
//! pattern, whole and cut in two.
#![no_main]

use flame_worm::signature::parse;
use flame_worm::{Place, Search};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let signatures = match parse(text) {
        Ok(signatures) => signatures,
        Err(e) => {
            let lines = text.lines().count().max(1);
            assert!(e.line <= lines && !e.reason.is_empty(), "{e}");
            return;
        }
    };
    let mut search = Search::new(&signatures[..signatures.len().min(16)], 16);
    for (i, s) in signatures.iter().take(16).enumerate() {
        let place = Place { proto: s.proto, dport: s.port.unwrap_or(1) };
        let mut whole = vec![0; s.offset.unwrap_or(0).min(65_536) as usize];
        if s.offset.is_some_and(|o| o > 65_536) {
            continue;
        }
        whole.extend(&s.pattern);
        let mut hits = 0;
        search.datagram(place, &whole, &mut |_| hits += 1);
        assert!(hits > 0, "pattern {i} is not found");
        let (first, second) = whole.split_at(whole.len() - 1);
        let mut cut = 0;
        search.segment(place, i as u64, 0, first, &mut |_| cut += 1);
        search.segment(place, i as u64, first.len() as u32, second, &mut |_| cut += 1);
        assert!(cut > 0, "pattern {i} is not found in two segments");
    }
});
