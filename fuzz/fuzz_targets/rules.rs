//! A rule file of any bytes, then variables and thresholds, then a packet: every rule is in use or listed,
//! and the packet is examined, also with its bytes repeated. Neither the start nor a packet is charged more
//! than its budget; what is charged too little shows as a time-out.
#![no_main]

use flame_abi::{BatchHeader, Descriptor, LinkType};
use flame_ids::engine::{Engine, Facts, Limits, MOST_WORK};
use flame_ids::rule::{Dialect, Source, load, start};
use flame_module::Batch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let middle = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (text, packet) = (&data[..middle], data.get(middle + 1..).unwrap_or(&[]));
    let Ok(text) = std::str::from_utf8(text) else { return };
    // A 1 separates the texts; a text that begins with one is Snort's.
    let (text, dialect) =
        text.strip_prefix('\u{1}').map_or((text, Dialect::Suricata), |text| (text, Dialect::Snort));
    let mut texts = text.splitn(3, '\u{1}');
    let mut next = || texts.next().unwrap_or_default();
    let set = load(&Source { rules: next(), vars: next(), thresholds: next(), dialect, midstream: false });
    let lines = text.split('\n').count();
    for line in &set.unsupported {
        assert!((1..=lines).contains(&(line.line as usize)), "{line:?}");
        assert!(!line.reason.is_empty() && !line.kind.is_empty(), "{line:?}");
        assert!((line.file as usize) < set.files.len(), "{line:?}");
    }
    let refused = |set: &flame_ids::rule::RuleSet| set.kinds.values().sum::<u64>();
    assert_eq!(set.rules.len() as u64 + refused(&set), set.total);
    let mut engine = Engine::new(set, Limits { connections: 16, tracked: 16 });
    assert_eq!(engine.rules() as u64 + refused(&engine.set), engine.set.total);
    assert!(engine.set.start.spent() <= start::MOST, "{:?}", engine.set.start);
    let repeated = packet.repeat(60_000 / packet.len().max(1));
    for packet in [packet, &[packet, &repeated[..]].concat()] {
        let options = flame_decode::Options::default();
        let d = flame_decode::decode(LinkType::ETHERNET, packet, packet.len() as u32, options);
        let d = [Descriptor { addr: 0, ..d }; 2];
        let batch = Batch::new(&d, packet, 0, &BatchHeader::default());
        for packet in batch.packets().filter_map(|p| Facts::of(&p, dialect)) {
            let (mut alerts, given_up) = (0, engine.counts.given_up);
            engine.packet(&packet, |_, _| alerts += 1);
            assert!(alerts <= engine.rules());
            assert!(engine.spent <= MOST_WORK);
            assert_eq!(engine.counts.given_up > given_up, engine.spent == MOST_WORK);
        }
    }
});
