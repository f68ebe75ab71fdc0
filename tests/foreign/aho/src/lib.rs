//! `aho-corasick` with the automaton that it takes by itself: how often the words are in payloads.

use aho_corasick::AhoCorasick;
use each::{Each, Look};

struct Aho(AhoCorasick);

impl Look for Aho {
    fn new() -> Self {
        Self(AhoCorasick::new(each::WORDS).expect("few words"))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        self.0.find_iter(bytes).count() as u64
    }
}

flame_module::export!(Each<Aho>);
