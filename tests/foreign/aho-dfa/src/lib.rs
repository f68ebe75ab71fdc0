//! `aho-corasick`'s DFA, stepped by hand: one look-up for each byte, and nothing else.

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use each::{Each, Look};

struct Aho(DFA);

impl Look for Aho {
    fn new() -> Self {
        Self(DFA::new(each::WORDS).expect("few words"))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let mut state = self.0.start_state(Anchored::No).expect("an unanchored DFA");
        let mut found = 0;
        for byte in bytes {
            state = self.0.next_state(Anchored::No, state, *byte);
            found += u64::from(self.0.is_match(state));
        }
        found
    }
}

flame_module::export!(Each<Aho>);
