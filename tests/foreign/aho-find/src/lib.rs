//! `aho-corasick`'s DFA with the crate's own search and no prefilter.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use each::{Each, Look};

struct Aho(AhoCorasick);

impl Look for Aho {
    fn new() -> Self {
        let mut builder = AhoCorasick::builder();
        builder.kind(Some(AhoCorasickKind::DFA)).prefilter(false);
        Self(builder.build(each::WORDS).expect("few words"))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        self.0.find_iter(bytes).count() as u64
    }
}

flame_module::export!(Each<Aho>);
