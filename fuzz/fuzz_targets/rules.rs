//! A rule file of any bytes, then a packet: refused at a place inside it, or every rule is in use or listed,
//! and the packet is examined.
#![no_main]

use flame_abi::{BatchHeader, Descriptor, LinkType};
use flame_ids::engine::{Engine, Facts, Limits};
use flame_ids::rule::parse;
use flame_module::Batch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let middle = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (text, packet) = (&data[..middle], data.get(middle + 1..).unwrap_or(&[]));
    let Ok(text) = std::str::from_utf8(text) else { return };
    let set = match parse(text) {
        Ok(set) => set,
        Err(fault) => {
            let lines = text.split('\n').count();
            assert!(
                fault.line as usize <= lines && fault.column > 0 && !fault.expected.is_empty(),
                "{fault}"
            );
            return;
        }
    };
    let given = set.rules.len() + set.unsupported.len();
    // Regular expressions are bounded one by one; a run has time for a hundred of them.
    if given > 100 {
        return;
    }
    let mut engine = Engine::new(set, Limits { connections: 16, tracked: 16 });
    assert_eq!(engine.rules() + engine.unsupported.len(), given);
    let d = flame_decode::decode(
        LinkType::ETHERNET,
        packet,
        packet.len() as u32,
        flame_decode::Options::default(),
    );
    let d = [Descriptor { addr: 0, ..d }];
    let batch = Batch::new(&d, packet, 0, &BatchHeader::default());
    for packet in batch.packets().filter_map(|p| Facts::of(&p)) {
        let mut alerts = 0;
        engine.packet(&packet, |_| alerts += 1);
        assert!(alerts <= engine.rules());
    }
});
