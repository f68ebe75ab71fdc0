//! `regex-automata`'s dense DFA, one step for each byte.

use each::{Each, Look};
use regex_automata::Input;
use regex_automata::dfa::{Automaton, dense};
use regex_automata::util::syntax;

struct Regex(dense::DFA<Vec<u32>>);

impl Look for Regex {
    fn new() -> Self {
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        Self(dense::Builder::new().syntax(bytes).build(each::PATTERN).expect("a small DFA"))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let Ok(mut state) = self.0.start_state_forward(&Input::new(bytes)) else { return 0 };
        // A match shows one byte late, so the end has to be stepped over too.
        for byte in bytes {
            state = self.0.next_state(state, *byte);
            if self.0.is_match_state(state) {
                return 1;
            }
        }
        self.0.is_match_state(self.0.next_eoi_state(state)).into()
    }
}

flame_module::export!(Each<Regex>);
